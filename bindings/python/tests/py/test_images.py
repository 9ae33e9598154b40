"""Whole images, and file objects as devices."""

import dataclasses
import errno
import io
import os

import pytest

import extant_ext4


def test_mkfs_takes_settings_and_words(tmp_path):
    image = tmp_path / "new.img"
    extant_ext4.mkfs(
        image, 8 << 20, block_size=1024, label="small", features=["^has_journal"], options=["-m", "0"]
    )
    with extant_ext4.open(image, "r+") as fs:
        assert fs.statvfs().f_bsize == 1024
    extant_ext4.mkfs(image, fs_type="ext2")
    assert extant_ext4.check(image).verdict == "clean"
    with pytest.raises(OSError) as raised:
        extant_ext4.mkfs(image, 8 << 20, features=["no_such_feature"])
    assert raised.value.errno == errno.EINVAL
    assert "no_such_feature" in str(raised.value)
    assert extant_ext4.check(image).verdict == "clean"


def test_build_is_exact_and_the_same_each_time(tmp_path):
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/hostname").write_text("example\n")
    (tree / "left.out").write_text("x")
    images = [tmp_path / name for name in ("a.img", "b.img")]
    reports = [
        extant_ext4.build(
            image, tree, owner=(0, 0), exclude=["left.out"], source_date_epoch=1_700_000_000,
            label="built",
        )
        for image in images
    ]
    assert reports[0] == reports[1]
    assert images[0].read_bytes() == images[1].read_bytes()
    assert reports[0].size == images[0].stat().st_size
    assert (reports[0].files, reports[0].content_bytes) == (1, 8)
    with extant_ext4.open(images[0]) as fs:
        assert sorted(fs.listdir("/")) == ["etc", "lost+found"]
        assert fs.read_text("/etc/hostname") == "example\n"
    grown = extant_ext4.build(images[0], [tree], size="auto+4M")
    assert grown.free_blocks * grown.block_size >= 4 << 20
    with pytest.raises(FileNotFoundError):
        extant_ext4.build(images[0], tmp_path / "missing")
    with pytest.raises(ValueError):
        extant_ext4.build(images[0], tree, size="auto+x%")


def test_a_volume_gets_another_size(tmp_path):
    image = tmp_path / "sized.img"
    extant_ext4.mkfs(image, 16 << 20)
    with extant_ext4.open(image, "r+") as fs:
        fs.write_bytes("/kept", b"x" * 100_000)
    with pytest.raises(OSError) as raised:
        extant_ext4.resize(image, 64 << 20)
    assert raised.value.errno == errno.ENOSPC and extant_ext4.check(image).verdict == "clean"
    extant_ext4.check(image, repair="preen")
    os.truncate(image, 64 << 20)
    assert extant_ext4.resize(image) == 64 << 20
    least = extant_ext4.minimum_size(image)
    assert 0 < least < 16 << 20
    with pytest.raises(OSError):
        extant_ext4.resize(image, least - 4096)
    with open(image, "r+b") as device:
        assert extant_ext4.resize(device, 32 << 20) == 32 << 20
        assert extant_ext4.minimum_size(device) == least
    os.truncate(image, 32 << 20)
    assert extant_ext4.check(image).verdict == "clean"
    with extant_ext4.open(image) as fs:
        assert fs.read_bytes("/kept") == b"x" * 100_000
    with pytest.raises(FileNotFoundError):
        extant_ext4.resize(tmp_path / "missing.img")


def test_a_check_says_what_it_found(image):
    clean = extant_ext4.check(image)
    assert (clean.verdict, clean.exit_code, clean.findings) == ("clean", 0, ())
    with extant_ext4.open(image, "r+") as fs:
        fs.write_bytes("/file", b"x" * 5000)
        fs.setxattr("/file", "user.mark", b"unmistakable value")
    # In the inode, whose checksum fails then, and in the journal's copy of it.
    data = image.read_bytes()
    image.write_bytes(data.replace(b"unmistakable value", b"Unmistakable value"))
    found = extant_ext4.check(image)
    assert (found.verdict, found.errors_left, found.modified) == ("damaged", True, False)
    finding = found.findings[0]
    assert dataclasses.is_dataclass(finding)
    assert finding.counts and not finding.repaired and finding.inode
    assert finding.text and finding.code and finding.repair
    repaired = extant_ext4.check(image, repair="yes")
    assert (repaired.verdict, repaired.exit_code, repaired.modified) == ("repaired", 1, True)
    assert any(finding.repaired for finding in repaired.findings)
    assert extant_ext4.check(image).verdict == "clean"
    with pytest.raises(ValueError, match="repairs"):
        extant_ext4.check(image, repair="maybe")


def test_a_file_without_a_volume_is_unreadable(tmp_path):
    (tmp_path / "zeroes").write_bytes(bytes(1 << 20))
    report = extant_ext4.check(tmp_path / "zeroes")
    assert (report.verdict, report.exit_code) == ("unreadable", 8)
    assert report.error
    with pytest.raises(FileNotFoundError):
        extant_ext4.check(tmp_path / "missing")


def test_a_file_object_is_a_device(image):
    device = io.BytesIO(image.read_bytes())
    with extant_ext4.open(device, "r+") as fs:
        fs.write_text("/file", "text")
        fs.makedirs("/a/b")
    assert extant_ext4.check(device).verdict == "clean"
    with extant_ext4.open(device) as fs:
        assert fs.read_text("/file") == "text"
    image.write_bytes(device.getvalue())
    assert extant_ext4.check(image).verdict == "clean"
    with extant_ext4.open(image) as fs:
        assert sorted(fs.listdir("/")) == ["a", "file", "lost+found"]
    extant_ext4.mkfs(device, fs_type="ext3")
    assert extant_ext4.check(device, repair="preen").verdict == "clean"


def test_a_file_object_that_fails_is_an_error_with_its_number(image):
    class Failing(io.FileIO):
        fails = False

        def read(self, size=-1):
            if self.fails:
                raise OSError(errno.ENODEV, "gone")
            return super().read(size)

        def write(self, data):
            if self.fails:
                raise RuntimeError("no writes")
            return super().write(data)

    with Failing(image, "r+b") as device:
        with extant_ext4.open(device) as fs:
            device.fails = True
            with pytest.raises(OSError) as raised:
                fs.listdir("/lost+found")
            assert raised.value.errno in (errno.EIO, errno.ENODEV)
        device.fails = False
        fs = extant_ext4.open(device, "r+")
        fs.write_text("/file", "text")
        device.fails = True
        with pytest.raises(OSError):
            fs.sync()
        with pytest.raises(OSError):
            fs.close()
    assert extant_ext4.check(image, repair="preen").exit_code in (0, 1)


def test_an_object_that_cannot_seek_is_refused():
    class Pipe(io.RawIOBase):
        def readable(self):
            return True

    with pytest.raises(io.UnsupportedOperation):
        extant_ext4.open(Pipe())
    with pytest.raises((AttributeError, TypeError)):
        extant_ext4.open(7)

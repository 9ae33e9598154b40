"""Deleted files, versions of inodes, the times of all files, and damaged volumes."""

import errno
import io
import stat

import pytest

import extant_ext4


@pytest.fixture
def rescued(image):
    """An image with files, one of which is deleted."""
    with extant_ext4.open(image, "r+") as fs:
        fs.makedirs("/dir")
        fs.write_bytes("/dir/kept", b"k" * 30_000)
        fs.write_bytes("/dir/gone", bytes(range(1, 251)) * 100)
        fs.symlink("kept", "/dir/link")
        fs.sync()
    with extant_ext4.open(image, "r+") as fs:
        fs.write_bytes("/dir/kept", b"K" * 40_000)
        fs.unlink("/dir/gone")
        fs.unlink("/dir/link")
    return image


def test_deleted_files_have_their_names_and_contents(rescued):
    before = rescued.read_bytes()
    found = {file.path: file for file in extant_ext4.deleted(rescued)}
    gone = found["/dir/gone"]
    assert (gone.state, gone.lost) == ("whole", ())
    assert stat.S_ISREG(gone.attributes.mode) and gone.attributes.size == 25_000
    assert gone.read_bytes() == bytes(range(1, 251)) * 100
    assert gone.pread(3, 24_999) == b"\xfa"
    assert gone.deleted > 1_700_000_000
    assert found["/dir/link"].readlink() == "kept"
    assert rescued.read_bytes() == before
    assert "gone" in repr(gone) and "_files" not in repr(gone)


def test_versions_and_times(rescued):
    versions = extant_ext4.history(rescued, "/dir/kept")
    assert [version.attributes.size for version in versions][-1] == 40_000
    assert versions[-1].present and not any(version.present for version in versions[:-1])
    assert 30_000 in [version.attributes.size for version in versions]
    with pytest.raises(FileNotFoundError):
        extant_ext4.history(rescued, "/missing")
    lines = {entry.path: entry for entry in extant_ext4.timeline(rescued)}
    assert not lines["/dir/kept"].deleted and lines["/dir/gone"].deleted
    assert lines["/dir/link"].target == "kept"
    assert lines["/dir/kept"].attributes.mtime_ns > 1_700_000_000 * 10**9


class Bad(io.BytesIO):
    """A file object with a sector that cannot be read."""

    sector = -1

    def read(self, size=-1):
        at = self.tell()
        if at < (self.sector + 1) * 512 and at + size > self.sector * 512:
            raise OSError(errno.EIO, "a bad sector")
        return super().read(size)


def test_bad_sectors_are_zeros_and_listed(rescued):
    data = rescued.read_bytes()
    device = Bad(data)
    device.sector = data.index(b"K" * 4096) // 512 + 2
    with extant_ext4.salvage(device) as salvage:
        contents = salvage.fs.read_bytes("/dir/kept")
        assert contents == b"K" * 1024 + bytes(512) + b"K" * (40_000 - 1536)
        report = salvage.report()
        assert report.partly and salvage.report("/dir").partly
        assert report.unreadable == ((device.sector * 512, device.sector * 512 + 512),)
        (file,) = report.files
        assert (file.path, file.missing) == ("/dir/kept", ((1024, 1536),))
        assert stat.S_ISREG(file.type)
        with pytest.raises(OSError) as raised:
            salvage.fs.write_bytes("/new", b"")
        assert raised.value.errno == errno.EROFS
    assert device.getvalue() == data


def test_a_map_of_ddrescue_says_what_was_not_read(rescued, tmp_path):
    start = rescued.read_bytes().index(b"K" * 4096)
    map_file = tmp_path / "map"
    map_file.write_text(f"0 + 1\n0 {start} +\n{start} 512 -\n{start + 512} 0x40000000 +\n")
    salvage = extant_ext4.salvage(rescued, map=map_file)
    assert salvage.report("/dir/kept").files[0].missing == ((0, 512),)
    assert salvage.fs.read_bytes("/dir/kept")[:513] == bytes(512) + b"K"
    salvage.close()
    with pytest.raises(ValueError, match="copied file"):
        extant_ext4.salvage(f"overlay:{rescued}", map=map_file)
    map_file.write_text("nonsense")
    with pytest.raises(ValueError, match="line 1"):
        extant_ext4.salvage(rescued, map=map_file)


def test_a_damaged_volume_is_read_and_not_written(rescued):
    data = bytearray(rescued.read_bytes())
    # The superblock is lost.
    data[1024:2048] = bytes(1024)
    rescued.write_bytes(data)
    with pytest.raises(OSError):
        extant_ext4.open(rescued)
    with extant_ext4.salvage(rescued) as salvage:
        assert salvage.fs.read_bytes("/dir/kept") == b"K" * 40_000
        report = salvage.report("/dir/kept")
        assert not report.partly and report.journal == ()
        # By a backup, or by a copy in the journal.
        assert any(finding.repaired and finding.pass_number == 0 for finding in report.findings)
    assert rescued.read_bytes() == data
    rescued.write_bytes(bytes(1 << 20))
    with pytest.raises(OSError):
        extant_ext4.salvage(rescued)

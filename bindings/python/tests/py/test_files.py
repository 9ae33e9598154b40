"""File systems as `os`, files as `io`."""

import errno
import io
import os
import stat
import threading

import pytest

import extant_ext4


@pytest.fixture
def fs(image):
    with extant_ext4.open(image, "r+") as fs:
        yield fs


def test_a_file_is_that_of_io(fs):
    raw = fs.open("/file", "xb+", buffering=0)
    assert isinstance(raw, io.RawIOBase)
    assert (raw.readable(), raw.writable(), raw.seekable()) == (True, True, True)
    assert raw.write(b"hello, world") == 12
    assert (raw.tell(), raw.seek(-5, os.SEEK_END)) == (12, 7)
    buffer = bytearray(b"........")
    assert (raw.readinto(buffer), bytes(buffer)) == (5, b"world...")
    assert raw.read() == b""
    assert raw.pwrite(memoryview(b"H"), 0) == 1
    assert raw.pread(5, 0) == b"Hello"
    assert raw.truncate(20) == 20
    assert raw.seek(0) == 0
    assert raw.read() == b"Hello, world" + bytes(8)
    raw.fsync()
    assert raw.stat().st_size == 20
    raw.close()
    raw.close()
    for call in (raw.read, raw.tell, raw.fileno, lambda: raw.write(b"x")):
        with pytest.raises((ValueError, io.UnsupportedOperation)):
            call()


def test_modes_are_those_of_open(fs):
    with pytest.raises(FileNotFoundError):
        fs.open("/missing")
    with fs.open("/text", "w", encoding="utf-8", newline="\r\n") as file:
        file.write("eins\nzwei\n")
    assert fs.read_bytes("/text") == b"eins\r\nzwei\r\n"
    with fs.open("/text", encoding="utf-8") as file:
        assert file.readlines() == ["eins\n", "zwei\n"]
    with pytest.raises(FileExistsError):
        fs.open("/text", "x")
    with fs.open("/text", "ab") as file:
        assert file.tell() == 12
        file.seek(0)
        file.write(b"drei")
    assert fs.read_bytes("/text").endswith(b"zwei\r\ndrei")
    with fs.open("/text", "rb") as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    for mode in ("", "q", "rw", "rr", "rbt", "+", "U"):
        with pytest.raises(ValueError, match="mode"):
            fs.open("/text", mode)
    with pytest.raises(ValueError):
        fs.open("/text", "r", 0)
    with fs.open("/text", "r+b") as file:
        file.seek(4)
        file.write(b"!")
        file.seek(0)
        assert file.read(6) == b"eins!\n"
    assert fs.open("/text", "wb").close() is None
    assert fs.read_bytes("/text") == b""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_all_buffers_are_written(fs, kind):
    assert fs.write_bytes("/buffer", kind(b"abc" * 100_000)) == 300_000
    assert fs.read_bytes("/buffer") == b"abc" * 100_000


def test_paths_are_text_bytes_or_path_like(fs):
    name = b"/caf\xe9"
    fs.write_bytes(name, b"latin-1")
    assert sorted(fs.listdir()) == sorted(["lost+found", os.fsdecode(name)[1:]])
    assert fs.read_bytes(os.fsdecode(name)) == b"latin-1"
    [entry] = [entry for entry in fs.scandir("/") if entry.is_file()]
    assert os.fsencode(entry) == name
    assert fs.read_bytes(entry) == b"latin-1"


def test_names_are_made_and_removed(fs):
    fs.mkdir("/a", 0o700)
    fs.makedirs("/a/b/c")
    fs.makedirs("/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs("/a/b/c")
    fs.write_text("/a/file", "text")
    fs.link("/a/file", "/a/second")
    fs.symlink("file", "/a/link")
    assert fs.readlink("/a/link") == "file"
    assert fs.stat("/a/link").st_nlink == 2
    assert (fs.islink("/a/link"), fs.isfile("/a/link"), fs.isdir("/a")) == (True, True, True)
    fs.rename("/a/second", "/a/renamed")
    with pytest.raises(FileExistsError):
        fs.rename("/a/renamed", "/a/file", exclusive=True)
    fs.replace("/a/renamed", "/a/link")
    with pytest.raises(OSError) as raised:
        fs.rmdir("/a")
    assert raised.value.errno == errno.ENOTEMPTY
    with pytest.raises(IsADirectoryError):
        fs.unlink("/a")
    fs.unlink("/a/link")
    assert not fs.exists("/a/link")
    fs.rmtree("/a")
    assert fs.listdir("/") == ["lost+found"]


def test_attributes_are_set_and_read(fs):
    fs.write_text("/file", "text")
    fs.chmod("/file", 0o4751)
    fs.chown("/file", 1000, -1)
    for moment in (1_234_567_890_123_456_789, -1, 10_000_000_000 * 10**9 + 7):
        fs.utime("/file", ns=(moment, moment + 1))
        found = fs.stat("/file")
        assert (found.st_atime_ns, found.st_mtime_ns) == (moment, moment + 1)
    assert stat.S_IMODE(found.st_mode) == 0o4751
    assert (found.st_uid, found.st_gid, found.st_size) == (1000, 0, 4)
    fs.mknod("/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert fs.stat("/null").st_rdev == os.makedev(1, 3)
    with pytest.raises(ValueError):
        fs.mknod("/none", stat.S_IFDIR)
    fs.setxattr("/file", "user.note", b"value")
    with pytest.raises(FileExistsError):
        fs.setxattr("/file", "user.note", b"other", os.XATTR_CREATE)
    assert (fs.listxattr("/file"), fs.getxattr("/file", "user.note")) == (["user.note"], b"value")
    fs.removexattr("/file", "user.note")
    with pytest.raises(OSError) as raised:
        fs.getxattr("/file", "user.note")
    assert raised.value.errno == errno.ENODATA
    fs.truncate("/file", 2)
    assert fs.copyfile("/file", "/copy") == 2
    assert fs.read_text("/copy") == "te"
    space = fs.statvfs()
    assert space.f_bavail <= space.f_bfree < space.f_blocks
    assert space.f_namemax == 255


def test_walk_is_that_of_os(fs, tmp_path):
    for name in ("a/b/c", "a/d", "e"):
        fs.makedirs(f"/top/{name}")
        (tmp_path / "top" / name).mkdir(parents=True)
    for name in ("one", "a/two", "a/b/three"):
        fs.write_text(f"/top/{name}", name)
        (tmp_path / "top" / name).write_text(name)
    fs.symlink("a", "/top/link")
    (tmp_path / "top" / "link").symlink_to("a")

    def listed(walked, prefix):
        return {
            (os.fspath(at).removeprefix(prefix), tuple(sorted(dirs)), tuple(sorted(files)))
            for at, dirs, files in walked
        }

    for options in ({}, {"topdown": False}, {"followlinks": True}):
        ours = listed(fs.walk("/top", **options), "")
        theirs = listed(os.walk(tmp_path / "top", **options), os.fspath(tmp_path))
        assert ours == theirs
    order = [at for at, _, _ in fs.walk("/top", topdown=False)]
    assert order.index("/top/a/b/c") < order.index("/top/a/b") < order.index("/top/a")
    failed = []
    assert list(fs.walk("/missing", onerror=failed.append)) == []
    assert isinstance(failed[0], FileNotFoundError)


def test_errors_are_those_of_os(fs):
    with pytest.raises(FileNotFoundError) as raised:
        fs.stat("/missing")
    error = raised.value
    assert (error.errno, error.filename, error.strerror) == (errno.ENOENT, "/missing", "not found")
    with pytest.raises(NotADirectoryError):
        fs.write_text("/file", "text")
        fs.stat("/file/below")
    with pytest.raises(IsADirectoryError):
        fs.open("/lost+found", "rb")


def test_a_volume_for_reading_is_not_changed(image):
    before = image.read_bytes()
    with extant_ext4.open(image) as fs:
        for call in (
            lambda: fs.mkdir("/new"),
            lambda: fs.open("/new", "w"),
            lambda: fs.chmod("/lost+found", 0o777),
        ):
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno == errno.EROFS
    assert image.read_bytes() == before
    with pytest.raises(ValueError, match="mode"):
        extant_ext4.open(image, "w")


def test_a_closed_volume_is_refused_and_its_files_go_on(image):
    fs = extant_ext4.open(image, "r+")
    file = fs.open("/file", "w+b", 0)
    file.write(b"before ")
    fs.close()
    fs.close()
    assert fs.closed
    with pytest.raises(ValueError, match="closed"):
        fs.listdir("/")
    file.write(b"after")
    file.close()
    with extant_ext4.open(image) as fs:
        assert fs.read_bytes("/file") == b"before after"
    assert extant_ext4.check(image).verdict == "clean"


def test_a_volume_that_is_forgotten_is_closed(image):
    fs = extant_ext4.open(image, "r+")
    with pytest.raises(OSError) as raised:
        extant_ext4.open(image, "r+")
    assert raised.value.errno == errno.EBUSY
    fs.write_text("/file", "text")
    del fs
    with extant_ext4.open(image, "r+") as fs:
        assert fs.read_text("/file") == "text"


def test_threads_work_on_one_volume_at_once(fs):
    failed = []

    def work(number):
        try:
            fs.mkdir(f"/{number}")
            for at in range(40):
                content = bytes([number]) * (1000 * at)
                fs.write_bytes(f"/{number}/{at}", content)
                assert fs.read_bytes(f"/{number}/{at}") == content
                if at % 3 == 0:
                    fs.unlink(f"/{number}/{at}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert all(len(fs.listdir(f"/{number}")) == 26 for number in range(8))


def test_other_threads_run_while_a_call_of_the_library_waits(image):
    """The device's read waits until another thread of Python has run."""
    ran = threading.Event()

    class Slow(io.FileIO):
        def read(self, size=-1):
            assert ran.wait(60)
            return super().read(size)

    def run():
        ran.set()

    thread = threading.Timer(0.2, run)
    thread.start()
    with Slow(image, "rb") as device, extant_ext4.open(device) as fs:
        assert fs.listdir() == ["lost+found"]
    thread.join()

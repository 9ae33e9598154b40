"""File systems with the calls of `os`, and their files with those of `io`."""

from __future__ import annotations

import io
import os
import stat as stat_module
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Union

from . import _native

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

StrPath = Union[str, "os.PathLike[str]"]
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
#: A path or device URL, or a seekable binary file object that holds an image.
Image = Union[Path, IO[bytes]]

#: Bytes that a buffered file reads at once.
BUFFER_SIZE = 64 << 10


def _is_path(image: object) -> bool:
    return isinstance(image, (str, bytes, os.PathLike))


def open(image: Image, mode: Literal["r", "r+"] = "r") -> FileSystem:
    """Opens the volume of an image: ``"r"`` for reading, ``"r+"`` for changes too.

    For reading the image is never written: a journal that waits is replayed in memory. For
    changes the image is locked. With a file object the volume is read, and for changes written,
    through its `seek`, `read`, `write` and `flush`; the object must stay open, and is not closed.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"invalid mode {mode!r} (expected 'r' or 'r+')")
    write = mode == "r+"
    if _is_path(image):
        native = _native.FileSystem.open(os.fsencode(image), write)  # type: ignore[arg-type]
    else:
        native = _native.FileSystem.open_object(image, write)
    return FileSystem(native, mode)


class FileSystem:
    """A volume. Paths begin at its root, with or without a slash.

    Threads may use it at once. Changes are on the device after `sync`, after `os.fsync`-like
    `File.fsync`, and after `close`; after a power cut each call has happened as a whole or not at
    all. Permissions are not checked, and new files belong to root.
    """

    def __init__(self, native: _native.FileSystem, mode: str) -> None:
        self._native = native
        self.mode = mode
        # A volume that the program forgets is closed with it, or when the interpreter ends.
        self._finalizer = weakref.finalize(self, native.close)

    def close(self) -> None:
        """Writes all changes and ends the use of the volume. Open files keep it open until the
        last of them is closed."""
        self._finalizer.detach()
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def sync(self) -> None:
        """Puts all changes on the device."""
        self._native.sync()

    def statvfs(self) -> os.statvfs_result:
        """Space and inodes, used and free."""
        size, blocks, free, available, inodes, free_inodes = self._native.statvfs()
        flags = 0 if self.mode == "r+" else os.ST_RDONLY
        return os.statvfs_result(
            (size, size, blocks, free, available, inodes, free_inodes, free_inodes, flags, 255)
        )

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o666,
    ) -> IO[Any]:
        """Opens a regular file, as the built-in `open`; `permissions` are those of a new one."""
        kinds = set(mode) & set("rwxa")
        if len(kinds) != 1 or len(set(mode)) != len(mode) or set(mode) - set("rwxabt+"):
            raise ValueError(f"invalid mode: {mode!r}")
        binary, text = "b" in mode, "t" in mode
        if binary and text:
            raise ValueError("can't have text and binary mode at once")
        if binary and (encoding is not None or errors is not None or newline is not None):
            raise ValueError("binary mode doesn't take encoding, errors or newline")
        if buffering == 0 and not binary:
            raise ValueError("can't have unbuffered text I/O")
        kind, update = kinds.pop(), "+" in mode
        reads, writes = kind == "r" or update, kind != "r" or update
        native = self._native.open_file(
            os.fsencode(path),
            reads,
            writes and kind != "a",
            kind == "a",
            kind == "w",
            kind in "wa",
            kind == "x",
            permissions,
        )
        raw = File(native, path, mode.replace("t", "").replace("b", "") + "b", reads, writes)
        if kind == "a":
            raw.seek(0, os.SEEK_END)
        if buffering == 0:
            return raw  # type: ignore[return-value]
        size = BUFFER_SIZE if buffering < 2 else buffering
        buffer: IO[bytes]
        if reads and writes:
            buffer = io.BufferedRandom(raw, size)
        elif writes:
            buffer = io.BufferedWriter(raw, size)
        else:
            buffer = io.BufferedReader(raw, size)
        if binary:
            return buffer
        return io.TextIOWrapper(
            buffer, encoding, errors, newline, line_buffering=buffering == 1
        )

    def read_bytes(self, path: Path) -> bytes:
        """The whole contents of a file, by one call of the library."""
        return self._native.read(os.fsencode(path))

    def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole contents of a file that holds text."""
        return self.read_bytes(path).decode(encoding, errors)

    def write_bytes(self, path: Path, data: Buffer) -> int:
        """Makes a file of these bytes, or replaces what it holds."""
        with self.open(path, "wb", 0) as file:
            rest = memoryview(data).cast("B")
            while rest:
                rest = rest[file.write(rest) :]
        return memoryview(data).nbytes

    def write_text(self, path: Path, text: str, encoding: str = "utf-8") -> int:
        """The same with text."""
        self.write_bytes(path, text.encode(encoding))
        return len(text)

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        """The attributes of a file."""
        return _stat_result(self._native.stat(os.fsencode(path), follow_symlinks))

    def lstat(self, path: Path) -> os.stat_result:
        """The attributes of a file; a symbolic link's own."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: Path) -> bool:
        """Whether a path leads to a file."""
        return self._mode(path) is not None

    def isdir(self, path: Path) -> bool:
        """Whether a path leads to a directory."""
        return stat_module.S_ISDIR(self._mode(path) or 0)

    def isfile(self, path: Path) -> bool:
        """Whether a path leads to a regular file."""
        return stat_module.S_ISREG(self._mode(path) or 0)

    def islink(self, path: Path) -> bool:
        """Whether a path ends in a symbolic link."""
        try:
            return stat_module.S_ISLNK(self.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _mode(self, path: Path) -> int | None:
        try:
            return self.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None

    def listdir(self, path: Path = "/") -> list[str]:
        """The names in a directory, without ``.`` and ``..``."""
        return [os.fsdecode(name) for name, _, _ in self._native.entries(os.fsencode(path))]

    def scandir(self, path: Path = "/") -> Iterator[DirEntry]:
        """The entries of a directory, with their types."""
        above = os.fsdecode(path)
        for name, inode, letter in self._native.entries(os.fsencode(path)):
            yield DirEntry(self, above, os.fsdecode(name), inode, letter)

    def walk(
        self,
        top: Path = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Directories below `top` with their subdirectories and files, as `os.walk`."""
        waiting: list[str | tuple[str, list[str], list[str]]] = [os.fsdecode(top)]
        while waiting:
            at = waiting.pop()
            if isinstance(at, tuple):
                yield at
                continue
            directories: list[str] = []
            files: list[str] = []
            below: list[str] = []
            try:
                for entry in self.scandir(at):
                    is_directory = entry.is_dir()
                    (directories if is_directory else files).append(entry.name)
                    if is_directory and (followlinks or not entry.is_symlink()):
                        below.append(entry.name)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            if topdown:
                yield at, directories, files
                # The caller may have removed or sorted them.
                links = set(directories) if followlinks else set(below)
                waiting.extend(
                    _joined(at, name) for name in reversed(directories) if name in links
                )
            else:
                waiting.append((at, directories, files))
                waiting.extend(_joined(at, name) for name in reversed(below))

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Makes a directory."""
        self._native.mkdir(os.fsencode(path), mode)

    def makedirs(self, path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Makes a directory and those above it that are missing."""
        name = os.fsencode(path).rstrip(b"/")
        above = os.path.dirname(name)
        if above.strip(b"/") and not self.exists(above):
            try:
                self.makedirs(above, exist_ok=True)
            except FileExistsError:
                pass
        try:
            self.mkdir(name or b"/", mode)
        except OSError:
            if not exist_ok or not self.isdir(path):
                raise

    def unlink(self, path: Path) -> None:
        """Removes a name of a file."""
        self._native.unlink(os.fsencode(path))

    remove = unlink

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        self._native.rmdir(os.fsencode(path))

    def rmtree(self, path: Path) -> None:
        """Removes a directory and all below it."""
        self._native.rmtree(os.fsencode(path))

    def rename(self, src: Path, dst: Path, *, exclusive: bool = False) -> None:
        """Renames a file, and replaces the one of the new name unless `exclusive`."""
        self._native.rename(os.fsencode(src), os.fsencode(dst), exclusive)

    replace = rename

    def link(self, src: Path, dst: Path) -> None:
        """Gives a file another name. A symbolic link is not followed."""
        self._native.link(os.fsencode(src), os.fsencode(dst))

    def symlink(self, src: Path, dst: Path) -> None:
        """Makes the symbolic link `dst` with the target `src`."""
        self._native.symlink(os.fsencode(src), os.fsencode(dst))

    def readlink(self, path: Path) -> str:
        """The target of a symbolic link."""
        return os.fsdecode(self._native.readlink(os.fsencode(path)))

    def mknod(self, path: Path, mode: int, device: int = 0) -> None:
        """Makes a device file, a named pipe or a socket; `device` is as `os.makedev` makes it."""
        self._native.mknod(os.fsencode(path), mode, os.major(device), os.minor(device))

    def chmod(self, path: Path, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets permissions, with setuid, setgid and sticky."""
        name = os.fsencode(path)
        self._native.set_attributes(name, follow_symlinks, mode, None, None, None)

    def chown(self, path: Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Sets owner and group; -1 leaves one as it is."""
        self._native.set_attributes(
            os.fsencode(path),
            follow_symlinks,
            None,
            None if uid == -1 else uid,
            None if gid == -1 else gid,
            None,
        )

    def utime(
        self, path: Path, *, ns: tuple[int, int], follow_symlinks: bool = True
    ) -> None:
        """Sets the times of reading and of change, in nanoseconds since 1970."""
        self._native.set_attributes(os.fsencode(path), follow_symlinks, None, None, None, ns)

    def truncate(self, path: Path, length: int) -> None:
        """Makes a file shorter or longer; new bytes are zeros, and a hole."""
        self._native.truncate(os.fsencode(path), length)

    def copyfile(self, src: Path, dst: Path) -> int:
        """Copies contents and permissions inside the volume; holes stay holes."""
        return self._native.copy(os.fsencode(src), os.fsencode(dst))

    def listxattr(self, path: Path) -> list[str]:
        """The names of a file's extended attributes, of a symbolic link its own."""
        return [os.fsdecode(name) for name in self._native.listxattr(os.fsencode(path))]

    def getxattr(self, path: Path, attribute: str | bytes) -> bytes:
        """The value of an extended attribute."""
        return self._native.getxattr(os.fsencode(path), os.fsencode(attribute))

    def setxattr(
        self, path: Path, attribute: str | bytes, value: bytes, flags: int = 0
    ) -> None:
        """Sets an extended attribute; `flags` are those of `os.setxattr`."""
        self._native.setxattr(os.fsencode(path), os.fsencode(attribute), value, flags)

    def removexattr(self, path: Path, attribute: str | bytes) -> None:
        """Removes an extended attribute."""
        self._native.removexattr(os.fsencode(path), os.fsencode(attribute))


def _joined(above: str, name: str) -> str:
    return name if not above else above.rstrip("/") + "/" + name


def _stat_result(fields: tuple[int, ...]) -> os.stat_result:
    mode, inode, links, uid, gid, size, atime, mtime, ctime, blocks, major, minor = fields
    second = 1_000_000_000
    named = {
        "st_atime": atime / second,
        "st_mtime": mtime / second,
        "st_ctime": ctime / second,
        "st_atime_ns": atime,
        "st_mtime_ns": mtime,
        "st_ctime_ns": ctime,
        "st_blocks": blocks,
        "st_blksize": 4096,
        "st_rdev": os.makedev(major, minor),
    }
    whole = (atime // second, mtime // second, ctime // second)
    return os.stat_result((mode, inode, 0, links, uid, gid, size, *whole), named)


class DirEntry:
    """An entry of a directory, as `os.DirEntry`."""

    __slots__ = ("_fs", "_inode", "_letter", "name", "path")

    def __init__(self, fs: FileSystem, above: str, name: str, inode: int, letter: str) -> None:
        self._fs = fs
        self._inode = inode
        self._letter = letter
        self.name = name
        self.path = _joined(above, name)

    def inode(self) -> int:
        """Number of the inode."""
        return self._inode

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._letter == "l"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory, or a link that leads to one."""
        if self._letter == "l" and follow_symlinks:
            return self._fs.isdir(self.path)
        return self._letter == "d"

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file, or a link that leads to one."""
        if self._letter == "l" and follow_symlinks:
            return self._fs.isfile(self.path)
        return self._letter == "f"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """The attributes."""
        return self._fs.stat(self.path, follow_symlinks=follow_symlinks)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class File(io.RawIOBase):
    """An open file of a volume, without a buffer."""

    def __init__(
        self, native: _native.File, name: Path, mode: str, reads: bool, writes: bool
    ) -> None:
        super().__init__()
        self._native = native
        self._reads = reads
        self._writes = writes
        self.name = name
        self.mode = mode

    def readable(self) -> bool:
        self._check()
        return self._reads

    def writable(self) -> bool:
        self._check()
        return self._writes

    def seekable(self) -> bool:
        self._check()
        return True

    def _check(self, what: str | None = None, may: bool = True) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not may:
            raise io.UnsupportedOperation(what)

    def readinto(self, buffer: Buffer) -> int:
        self._check("not readable", self._reads)
        view = memoryview(buffer).cast("B")
        data = self._native.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """All bytes from the position on."""
        self._check("not readable", self._reads)
        return self._native.readall()

    def pread(self, size: int, offset: int) -> bytes:
        """At most `size` bytes at `offset`; the position stays."""
        self._check("not readable", self._reads)
        return self._native.pread(size, offset)

    def write(self, data: Buffer) -> int:
        self._check("not writable", self._writes)
        if not isinstance(data, bytes):
            data = memoryview(data).cast("B")
        return self._native.write(data)

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes bytes at `offset`; the position stays."""
        self._check("not writable", self._writes)
        if not isinstance(data, bytes):
            data = memoryview(data).cast("B")
        return self._native.pwrite(data, offset)

    def writelines(self, lines: Iterable[Buffer]) -> None:
        for line in lines:
            rest = memoryview(line).cast("B")
            while rest:
                rest = rest[self.write(rest) :]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        return self.seek(0, os.SEEK_CUR)

    def truncate(self, size: int | None = None) -> int:
        self._check("not writable", self._writes)
        size = self.tell() if size is None else size
        self._native.truncate(size)
        return size

    def fsync(self, *, data_only: bool = False) -> None:
        """Waits until contents and metadata are on the device, or contents alone."""
        self._check()
        self._native.fsync(data_only)

    def stat(self) -> os.stat_result:
        """The attributes of the file."""
        self._check()
        return _stat_result(self._native.stat())

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._native.close()

    def __repr__(self) -> str:
        return f"<extant_ext4.File name={self.name!r} mode={self.mode!r}>"

"""Deleted files, versions of inodes, the times of all files, and damaged volumes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from . import _native
from ._files import FileSystem, Image, Path, _is_path
from ._images import Finding

if TYPE_CHECKING:
    from typing_extensions import Self


def _operand(image: Image) -> object:
    return os.fsencode(image) if _is_path(image) else image  # type: ignore[arg-type]


def _text(name: bytes | None) -> str | None:
    return None if name is None else os.fsdecode(name)


@dataclass(frozen=True)
class Attributes:
    """The attributes of an inode."""

    #: Type and permissions, as `stat` has them.
    mode: int
    uid: int
    gid: int
    size: int
    links: int
    #: Tells the files apart that had one inode after the other.
    generation: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int


def _attributes(fields: _native._Attributes | None) -> Attributes | None:
    return None if fields is None else Attributes(*fields)


@dataclass(frozen=True)
class DeletedFile:
    """A file that was deleted."""

    #: Its path from the root; None where no name is known.
    path: str | None
    #: Its inode, which another file may have now.
    inode: int
    #: ``whole``, ``partly``, ``inode only`` or ``name only``.
    state: str
    #: Whether the journal holds every commit since the deletion.
    certain: bool
    #: Ranges of bytes in blocks that were used again: start and end.
    lost: tuple[tuple[int, int], ...]
    #: The time of the deletion in seconds since 1970, where it is known.
    deleted: int | None
    #: Its attributes before it was deleted; None where only its name is known.
    attributes: Attributes | None
    _files: _native.DeletedFiles = field(repr=False, compare=False)
    _index: int = field(repr=False, compare=False)

    def pread(self, size: int, offset: int) -> bytes:
        """At most `size` bytes at `offset`. Lost bytes are zeros."""
        return self._files.pread(self._index, size, offset)

    def read_bytes(self) -> bytes:
        """The contents. Lost bytes are zeros; contents of which nothing is known are an
        `OSError`."""
        pieces = []
        offset = 0
        while piece := self.pread(1 << 24, offset):
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def readlink(self) -> str:
        """The target of a symbolic link."""
        return os.fsdecode(self._files.readlink(self._index))


def deleted(image: Image) -> tuple[DeletedFile, ...]:
    """The deleted files of a volume, by their paths; those without one are at the end.

    The journal's old copies of directories and inodes tell what was deleted lately. The image is
    only read, and must not change while the files are used.
    """
    files = _native.DeletedFiles.find(_operand(image))
    return tuple(
        DeletedFile(
            _text(path), inode, state, certain, tuple(lost), time, _attributes(fields), files, index
        )
        for index, (path, inode, state, certain, lost, time, fields) in enumerate(files.files())
    )


@dataclass(frozen=True)
class InodeVersion:
    """An inode as it was from a commit of the journal on."""

    inode: int
    #: The first transaction in which it was so; None for the inode in place, where no copy in the
    #: journal is the same.
    transaction: int | None
    #: The time of that commit in seconds since 1970, where it is stored.
    committed: int | None
    #: Whether it is the inode in place.
    present: bool
    attributes: Attributes


def history(image: Image, path: Path) -> tuple[InodeVersion, ...]:
    """The versions of the inode of a path that the journal holds, the oldest first."""
    inode, versions = _native.history(_operand(image), os.fsencode(path))
    return tuple(
        InodeVersion(inode, transaction, committed, present, Attributes(*fields))
        for transaction, committed, present, fields in versions
    )


@dataclass(frozen=True)
class TimelineEntry:
    """A name of a file, with its attributes."""

    #: The path from the root; None for a deleted file whose name is not known.
    path: str | None
    inode: int
    #: None where only the name of a deleted file is known.
    attributes: Attributes | None
    #: The target of a symbolic link.
    target: str | None
    deleted: bool


def timeline(image: Image) -> tuple[TimelineEntry, ...]:
    """All names of a volume in the order of its directories, then the deleted files."""
    return tuple(
        TimelineEntry(_text(path), inode, _attributes(fields), _text(target), is_deleted)
        for path, inode, fields, target, is_deleted in _native.timeline(_operand(image))
    )


@dataclass(frozen=True)
class DamagedFile:
    """A file, or a directory, that may not be whole."""

    path: str
    inode: int
    #: The type, as `stat.S_IFMT` of a mode.
    type: int
    size: int
    #: Ranges of bytes that read as zeros and are not known: start and end.
    missing: tuple[tuple[int, int], ...]
    #: The rules' names of the damage that was found in it.
    codes: tuple[str, ...]


@dataclass(frozen=True)
class LostName:
    """A name that the check removed because its file is not there."""

    #: The path of its directory; None where that is not in the tree.
    directory: str | None
    name: str
    inode: int | None


@dataclass(frozen=True)
class SalvageReport:
    """What a damaged volume, or some of its files, lack."""

    #: Whether something may be missing.
    partly: bool
    #: Ranges of the device that could not be read so far: start and end.
    unreadable: tuple[tuple[int, int], ...]
    #: The rules' names of the damage for which the journal was not replayed whole: any file may
    #: have older contents.
    journal: tuple[str, ...]
    files: tuple[DamagedFile, ...]
    lost: tuple[LostName, ...]
    findings: tuple[Finding, ...]


class Salvage:
    """A damaged volume, repaired in memory."""

    def __init__(self, native: _native.Salvage) -> None:
        self._native = native
        #: The repaired volume. It is read-only.
        self.fs = FileSystem(native.file_system(), "r")

    def report(self, *paths: Path) -> SalvageReport:
        """What the files of these paths and the trees below them lack; without any, all of the
        volume. Contents are read when they are used: a report that is made afterwards knows more
        of the sectors that cannot be read."""
        partly, unreadable, journal, files, lost, findings = self._native.report(
            [os.fsencode(path) for path in paths]
        )
        return SalvageReport(
            partly,
            tuple(unreadable),
            tuple(journal),
            tuple(
                DamagedFile(os.fsdecode(path), inode, kind, size, tuple(missing), tuple(codes))
                for path, inode, kind, size, missing, codes in files
            ),
            tuple(LostName(_text(dir), os.fsdecode(name), inode) for dir, name, inode in lost),
            tuple(Finding(*row, *place, *facts) for row, place, facts in findings),
        )

    def close(self) -> None:
        """Ends the use of the volume."""
        self.fs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def salvage(image: Image, *, map: Path | None = None, threads: int = 0) -> Salvage:
    """Opens a damaged volume as its repair would leave it.

    The repair is made in memory, and the image is never written. Sectors that cannot be read are
    zeros; `map` is the map file of a copy by GNU ddrescue, whose unread areas are zeros too.
    """
    text = None
    if map is not None:
        with open(map) as file:
            text = file.read()
    return Salvage(_native.Salvage.open(_operand(image), text, threads))

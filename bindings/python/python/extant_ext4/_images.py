"""Whole images: made, built, checked, resized."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from . import _native
from ._files import Image, Path, _is_path


def _options(
    fs_type: str | None,
    block_size: int | None,
    label: str | None,
    uuid: str | None,
    features: Iterable[str],
    options: Iterable[str],
) -> list[bytes]:
    words: list[str] = []
    if fs_type is not None:
        words += ["-t", fs_type]
    if block_size is not None:
        words += ["-b", str(block_size)]
    if label is not None:
        words += ["-L", label]
    if uuid is not None:
        words += ["-U", uuid]
    if names := ",".join(features):
        words += ["-O", names]
    return [os.fsencode(word) for word in [*words, *options]]


def mkfs(
    image: Image,
    size: int | None = None,
    *,
    fs_type: Literal["ext2", "ext3", "ext4"] = "ext4",
    block_size: int | None = None,
    label: str | None = None,
    uuid: str | None = None,
    features: Iterable[str] = (),
    options: Iterable[str] = (),
) -> None:
    """Makes a file system: in a new file of `size` bytes, or without `size` on what is there.

    A new file gets its name when it is whole. `features` are switched on, or off with ``^`` in
    front of a name; `options` are further words of mke2fs's command line.
    """
    if size is not None and not _is_path(image):
        raise ValueError("a file object has a size of its own")
    name = os.fsencode(image) if _is_path(image) else image  # type: ignore[arg-type]
    words = _options(fs_type, block_size, label, uuid, features, options)
    _native.mkfs(name, size, words)


@dataclass(frozen=True)
class Finding:
    """Something that a check found."""

    #: The rule's name, which is stable.
    code: str
    #: The pass that found it; 0 is the work before pass 1.
    pass_number: int
    #: ``note``, ``safe`` (the repair loses nothing), ``damage`` or ``fatal``.
    severity: str
    #: One sentence.
    text: str
    #: The repair that was proposed; empty where there is nothing to do.
    repair: str
    #: Whether it was repaired.
    repaired: bool
    #: Whether the exit code reports it.
    counts: bool
    inode: int | None = None
    directory: int | None = None
    block: int | None = None
    file_block: int | None = None
    group: int | None = None
    name: bytes | None = None
    found: int | None = None
    expected: int | None = None


@dataclass(frozen=True)
class Report:
    """The outcome of a check."""

    #: ``clean``, ``repaired``, ``needs_journal``, ``damaged`` or ``unreadable``.
    verdict: str
    #: e2fsck's exit code.
    exit_code: int
    #: Whether anything was repaired.
    modified: bool
    #: Whether errors are left.
    errors_left: bool
    findings: tuple[Finding, ...]
    #: Why the check did not come to its end.
    error: str | None = None


def check(
    image: Image,
    *,
    repair: Literal["no", "preen", "yes"] = "no",
    force: bool = True,
    threads: int = 0,
) -> Report:
    """Checks a volume as e2fsck does, and repairs nothing, what is safe, or all.

    Without `force` a volume that says that it is clean is believed. `threads` is the number of
    threads, 0 for one a processor. What is wrong with the volume is in the report; an image that
    cannot be opened is an `OSError`.
    """
    name = os.fsencode(image) if _is_path(image) else image  # type: ignore[arg-type]
    verdict, code, modified, left, findings, error = _native.check(name, repair, force, threads)
    found = tuple(Finding(*row, *place, *facts) for row, place, facts in findings)
    return Report(verdict, code, modified, left, found, error)


@dataclass(frozen=True)
class BuildReport:
    """An image that was built."""

    #: Bytes of the volume.
    size: int
    block_size: int
    blocks: int
    free_blocks: int
    inodes: int
    free_inodes: int
    #: Number of files that are not directories.
    files: int
    directories: int
    #: Bytes of regular files.
    content_bytes: int
    uuid: str
    features: tuple[str, ...]
    warnings: tuple[str, ...]


def build(
    output: Path,
    sources: Iterable[Path] | Path = (),
    *,
    size: int | str | None = None,
    owner: tuple[int, int] | None = None,
    exclude: Iterable[str] = (),
    source_date_epoch: int | None = None,
    threads: int | None = None,
    fs_type: Literal["ext2", "ext3", "ext4"] = "ext4",
    block_size: int | None = None,
    label: str | None = None,
    uuid: str | None = None,
    features: Iterable[str] = (),
    options: Iterable[str] = (),
) -> BuildReport:
    """Builds an image from directories, tar archives and OCI layouts, laid over each other.

    The same sources and settings give the same bytes. `size` is a number of bytes, or as
    ``extant build --size`` takes it (``auto+10%``); without it the image is as small as the
    sources admit. The file gets its name when it is whole.
    """
    given = [sources] if isinstance(sources, (str, bytes, os.PathLike)) else list(sources)
    numbers, counts, found_uuid, found_features, warnings = _native.build(
        os.fsencode(output),
        [os.fsencode(source) for source in given],
        None if size is None else str(size),
        owner,
        [os.fsencode(pattern) for pattern in exclude],
        source_date_epoch,
        threads,
        _options(fs_type, block_size, label, uuid, features, options),
    )
    return BuildReport(*numbers, *counts, found_uuid, tuple(found_features), tuple(warnings))


def resize(image: Image, size: int | None = None, *, force: bool = False) -> int:
    """Gives a volume another size in bytes, as resize2fs does; without `size` that of its device.

    The size that it has then is returned: whole blocks, without a last block group that would be
    too small. The image keeps its length: make a file longer (`os.truncate`) before its volume
    grows, and shorter afterwards. A volume that should be checked first is refused unless `force`.
    """
    return _native.resize(_operand(image), size, force)


def minimum_size(image: Image) -> int:
    """The smallest size in bytes that a volume can have. Nothing is written."""
    return _native.minimum_size(_operand(image))


def _operand(image: Image) -> object:
    return os.fsencode(image) if _is_path(image) else image  # type: ignore[arg-type]

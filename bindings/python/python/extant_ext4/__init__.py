"""ext4 in user space: read, change, build and check images without mounting them.

`open` gives a `FileSystem` with the calls of `os`; its files are those of `io`. `mkfs`, `build`,
`check` and `resize` work on whole images; `salvage` opens damaged ones, and `deleted`, `history` and
`timeline` tell what was there before. An image is a path, a device URL of extant (``disk.img#p2``,
``crypt:disk.img?key-file=KEY``) or a seekable binary file object. Errors are `OSError` and its
subclasses, with ``errno`` and ``filename``.
"""

from ._files import DirEntry, File, FileSystem, open
from ._images import (
    BuildReport,
    Finding,
    Report,
    build,
    check,
    minimum_size,
    mkfs,
    resize,
)
from ._native import __version__
from ._rescue import (
    Attributes,
    DamagedFile,
    DeletedFile,
    InodeVersion,
    LostName,
    Salvage,
    SalvageReport,
    TimelineEntry,
    deleted,
    history,
    salvage,
    timeline,
)

__all__ = [
    "Attributes",
    "BuildReport",
    "DamagedFile",
    "DeletedFile",
    "DirEntry",
    "File",
    "FileSystem",
    "Finding",
    "InodeVersion",
    "LostName",
    "Report",
    "Salvage",
    "SalvageReport",
    "TimelineEntry",
    "__version__",
    "build",
    "check",
    "deleted",
    "history",
    "minimum_size",
    "mkfs",
    "open",
    "resize",
    "salvage",
    "timeline",
]

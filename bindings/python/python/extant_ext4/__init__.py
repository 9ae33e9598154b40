"""ext4 in user space: read, change, build and check images without mounting them.

`open` gives a `FileSystem` with the calls of `os`; its files are those of `io`. `mkfs`, `build`
and `check` work on whole images. An image is a path, a device URL of extant (``disk.img#p2``,
``crypt:disk.img?key-file=KEY``) or a seekable binary file object. Errors are `OSError` and its
subclasses, with ``errno`` and ``filename``.
"""

from ._files import DirEntry, File, FileSystem, open
from ._images import BuildReport, Finding, Report, build, check, mkfs
from ._native import __version__

__all__ = [
    "BuildReport",
    "DirEntry",
    "File",
    "FileSystem",
    "Finding",
    "Report",
    "__version__",
    "build",
    "check",
    "mkfs",
    "open",
]

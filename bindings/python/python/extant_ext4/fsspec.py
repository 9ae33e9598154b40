"""The file system ``ext4://`` of fsspec, for files inside images that lie anywhere.

``ext4://etc/hosts::file://disk.img`` is a file in a local image, and
``ext4://data.parquet::s3://bucket/disk.img`` one in an image that fsspec reads.
"""

from __future__ import annotations

import os
import stat as stat_module
from datetime import datetime, timezone
from typing import Any, ClassVar

import fsspec  # type: ignore[import-untyped]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.utils import stringify_path  # type: ignore[import-untyped]

from . import _files

_TYPES = {stat_module.S_IFDIR: "directory", stat_module.S_IFREG: "file", stat_module.S_IFLNK: "link"}


class Ext4FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A volume in an image.

    Parameters
    ----------
    fo:
        The image: a path, device URL or URL of fsspec, or a seekable binary file object.
    mode:
        ``"r"`` for reading, ``"r+"`` for changes too: the image must be writable then.
    target_protocol, target_options:
        The protocol of `fo` and its options, as a chained URL sets them.
    """

    protocol: ClassVar[str] = "ext4"
    root_marker = "/"
    # The image may change between two uses of a name, and for changes it is locked.
    cachable = False

    def __init__(
        self,
        fo: Any = "",
        mode: str = "r",
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in ("r", "r+"):
            raise ValueError(f"invalid mode {mode!r} (expected 'r' or 'r+')")
        self.mode = mode
        self.fo = fo
        self._device: Any = None
        if isinstance(fo, (str, os.PathLike)):
            name = os.fspath(fo)
            local = target_protocol in (None, "file", "local") and not target_options
            if local and (target_protocol is not None or "://" not in name):
                # The library opens files of the machine itself: without the interpreter's lock.
                self.volume = _files.open(name, mode)  # type: ignore[arg-type]
                return
            opened = fsspec.open(
                name, mode + "b", protocol=target_protocol, **(target_options or {})
            )
            self._device = opened.open()
        else:
            self._device = fo.open() if isinstance(fo, fsspec.core.OpenFile) else fo
        self._closes_device = self._device is not fo
        try:
            self.volume = _files.open(self._device, mode)  # type: ignore[arg-type]
        except BaseException:
            if self._closes_device:
                self._device.close()
            raise

    def close(self) -> None:
        """Writes all changes and ends the use of the image."""
        self.volume.close()
        if self._device is not None and self._closes_device:
            self._device.close()

    def __enter__(self) -> Ext4FileSystem:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    @property
    def fsid(self) -> str:
        raise NotImplementedError

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for prefix in ("ext4://", "ext4:"):
            path = path.removeprefix(prefix)
        path = path.split("::", 1)[0].strip("/")
        return "/" + path

    def _info(self, name: str, found: os.stat_result) -> dict[str, Any]:
        kind = _TYPES.get(stat_module.S_IFMT(found.st_mode), "other")
        return {
            "name": name,
            "size": found.st_size if kind == "file" else 0,
            "type": kind,
            "created": found.st_ctime,
            "mtime": found.st_mtime,
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "islink": False,
        }

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        try:
            own = self.volume.lstat(path)
        except NotADirectoryError as error:
            raise FileNotFoundError(error.errno, error.strerror, path) from error
        if not stat_module.S_ISLNK(own.st_mode):
            return self._info(path, own)
        # As with local files: a link has the type and size of the file that it leads to.
        try:
            info = self._info(path, self.volume.stat(path))
        except OSError:
            info = self._info(path, own)
        return {**info, "islink": True, "destination": self.volume.readlink(path)}

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        info = self.info(path)
        if info["type"] != "directory":
            return [info] if detail else [path]
        above = path.rstrip("/")
        names = [f"{above}/{name}" for name in self.volume.listdir(path)]
        return [self.info(name) for name in names] if detail else names

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.volume.exists(self._strip_protocol(path))

    def isdir(self, path: str) -> bool:
        return self.volume.isdir(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        return self.volume.isfile(self._strip_protocol(path))

    def created(self, path: str) -> datetime:
        return self._time(self.volume.stat(self._strip_protocol(path)).st_ctime)

    def modified(self, path: str) -> datetime:
        return self._time(self.volume.stat(self._strip_protocol(path)).st_mtime)

    @staticmethod
    def _time(seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, tz=timezone.utc)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if not autocommit:
            raise NotImplementedError("a file is written in place: transactions are not supported")
        return self.volume.open(path, mode)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.volume.read_bytes(path)
        with self.volume.open(path, "rb") as file:
            # Negative limits count from the end, as those of slices.
            first, last, _ = slice(start, end).indices(file.seek(0, os.SEEK_END))
            file.seek(first)
            data: bytes = file.read(max(0, last - first))
        return data

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if self.volume.exists(path):
            raise FileExistsError(path)
        if create_parents:
            self.volume.makedirs(path, exist_ok=True)
        else:
            self.volume.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.volume.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.volume.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.volume.unlink(self._strip_protocol(path))

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            if stat_module.S_ISDIR(self.volume.lstat(one).st_mode):
                if not recursive:
                    raise IsADirectoryError(one)
                self.volume.rmtree(one)
            else:
                self.volume.unlink(one)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        self._make_parent(path2)
        if self.volume.isdir(path1):
            self.volume.makedirs(path2, exist_ok=True)
        else:
            self.volume.copyfile(path1, path2)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.volume.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def put_file(self, lpath: Any, rpath: str, **kwargs: Any) -> None:
        self._make_parent(self._strip_protocol(rpath))
        super().put_file(lpath, rpath, **kwargs)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self._make_parent(self._strip_protocol(path))
        super().pipe_file(path, value, mode=mode, **kwargs)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        self._make_parent(path)
        with self.volume.open(path, "wb" if truncate else "ab"):
            pass

    def _make_parent(self, path: str) -> None:
        above = path.rsplit("/", 1)[0]
        if above:
            self.volume.makedirs(above, exist_ok=True)

    def sync(self) -> None:
        """Puts all changes on the image."""
        self.volume.sync()

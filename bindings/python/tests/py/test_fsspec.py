"""The file system ext4:// by fsspec's own tests, and by chained URLs."""

import os
import threading

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

import extant_ext4
from extant_ext4.fsspec import Ext4FileSystem


class Ext4Fixtures(AbstractFixtures):
    @pytest.fixture(scope="class")
    @classmethod
    def volume(cls, tmp_path_factory):
        image = tmp_path_factory.mktemp("fsspec") / "disk.img"
        extant_ext4.mkfs(image, 64 << 20)
        with Ext4FileSystem(image, mode="r+") as fs:
            yield fs
        assert extant_ext4.check(image).verdict == "clean"

    @pytest.fixture
    def fs(self, volume):
        return volume

    @pytest.fixture
    def fs_path(self, volume):
        volume.mkdir("/test")
        yield "/test"
        volume.rm("/test", recursive=True)


class TestCopy(Ext4Fixtures, AbstractCopyTests):
    pass


class TestGet(Ext4Fixtures, AbstractGetTests):
    pass


class TestPut(Ext4Fixtures, AbstractPutTests):
    pass


class TestOpen(Ext4Fixtures, AbstractOpenTests):
    pass


class TestPipe(Ext4Fixtures, AbstractPipeTests):
    pass


@pytest.fixture
def filled(image):
    with extant_ext4.open(image, "r+") as fs:
        fs.makedirs("/etc/network")
        fs.write_text("/etc/hosts", "127.0.0.1 localhost\n")
        fs.write_bytes("/etc/network/big", bytes(range(256)) * 4096)
        fs.symlink("hosts", "/etc/link")
    return image


def test_the_protocol_is_known_by_its_entry_point():
    assert fsspec.get_filesystem_class("ext4") is Ext4FileSystem


@pytest.mark.parametrize("scheme", ["file", "memory", "simplecache::memory"])
def test_a_chained_url_leads_into_an_image(filled, scheme):
    where = os.fspath(filled)
    if "memory" in scheme:
        fsspec.filesystem("memory").pipe("/disk.img", filled.read_bytes())
        where = "/disk.img"
    url = f"{scheme}://{where}"
    with fsspec.open(f"ext4://etc/hosts::{url}", "rt") as file:
        assert file.read() == "127.0.0.1 localhost\n"
    fs, path = fsspec.core.url_to_fs(f"ext4://etc::{url}")
    assert sorted(fs.ls(path)) == ["/etc/hosts", "/etc/link", "/etc/network"]
    assert fs.info("/etc/link")["size"] == 20
    assert fs.cat_file("/etc/network/big", 255, 258) == b"\xff\x00\x01"
    assert fs.cat_file("/etc/network/big", -2) == b"\xfe\xff"
    assert fs.find("/") == ["/etc/hosts", "/etc/link", "/etc/network/big"]
    assert fs.glob("/etc/*o*") == ["/etc/hosts", "/etc/network"]
    assert fs.du("/etc/network") == 1 << 20
    assert fs.created("/etc/hosts") >= fs.modified("/etc/hosts")
    with pytest.raises(OSError):
        fs.touch("/new")
    fs.close()


def test_what_is_written_through_fsspec_is_in_the_image_of_another_file_system(filled):
    memory = fsspec.filesystem("memory")
    memory.pipe("/writable.img", filled.read_bytes())
    fs = fsspec.filesystem("ext4", fo="memory://writable.img", mode="r+")
    fs.pipe("/etc/new/file", b"written")
    fs.mv("/etc/hosts", "/etc/hosts.old")
    fs.close()
    assert fsspec.open("ext4://etc/new/file::memory://writable.img").open().read() == b"written"
    filled.write_bytes(memory.cat("/writable.img"))
    assert extant_ext4.check(filled).verdict == "clean"


def test_a_mode_in_a_chained_url_is_an_option_of_its_protocol(filled):
    url = f"ext4://etc/added::file://{filled}"
    with fsspec.open(url, "wb", ext4={"mode": "r+"}) as file:
        file.write(b"added")
    with fsspec.open(url) as file:
        assert file.read() == b"added"


def test_links_and_special_files_have_types(filled):
    with Ext4FileSystem(filled, mode="r+") as fs:
        fs.volume.symlink("missing", "/dangling")
        fs.volume.mknod("/pipe", 0o10644)
        types = {name: fs.info(name)["type"] for name in ("/dangling", "/pipe", "/etc", "/etc/link")}
        assert types == {"/dangling": "link", "/pipe": "other", "/etc": "directory", "/etc/link": "file"}
        assert fs.info("/etc/link")["destination"] == "hosts"
        with pytest.raises(FileNotFoundError):
            fs.info("/etc/hosts/below")
        with pytest.raises(IsADirectoryError):
            fs.rm("/etc")
        fs.rm("/etc", recursive=True)
        assert not fs.exists("/etc")


def test_threads_read_an_image_that_is_a_file_object(filled):
    failed = []
    with filled.open("rb") as device, Ext4FileSystem(device) as fs:
        expected = bytes(range(256)) * 4096

        def read():
            try:
                assert fs.cat("/etc/network/big") == expected
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []

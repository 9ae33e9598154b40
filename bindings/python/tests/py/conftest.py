"""What the tests share: images, made once, and copied."""

import pathlib
import shutil

import pytest

import extant_ext4


@pytest.fixture(scope="session")
def empty_image(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    image = tmp_path_factory.mktemp("images") / "empty.img"
    extant_ext4.mkfs(image, 16 << 20, options=["-E", "lazy_itable_init=1"])
    return image


@pytest.fixture
def image(tmp_path: pathlib.Path, empty_image: pathlib.Path) -> pathlib.Path:
    copy = tmp_path / "disk.img"
    shutil.copy(empty_image, copy)
    return copy

"""A thousand images on a cluster of processes of which one is killed half way.

Run by `tests/python.rs` where Dask is installed; not collected by pytest.
"""

import collections
import os
import pathlib
import shutil
import signal
import sys
import tempfile

from dask.distributed import Client, LocalCluster

import extant_ext4

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "examples"))
import check_many  # noqa: E402

COUNT = 1000


def images(directory: pathlib.Path) -> dict[str, str]:
    """Images, and the verdict that each is to have."""
    whole = directory / "whole.img"
    extant_ext4.mkfs(whole, 1 << 20, features=["^has_journal"])
    damaged = directory / "damaged.img"
    data = bytearray(whole.read_bytes())
    # The free blocks of the superblock: a wrong checksum, and a wrong number.
    data[1024 + 12] ^= 0xFF
    damaged.write_bytes(data)
    expected = {}
    for number in range(COUNT):
        path = directory / f"disk-{number}.img"
        if number % 100 == 7:
            path.write_bytes(bytes(4096))
            expected[str(path)] = "unreadable"
        else:
            source, verdict = (damaged, "damaged") if number % 10 == 3 else (whole, "clean")
            shutil.copy(source, path)
            expected[str(path)] = verdict
    return expected


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        expected = images(pathlib.Path(directory))
        cluster = LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None)
        with cluster, Client(cluster) as client:
            workers = client.run(os.getpid)
            client.upload_file(check_many.__file__)
            reported: collections.Counter[str] = collections.Counter()
            verdicts = {}
            for number, outcome in enumerate(check_many.check_all(client, expected)):
                if number == COUNT // 2:
                    os.kill(next(iter(workers.values())), signal.SIGKILL)
                reported[outcome["image"]] += 1
                verdicts[outcome["image"]] = outcome["verdict"]
            after = client.run(os.getpid)
        assert set(after.values()) != set(workers.values()), "no worker was replaced"
    assert set(reported.values()) == {1} and len(reported) == COUNT
    assert verdicts == expected
    print("each of", COUNT, "images was reported once")


if __name__ == "__main__":
    main()

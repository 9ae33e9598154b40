"""Checks many images on a cluster of Dask, and prints a line of JSON for each.

    python check_many.py 'bucket/*.img'                    # processes of this machine
    python check_many.py --scheduler tcp://host:8786 's3://bucket/*.img'

Paths are those of fsspec: images of a bucket are read where a worker runs, without a copy. A worker
that dies is replaced, and its images are checked by others; each image is reported once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import fsspec
from dask.distributed import Client, LocalCluster, as_completed

import extant_ext4


def check(path: str) -> dict[str, Any]:
    """The outcome of the check of one image. It is a value, whatever is wrong with the image."""
    try:
        with fsspec.open(path, "rb") as image:
            report = extant_ext4.check(image, threads=1)
    except OSError as error:
        return {"image": path, "verdict": "unreadable", "error": str(error), "findings": []}
    return {
        "image": path,
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "error": report.error,
        "findings": [
            {key: value for key, value in dataclasses.asdict(finding).items() if key != "name"}
            for finding in report.findings
        ],
    }


def check_all(client: Client, paths: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The outcomes of all images, in the order in which the checks end.

    An image that takes four workers with it is given up, and its outcome says so.
    """
    futures = {}
    for path in paths:
        future = client.submit(check, path, key=f"check {path}", retries=3)
        futures[future] = path
    for future in as_completed(futures):
        error = future.exception()
        if error is None:
            yield future.result()
        else:
            yield {
                "image": futures[future],
                "verdict": "unreadable",
                "error": f"not checked: {error}",
                "findings": [],
            }
        future.release()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", help="address of a running cluster")
    parser.add_argument("--workers", type=int, default=4, help="processes, without --scheduler")
    parser.add_argument("images", nargs="+", help="paths or patterns of fsspec")
    args = parser.parse_args()
    paths = [
        file.full_name for pattern in args.images for file in fsspec.open_files(pattern, "rb")
    ]
    cluster = args.scheduler or LocalCluster(
        n_workers=args.workers, threads_per_worker=1, dashboard_address=None
    )
    worst = 0
    with Client(cluster) as client:
        for outcome in check_all(client, paths):
            print(json.dumps(outcome), flush=True)
            worst |= outcome.get("exit_code", 8)
    return worst


if __name__ == "__main__":
    sys.exit(main())

"""Reads every regular file of an image: read_all.py extant|dissect IMAGE.

Prints the seconds, the number of files and one digest of all paths and contents. Each library runs
in a process of its own.
"""

import hashlib
import os
import sys
import time


def by_extant(image):
    import extant_ext4

    with extant_ext4.open(image) as fs:
        waiting = ["/"]
        while waiting:
            for entry in fs.scandir(waiting.pop()):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path, fs.read_bytes(entry.path)


def by_dissect(image):
    from dissect.extfs import ExtFS

    with open(image, "rb") as device:
        fs = ExtFS(device)
        waiting = [("/", fs.root)]
        while waiting:
            at, directory = waiting.pop()
            for name, node in directory.listdir().items():
                path = os.path.join(at, name)
                if name in (".", ".."):
                    continue
                if node.filetype == 0o040000:
                    waiting.append((path, node))
                elif node.filetype == 0o100000:
                    yield path, node.open().read()


def main(library, image):
    started = time.monotonic()
    read = {"extant": by_extant, "dissect": by_dissect}[library](image)
    digests = sorted(
        hashlib.sha256(os.fsencode(path) + b"\0" + data).hexdigest() for path, data in read
    )
    seconds = time.monotonic() - started
    print(f"{seconds:.3f}", len(digests), hashlib.sha256("".join(digests).encode()).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])

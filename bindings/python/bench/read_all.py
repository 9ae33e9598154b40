"""Reads every regular file of an image: read_all.py extant|dissect IMAGE.

Prints the seconds that the reading took, those of the processor, the number of files and one digest
of all paths and contents, which a second reading makes. Each library runs in a process of its own.
"""

import hashlib
import importlib
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
    reader = {"extant": by_extant, "dissect": by_dissect}[library]
    importlib.import_module({"extant": "extant_ext4", "dissect": "dissect.extfs"}[library])
    started, busy = time.monotonic(), time.process_time()
    for _ in reader(image):
        pass
    seconds, busy = time.monotonic() - started, time.process_time() - busy
    digests = sorted(
        hashlib.sha256(os.fsencode(path) + b"\0" + data).hexdigest()
        for path, data in reader(image)
    )
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()
    print(f"elapsed: {seconds:.3f}", f"busy: {busy:.3f}", len(digests), digest, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

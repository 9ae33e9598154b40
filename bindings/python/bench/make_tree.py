"""Makes an image of small files: make_tree.py IMAGE COUNT. The same count gives the same image."""

import os
import random
import sys
import tempfile

import extant_ext4


def main(image, count):
    numbers = random.Random(1)
    with tempfile.TemporaryDirectory() as tree:
        for number in range(int(count)):
            directory = f"{tree}/{number // 100}"
            os.makedirs(directory, exist_ok=True)
            with open(f"{directory}/{number}", "wb") as file:
                file.write(numbers.randbytes(numbers.choice([100, 1_000, 5_000, 20_000])))
        # dissect.extfs 3.15 does not list the last inode of a volume: it stays free.
        inodes = ["-N", str(2 * int(count) + 1000)]
        extant_ext4.build(image, tree, source_date_epoch=0, options=inodes)


if __name__ == "__main__":
    main(*sys.argv[1:])

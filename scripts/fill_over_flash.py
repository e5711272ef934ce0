#!/usr/bin/env python3
"""Objects that a fill over flash loses, beside memcached's extstore: one client in a closed loop, 16 MiB of memory, 256 MiB of flash.

    scripts/fill_over_flash.py FOLDER [--ebbtide target/release/ebbtide] [--rounds 4]

FOLDER lies on the disk that flash is on. All objects fit on flash; after a second each is asked for.
"""
import argparse
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
from servers import EBBTIDE, Server

SIZES = ((30_000, 100), (30_000, 1000), (6_000, 8000))
PIPELINES = (1, 32)
FLASH = "256m"


def fill(program, flags, count, size, pipeline):
    """Sets a second, and objects that are not found afterwards."""
    server = Server(program, ["-m", 16, *flags])
    try:
        connection, value = server.connection, random.Random(size).randbytes(size)
        answers = connection.makefile("rb")
        began = time.monotonic()
        for first in range(0, count, pipeline):
            batch = range(first, min(first + pipeline, count))
            connection.sendall(b"".join(b"set key%07d 0 0 %d\r\n%s\r\n" % (number, size, value) for number in batch))
            for _ in batch:
                assert answers.readline() == b"STORED\r\n"
        rate = count / (time.monotonic() - began)
        time.sleep(1)
        lost = 0
        for number in range(count):
            connection.sendall(b"get key%07d\r\n" % number)
            if answers.readline() == b"END\r\n":
                lost += 1
            else:
                assert answers.read(size + 2) == value + b"\r\n" and answers.readline() == b"END\r\n"
        return rate, lost
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ebbtide", default=EBBTIDE)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    print("| objects | bytes | pipeline | server | sets/s, median | lost in each round |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        file = pathlib.Path(folder) / "flash"
        # Started by root, the servers run as another user.
        file.parent.chmod(0o777)
        servers = {"ebbtide": (given.ebbtide, ["--admin=off", "--flash", f"{file}:{FLASH}"]),
                   "extstore": ("memcached", ["-o", f"ext_path={file}:{FLASH}"])}
        for count, size in SIZES:
            for pipeline in PIPELINES:
                runs = {name: [] for name in servers}
                for _ in range(given.rounds):
                    for name, (program, flags) in servers.items():
                        file.unlink(missing_ok=True)
                        runs[name].append(fill(program, flags, count, size, pipeline))
                for name, done in runs.items():
                    rate, lost = statistics.median(rate for rate, _ in done), ", ".join(str(lost) for _, lost in done)
                    print(f"| {count} | {size} | {pipeline} | {name} | {rate:.0f} | {lost} |", flush=True)


if __name__ == "__main__":
    main()

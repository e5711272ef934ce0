#!/usr/bin/env python3
"""Objects that a fill over flash loses, beside memcached's extstore: one client in a closed loop, 16 MiB of memory, 256 MiB of flash.

    scripts/fill_over_flash.py FOLDER [--ebbtide target/release/ebbtide] [--rounds 4]

FOLDER lies on the disk that flash is on. All objects fit on flash; after a second each is asked for.
"""
import argparse
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
from servers import EBBTIDE, free_port

SIZES = ((30_000, 100), (30_000, 1000), (6_000, 8000))
PIPELINES = (1, 32)
FLASH = "256m"


def connect(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    sys.exit(f"no server answers on port {port}")


def fill(command, port, count, size, pipeline):
    """Sets a second, and objects that are not found afterwards."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        connection = connect(port)
        answers, value = connection.makefile("rb"), random.Random(size).randbytes(size)
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
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ebbtide", default=EBBTIDE)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    file, port = given.folder / "fill.flash", free_port()
    common = ["-u", "root", "-l", "127.0.0.1", "-U", "0", "-p", port, "-m", "16"]
    servers = {"ebbtide": [given.ebbtide, *common, "--admin=off", "--flash", f"{file}:{FLASH}"],
               "extstore": ["memcached", *common, "-o", f"ext_path={file}:{FLASH}"]}
    print("| objects | bytes | pipeline | server | sets/s, median | lost in each round |\n|---|---|---|---|---|---|")
    for count, size in SIZES:
        for pipeline in PIPELINES:
            runs = {name: [] for name in servers}
            for _ in range(given.rounds):
                for name, command in servers.items():
                    file.unlink(missing_ok=True)
                    runs[name].append(fill(list(map(str, command)), port, count, size, pipeline))
            for name, done in runs.items():
                rate, lost = statistics.median(rate for rate, _ in done), ", ".join(str(lost) for _, lost in done)
                print(f"| {count} | {size} | {pipeline} | {name} | {rate:.0f} | {lost} |", flush=True)
    file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Advice for a live memcached, and what a memcached of the advised size then reaches.

    live.py --ebbtide BINARY [--requests 400k] [--memory 2048] [--hit-ratios 70%,75%,80%]

A look-aside load of `ebbtide generate` goes to a memcached with much memory, while `ebbtide capture` writes its trace, of
which `ebbtide advise` tells the memory that a memcached takes for each hit ratio. Then a new memcached of this memory,
rounded to MiB, gets the same requests. All begin empty, as the advice counts the misses of a cold start. Fails if a
memcached's hit ratio is further than a twentieth from the one that was wanted.

Then the same for a memcached that has served all requests before the capture. The advice must know the hit ratio that
it has, must not call it out of reach, and an Ebbtide server of each memory that it names must have the wanted hit
ratio, to a twentieth, once it is warm, too.
"""
import argparse
import csv
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from servers import free_port

TOLERANCE = 0.05
# Popularity by Zipf's law, sizes as skewed as those of web caches.
LOAD = ["--preset", "zipf", "--keys", "60k", "--alpha", "0.9", "--value-size", "lognormal:4000:1:200000"]
PATIENCE_SECONDS = 60


class Memcached:
    """A memcached of Debian, with slab classes by its defaults, or an Ebbtide server."""

    def __init__(self, mebibytes, binary="memcached"):
        self.port = free_port()
        user = ["-u", "root"]
        command = [binary, *user, "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", "1", "-m", str(mebibytes)]
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.connection = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        self.file = self.connection.makefile("rb")

    def look_aside(self, key, value_size):
        """Whether the get hit; a miss is followed by a set."""
        self.connection.sendall(b"get %s\r\n" % key)
        if (line := self.file.readline()) != b"END\r\n":
            self.file.read(int(line.split()[3]) + 2)
            self.file.readline()
            return True
        self.connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, value_size, b"v" * value_size))
        self.file.readline()
        return False

    def drive(self, requests):
        hits = sum(self.look_aside(key, value_size) for key, value_size in requests)
        return hits / len(requests)

    def stop(self):
        self.connection.close()
        self.process.terminate()
        self.process.wait()


def load(given, folder):
    path = folder / "load.csv"
    command = [given.ebbtide, "generate", *LOAD, "--requests", given.requests, "--seed", "5", "--output", path]
    subprocess.run(command, check=True, capture_output=True)
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["op"] in ("get", "gets")]
    pad = lambda row: b"%s" % row["key_id"].encode().rjust(int(row["key_size"]), b"k")[:250]
    return [(pad(row), int(row["value_size"])) for row in rows]


def captured(given, requests, folder, is_warm=False):
    """The trace, and the hit ratio of the requests."""
    server, trace = Memcached(given.memory), folder / f"captured-{'warm' if is_warm else 'cold'}.csv"
    if is_warm:
        server.drive(requests)
    command = [given.ebbtide, "capture", f"127.0.0.1:{server.port}", "--seconds", "600", "--sample", "1", "--output", trace]
    capture = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)
    reached = server.drive(requests)
    time.sleep(2)
    capture.send_signal(2)
    capture.wait()
    server.stop()
    return trace, reached


def advised(given, trace, wanted, *flags):
    command = [given.ebbtide, "advise", trace, "--hit-ratio", wanted, *flags, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def check_warm(given, requests, folder):
    """Mistakes of the advice for a server that was warm."""
    failed = []
    trace, reached = captured(given, requests, folder, is_warm=True)
    print(f"\nwarm, with {reached:.4f} hits\n")
    print("| wanted | warmup | by the advice | reached | says |\n|---|---|---|---|---|")
    asked = [(wanted, flags) for wanted in given.hit_ratios for flags in ([], ["--warmup", "50%"])]
    for wanted, flags in [*asked, (f"{reached * 100 - 1:.1f}%", [])]:
        advice = advised(given, trace, wanted, *flags)
        ratio, says = float(wanted.rstrip("%")) / 100, advice["wanted"]["longer_capture"]
        if abs(advice["server_hit_ratio"] - reached) > 0.001:
            failed.append(f"the server hit {reached:.4f}, and the advice says {advice['server_hit_ratio']:.4f}")
        if ratio <= reached and any("cannot be reached" in sentence for sentence in advice["verdict"]):
            failed.append(f"{wanted} is out of reach by the advice, and the server hit {reached:.4f}")
        if (dram := advice["wanted"]["dram"]) is None:
            print(f"| {wanted} | {' '.join(flags)} | | | {says} |", flush=True)
            continue
        mebibytes = -(-int(dram["dram_bytes"]) >> 20)
        server = Memcached(max(2, mebibytes), given.ebbtide)
        server.drive(requests)
        found = server.drive(requests)
        server.stop()
        print(f"| {wanted} | {' '.join(flags)} | {mebibytes} MiB | {found:.4f} | {says} |", flush=True)
        if found < ratio - TOLERANCE:
            failed.append(f"warm, {wanted} was wanted and {found:.4f} reached")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebbtide", type=pathlib.Path, required=True)
    parser.add_argument("--requests", default="400k")
    parser.add_argument("--memory", type=int, default=2048)
    parser.add_argument("--hit-ratios", type=lambda text: text.split(","), default=["70%", "75%", "80%"])
    given = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        requests = load(given, folder)
        trace, _ = captured(given, requests, folder)
        print(f"{len(requests)} gets\n\n| wanted | for a memcached, by the advice | reached | for Ebbtide |\n|---|---|---|---|")
        for wanted in given.hit_ratios:
            advice = advised(given, trace, wanted)
            if (memory := advice["slabs"]["wanted_bytes"]) is None:
                print(f"| {wanted} | out of reach | | |")
                continue
            mebibytes = max(1, round(memory / (1 << 20)))
            server = Memcached(mebibytes)
            reached = server.drive(requests)
            server.stop()
            ours = advice["wanted"]["dram"]["dram_bytes"] / (1 << 20)
            print(f"| {wanted} | {mebibytes} MiB | {reached:.4f} | {ours:.0f} MiB |", flush=True)
            ratio = float(wanted.rstrip("%")) / 100
            if abs(ratio - reached) > TOLERANCE * ratio:
                failed.append(f"{wanted} was wanted and {reached:.4f} reached")
        failed += check_warm(given, requests, folder)
    sys.exit("\n".join(failed) or 0)


if __name__ == "__main__":
    main()

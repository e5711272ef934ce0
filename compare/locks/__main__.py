"""Locks per command in memcached: look-aside requests, 10 % and 50 % of sets, a full cache, 1 and 16 threads.

    python3 -m locks --library target/mutex_counts.so [--seconds 10]

The mutexes are counted by a library that is loaded before the C library (`mutex_counts.c`). For Ebbtide the same
columns come from `cargo bench -p ebbtide-store --features coherence --bench locks`. Counts per command do not depend on
the load of the machine; failed tries do."""
import argparse
import os
import pathlib
import struct
import tempfile

import client
import results
import servers

# As in crates/store/benches/locks.rs: half of the keys fit.
KEYS, VALUE_BYTES, MEMORY_MIB = 1_000_000, 230, 128
COLUMNS = ["sets", "threads", "commands", "sets_per_command", "taken", "failed", "transfers"]


def measure(rows, library, threads, get_ratio, seconds):
    with tempfile.NamedTemporaryFile(prefix="mutex-counts-") as file:
        # Started by root, memcached runs as another user.
        pathlib.Path(file.name).chmod(0o666)
        load = ["--connections", 2 * threads, "--threads", 1]
        with preloaded(library, file.name):
            server = servers.memcached(MEMORY_MIB, threads=threads)
        try:
            client.fill(server, KEYS, VALUE_BYTES, *load)
            run = ["--keys", KEYS, "--value-size", VALUE_BYTES, "--exponent", 1.0, "--fill", "--pipeline", 16, *load,
                   "--get-ratio", get_ratio, "--seconds", seconds]
            client.bench(server, *run)
            before = counts(server, file.name)
            client.bench(server, *run)
            gets, sets, taken, failed, transfers = (now - then for now, then in zip(counts(server, file.name), before))
        finally:
            server.stop()
    commands = gets + sets
    rows.add(sets=f"{1 - get_ratio:.0%}", threads=threads, commands=commands, sets_per_command=sets / commands,
             taken=taken / commands, failed=failed / commands, transfers=transfers / commands)


def preloaded(library, counts_file):
    """The environment of the server, for the time of its start."""
    return Environment({"LD_PRELOAD": str(library.resolve()), "MUTEX_COUNTS": counts_file})


class Environment:
    """Variables that are set within a block."""

    def __init__(self, variables):
        self.variables = variables

    def __enter__(self):
        os.environ.update(self.variables)

    def __exit__(self, *_):
        for name in self.variables:
            del os.environ[name]


def counts(server, path):
    """Gets and sets of the server, and what the library has counted."""
    stats = server.stats()
    words = struct.unpack("3Q", pathlib.Path(path).read_bytes()[:24])
    return (int(stats["cmd_get"]), int(stats["cmd_set"]), *words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=10, help="of each run; two runs a row")
    options = parser.parse_args()
    rows = results.Rows("locks", "memcached", COLUMNS)
    for get_ratio in (0.9, 0.5):
        for threads in (1, 16):
            measure(rows, options.library, threads, get_ratio, options.seconds)
    results.markdown(
        ["sets", "threads", "sets per command", "mutexes per command", "failed", "last held by another thread"],
        [[row["sets"], row["threads"], f"{row['sets_per_command']:.3f}", f"{row['taken']:.2f}",
          f"{row['failed']:.4f}", f"{row['transfers']:.3f}"] for row in rows.rows])


if __name__ == "__main__":
    main()

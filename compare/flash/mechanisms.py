#!/usr/bin/env python3
"""Miss ratios on traces that are made up, each of one mechanism, beside an LRU list of as many bytes as memory and flash together.

    mechanisms.py [NAME ...] [--peers] [--flags='--flash-small-share 40']

LRU charges 64 bytes an object beside key and value, and knows no pages, regions, indexes or copies. `never seen` are misses of any cache.
With --peers memcached's extstore and foyer are beside it; main.py tells how. They must be there: make build debian.
Time goes by a thousand requests a second. Pages of small objects and an admission to memory that LRU has not make cells that beat it.
"""
import argparse
import collections
import pathlib
import tempfile

import numpy

from main import COMPARE, MIB, Bench

KEY_BYTES = 20
HEADER_BYTES = 64
REQUESTS_PER_SECOND = 1000
OPERATIONS = ("get", "set", "delete")
GET, SET, DELETE = range(3)
HEADER = ["trace", "memory, flash MiB", "ebbtide: misses, MB written"]
PEERS = ["extstore", "foyer"]
BOUNDS = ["LRU", "never seen"]
Trace = collections.namedtuple("Trace", "keys sizes operations")


def zipf(exponent, keys, requests, seed=1):
    random = numpy.random.default_rng(seed)
    weights = numpy.cumsum(numpy.arange(1, keys + 1) ** -float(exponent))
    ranks = numpy.searchsorted(weights / weights[-1], random.random(requests))
    return random.permutation(keys)[ranks]


def draw(keys, seed=1):
    """A number from 0 to 1 for each key, always the same."""
    return numpy.random.default_rng(seed).random(int(keys.max()) + 1)[keys]


def of(keys, sizes, operations=GET):
    return Trace(keys, numpy.broadcast_to(sizes, keys.shape).astype(int), numpy.broadcast_to(operations, keys.shape))


def mixed(keys, small_share, small, large):
    """Sizes of two kinds, each between two bounds."""
    between = lambda bounds, seed: bounds[0] + (bounds[1] - bounds[0]) * draw(keys, seed)
    return of(keys, numpy.where(draw(keys) < small_share, between(small, 2), between(large, 3)))


def phases(*parts):
    """Traces one behind the other, each of keys of its own."""
    first = 0
    keys = []
    for part in parts:
        keys.append(part.keys + first)
        first += int(part.keys.max()) + 1
    return of(numpy.concatenate(keys), numpy.concatenate([part.sizes for part in parts]))


def changing(keys, size, sets, deletes=0.0):
    chance = numpy.random.default_rng(2).random(len(keys))
    return of(keys, size, numpy.where(chance < sets, SET, numpy.where(chance < sets + deletes, DELETE, GET)))


def with_strangers(keys, share, size):
    """Such a share of the requests are for keys that are asked for once."""
    alone = numpy.random.default_rng(3).random(len(keys)) < share
    return of(numpy.where(alone, keys.max() + numpy.cumsum(alone), keys), size)


def drifting(keys, requests_per_key, size):
    return of(keys + numpy.arange(len(keys)) // requests_per_key, size)


# Memory and flash in MiB, and what makes the trace.
CELLS = {
    **{
        f"zipf of {size} bytes": (8, 80, lambda size=size, keys=keys: of(zipf(0.9, keys, min(400_000, 25 * keys)), size))
        for size, keys in ((50, 600_000), (100, 500_000), (300, 350_000), (1000, 150_000), (2000, 90_000), (2100, 85_000), (4096, 44_000),
                           (10_240, 18_000), (65_536, 2800), (131_100, 1400))
    },
    "uniform of 300 bytes": (8, 80, lambda: of(zipf(0, 350_000, 600_000), 300)),
    "100 bytes, flash of 30 times": (8, 240, lambda: of(zipf(0.6, 1_000_000, 900_000), 100)),
    "4096 bytes, flash of 3 times": (16, 48, lambda: of(zipf(0.9, 30_000, 300_000), 4096)),
    "loop of 300 bytes over 0.8": (8, 80, lambda: of(numpy.arange(600_000) % 190_000, 300)),
    "loop of 4096 bytes over 0.7": (8, 80, lambda: of(numpy.arange(100_000) % 15_000, 4096)),
    "nine keys of ten small, nine bytes of ten not": (8, 80, lambda: mixed(zipf(0.3, 80_000, 400_000), 0.9, (100, 500), (20_000, 28_000))),
    "the same by zipf": (8, 80, lambda: mixed(zipf(0.9, 80_000, 400_000), 0.9, (100, 500), (20_000, 28_000))),
    "half 300, half 4096 bytes": (8, 80, lambda: mixed(zipf(0.8, 70_000, 400_000), 0.5, (300, 300), (4096, 4096))),
    "50 bytes, one of a hundred 10 KiB": (8, 80, lambda: mixed(zipf(0.7, 500_000, 700_000), 0.99, (40, 60), (10_240, 10_240))),
    "300 bytes, one of five 100 to 500 KB": (32, 320, lambda: mixed(zipf(0.7, 9000, 150_000), 0.8, (100, 300), (100_000, 500_000))),
    "4096 bytes, then 300": (8, 80, lambda: phases(of(zipf(0.9, 30_000, 100_000), 4096), of(zipf(0.8, 350_000, 600_000), 300))),
    "300 bytes, then 4096": (8, 80, lambda: phases(of(zipf(0.8, 350_000, 400_000), 300), of(zipf(0.8, 30_000, 250_000), 4096))),
    "half of 300 bytes asked for once": (8, 80, lambda: with_strangers(zipf(0.9, 200_000, 600_000), 0.5, 300)),
    "four fifths of 4096 bytes asked for once": (8, 80, lambda: with_strangers(zipf(0.9, 18_000, 300_000), 0.8, 4096)),
    "a third overwritten, 300 bytes": (8, 80, lambda: changing(zipf(0.9, 300_000, 600_000), 300, 0.3)),
    "a third overwritten, 4096 bytes": (8, 80, lambda: changing(zipf(0.9, 35_000, 400_000), 4096, 0.3)),
    "a third deleted, 300 bytes": (8, 80, lambda: changing(zipf(0.6, 300_000, 600_000), 300, 0.0, 0.3)),
    "drift of 300 bytes": (8, 80, lambda: drifting(zipf(0.9, 250_000, 600_000), 2, 300)),
    "drift of 4096 bytes": (8, 80, lambda: drifting(zipf(0.9, 25_000, 300_000), 4, 4096)),
}


def lru(trace, capacity):
    """Misses of an LRU list, and of one without a bound, over gets."""
    held, used, seen = collections.OrderedDict(), 0, set()
    gets = misses = first = 0
    for key, size, operation in zip(*(column.tolist() for column in trace)):
        before = held.pop(key, None)
        used -= before or 0
        if operation == DELETE:
            seen.discard(key)
            continue
        if operation == GET:
            gets += 1
            misses += before is None
            first += key not in seen
        seen.add(key)
        held[key] = size + KEY_BYTES + HEADER_BYTES
        used += held[key]
        while used > capacity:
            used -= held.popitem(last=False)[1]
    return misses / gets, first / gets


def write(trace, path):
    with open(path, "w") as out:
        out.write("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
        for number, (key, size, operation) in enumerate(zip(*(column.tolist() for column in trace))):
            out.write(f"{number // REQUESTS_PER_SECOND},{key},{KEY_BYTES},{size},{OPERATIONS[operation]},0\n")


def missed_and_written(outcome):
    dropped = f", {outcome.remarks}" if outcome.remarks.endswith("dropped") else ""
    return f"{outcome.miss_ratio:.4f}, {outcome.written / 1e6:.0f}{dropped}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of traces; all if none is named")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--flags", default="", help="for ebbtide replay")
    given = parser.parse_args()
    header = HEADER + (PEERS if given.peers else []) + BOUNDS
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header), flush=True)
    with tempfile.TemporaryDirectory(dir=COMPARE / "target") as folder:
        bench, path = Bench(folder), pathlib.Path(folder) / "trace.csv"
        for name in given.names or CELLS:
            memory, flash, make = CELLS[name]
            trace = make()
            write(trace, path)
            outcomes = [bench.ebbtide(path, memory, flash, *given.flags.split())]
            if given.peers:
                largest = int(trace.sizes.max())
                outcomes += [peer(path, memory, flash, largest) for peer in (bench.memcached, bench.foyer)]
            bounds = [f"{ratio:.4f}" for ratio in lru(trace, (memory + flash) * MIB)]
            cells = [*map(missed_and_written, outcomes), *bounds]
            print(f"| {name} | {memory}, {flash} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

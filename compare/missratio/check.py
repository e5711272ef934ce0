"""The pipeline against miss ratios that another simulator found: no metadata, TTLs ignored, every row a get, memory in
bytes or in objects as the reference has it.

The policies that decide by order alone must agree. Others are only shown: LHD and Hyperbolic draw at random, GDSF and
W-TinyLFU depend on ties and hashes, and the S3-FIFO of the package is another version than the reference's.
"""
import csv
from dataclasses import replace

import numpy

import policies
import traces

EXACT = ("fifo", "lru", "clock", "slru", "2q", "arc", "lirs", "lfu", "sieve", "belady")
TOLERANCE = 3e-4


def run(directory, folder, only, shares=("0.01", "0.1", "0.3")):
    """Prints every comparison; returns whether one of those that must agree does not."""
    worst = 0.0
    for name, rows in references(directory / "reference-miss-ratios.csv", shares).items():
        if only and name not in only:
            continue
        trace = traces.load(directory / f"{name}.csv.zst", folder / "traces")
        for row in rows:
            if (found := replayed(trace, row)) is None:
                continue
            error = found - float(row["miss_ratio"])
            must = row["algo"] in EXACT
            worst = max(worst, abs(error) if must else 0.0)
            print(f"{name} {row['size_frac']} {row['algo']} {found:.6f} {error:+.6f}{'' if must else ' (shown only)'}")
    print(f"largest error of the policies that must agree: {worst:.6f}; allowed: {TOLERANCE}")
    return worst > TOLERANCE


def references(path, shares):
    """{trace: rows}, those by byte where there are both."""
    chosen = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            key = row["trace"], row["algo"], row["size_frac"]
            if row["size_frac"] in shares and "degenerate" not in row["note"]:
                if row["mode"] == "byte" or key not in chosen:
                    chosen[key] = row
    tables = {}
    for (name, _, _), row in chosen.items():
        tables.setdefault(name, []).append(row)
    return tables


def replayed(trace, row):
    if row["algo"] not in policies.POLICIES:
        return None
    nothing = numpy.zeros_like(trace.op)
    plain = replace(trace, op=nothing, ttl=nothing)
    if row["mode"] == "object":
        plain = replace(plain, key_size=nothing + 1, value_size=nothing)
    return policies.miss_ratio(plain, row["algo"], int(row["cache_size"]), 0)

#!/usr/bin/env python3
"""DRAM alone beside DRAM with flash for the same money (CacheLib, OSDI 2020, section 5.2), on one of CacheLib's workloads.

    equal_money.py FOLDER NAME [--keys 1m] [--requests 10m] [--shares 0.01,0.02,0.05,0.1] [--dram-price 5] [--flash-price 0.8]

FOLDER has CacheLib's distributions NAME.config.json, NAME.pop.json and NAME.sizes.json. A cache of DRAM alone has a share of the bytes of
all objects. Beside it are caches with flash for as much money and for three quarters of it, the money divided between DRAM and flash
in several ways. Prices are of a GiB; their ratio decides. The first half of the requests fills the caches and does not count, but in
the bytes written. What the server, its processor and the drive's wear cost is not in the prices.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import servers
from results import markdown

MIB = 1 << 20
# Shares of the money that go to DRAM, and of the price of DRAM alone that a cache with flash may cost.
DRAM_SHARES = (0.5, 0.25, 0.1)
MONEY_SHARES = (1.0, 0.75)
# What a cache with flash has at least.
LEAST_DRAM, LEAST_FLASH = MIB // 2, 16 * MIB
HEADER = ["DRAM, MiB", "flash, MiB", "money", "capacity", "hit ratio", "written to flash, times its size"]


def report(command):
    run = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(run.stdout)


def replay(given, trace, file, dram, flash):
    command = [given.ebbtide, "replay", trace, "--memory", dram, "--warmup", given.half, "--json"]
    if flash:
        command += ["--flash", file, "--flash-size", flash]
    outcome = report(command)
    file.unlink(missing_ok=True)
    return outcome


def row(given, trace, file, dram, flash, alone):
    outcome = replay(given, trace, file, dram, flash)
    money = (dram * given.dram_price + flash * given.flash_price) / (alone * given.dram_price)
    cells = [f"{dram / MIB:.0f}", "", f"{money:.2f}", f"{(dram + flash) / alone:.1f}", f"{1 - outcome['miss_ratio']:.4f}", ""]
    if flash:
        tier = outcome["flash"]
        cells[1], cells[-1] = f"{flash / MIB:.0f}", f"{tier['written_bytes'] / flash:.1f}"
        if tier["dropped"]:
            cells[-1] += f"; {tier['dropped']} objects dropped"
    return cells


def plans(given, alone):
    """DRAM and flash of the caches for the money that DRAM of this size costs."""
    yield alone, 0
    for money in MONEY_SHARES:
        for share in DRAM_SHARES:
            dram = int(alone * money * share)
            flash = int(alone * money * (1 - share) * given.dram_price / given.flash_price) // MIB * MIB
            if dram >= LEAST_DRAM and flash >= LEAST_FLASH:
                yield dram, flash


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("name")
    parser.add_argument("--keys", default="1m")
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--shares", default="0.01,0.02,0.05,0.1", help="of the objects' bytes, for DRAM alone")
    parser.add_argument("--dram-price", type=float, default=5.0)
    parser.add_argument("--flash-price", type=float, default=0.8)
    parser.add_argument("--flash-folder", type=pathlib.Path, default=pathlib.Path("/dev/shm"))
    parser.add_argument("--ebbtide", default=servers.EBBTIDE)
    given = parser.parse_args()
    given.half = given.requests // 2
    with tempfile.TemporaryDirectory(dir=given.flash_folder) as folder:
        trace, file = pathlib.Path(folder) / "trace.csv.zst", pathlib.Path(folder) / "flash"
        made = report([given.ebbtide, "generate", "--cachebench", given.folder / f"{given.name}.config.json", "--keys", given.keys,
                       "--requests", given.requests, "--output", trace, "--json"])
        print(f"{made['keys']:,} keys, {made['footprint_bytes'] / MIB:,.0f} MiB", flush=True)
        for share in map(float, given.shares.split(",")):
            alone = int(made["footprint_bytes"] * share)
            markdown(HEADER, [row(given, trace, file, *plan, alone) for plan in plans(given, alone)])


if __name__ == "__main__":
    main()

"""Storage layers in one process: the Segcache paper's Fig. 9 (speed), and its Figs. 6 and 7 (miss ratios, memory).

    python -m storage [speed|memory ...] [--workloads c,n] [--seconds N] [--rounds N] [--scale BYTES]

Prints Markdown and draws SVG files; every round and cell goes to compare/results/storage/*.csv.
"""
import argparse

from storage import memory, speed
from storage.workloads import PRESETS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["speed", "memory"], help="speed, memory; both by default")
    parser.add_argument("--workloads", default=",".join(PRESETS), help="of c, n, mix, u1, u2; all by default")
    parser.add_argument("--seconds", type=float, default=10, help="speed: time of a cell, over all rounds")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1e9, help="speed: bytes of all keys and values, in copies of a trace")
    arguments = parser.parse_args()
    names = arguments.workloads.split(",")
    if unknown := [name for name in names if name not in PRESETS]:
        parser.error(f"--workloads {','.join(unknown)}: the workloads are {', '.join(PRESETS)}")
    for part in arguments.parts:
        if part == "speed":
            speed.measure(names, arguments.seconds, arguments.rounds, arguments.scale)
        elif part == "memory":
            memory.measure(names)
        else:
            parser.error(f"{part}: the parts are speed and memory")


if __name__ == "__main__":
    main()

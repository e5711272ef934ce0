"""What an object costs: memory of Ebbtide, memcached and Redis, and how expired memory comes back.

    python -m costs [overhead|resident|resident_flash|expiry|flash_memory ...] [--rounds N] [--quick]

Prints Markdown; every round goes to compare/results/costs/*.csv. Keys of 20 bytes.
"""
import argparse

from costs import expiry, flash_memory, overhead, resident, resident_flash

PARTS = {"overhead": overhead, "resident": resident, "resident_flash": resident_flash, "expiry": expiry,
         "flash_memory": flash_memory}
# Only where it is named: it needs 20 GiB of disk.
LARGE = "flash_memory"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[part for part in PARTS if part != LARGE],
                        help=f"of {', '.join(PARTS)}; all but {LARGE} by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="less memory, fewer sizes, a short wait")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"{part}: the parts are {', '.join(PARTS)}")
    for part in arguments.parts:
        print(f"## {part}\n", flush=True)
        PARTS[part].measure(arguments.rounds, arguments.quick)


if __name__ == "__main__":
    main()

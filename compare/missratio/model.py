#!/usr/bin/env python3
"""The model of segments beside replays: predicted against replayed miss ratios of the engine.

    model.py --ebbtide BINARY --traces FOLDER [--names a,b] [--policy ebbtide,...] [--sizes 1%,3%,10%,30%,60%]

For each trace `ebbtide mrc` computes the sizes by the model and, with --exact, by replays. Cells of 8 MiB and more are
counted; a cell in which the model has too few objects is replayed by `mrc` itself, so its interval is a point.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

MIN_BYTES = 8 << 20


def curves(binary, trace, given, *more):
    command = [binary, "mrc", trace, "--policy", given.policy, "--sizes", given.sizes, "--json", *more]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{trace}: {done.stderr}")
    return json.loads(done.stdout)["curves"], time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebbtide", type=pathlib.Path, required=True)
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--names", type=lambda text: text.split(","))
    parser.add_argument("--policy", default="ebbtide")
    parser.add_argument("--sizes", default="1%,3%,10%,30%,60%")
    parser.add_argument("--cells", action="store_true", help="each cell, too")
    given = parser.parse_args()
    names = given.names or sorted(path.name.removesuffix(".csv.zst") for path in given.traces.glob("*.csv.zst"))
    print("| trace, policy | cells | mean error | worst | from 8 MiB: cells | mean | worst | too small | model s | replay s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    whole, cells, small = [], 0, 0
    for name in names:
        trace = given.traces / f"{name}.csv.zst"
        (predicted, model_seconds), (replayed, replay_seconds) = (
            curves(given.ebbtide, trace, given),
            curves(given.ebbtide, trace, given, "--exact"),
        )
        for one, other in zip(predicted, replayed):
            exact = {point["memory_bytes"]: point["miss_ratio"] for point in other["points"]}
            found = [
                (point["memory_bytes"], abs(point["miss_ratio"] - exact[point["memory_bytes"]]), point["low"] < point["high"])
                for point in one["points"]
            ]
            told = [error for _, error, by_model in found if by_model]
            large = [(error, by_model) for size, error, by_model in found if size >= MIN_BYTES]
            large_told = [error for error, by_model in large if by_model]
            too_small = len(large) - len(large_told)
            whole += large_told
            cells, small = cells + len(large), small + too_small
            mean = lambda errors: f"{sum(errors) / len(errors):.4f}" if errors else "-"
            worst = lambda errors: f"{max(errors):.4f}" if errors else "-"
            print(
                f"| {name}, {one['policy']} | {len(found)} | {mean(told)} | {worst(told)} | {len(large)} "
                f"| {mean(large_told)} | {worst(large_told)} | {too_small} | {model_seconds:.1f} | {replay_seconds:.1f} |",
                flush=True,
            )
            if given.cells:
                for (size, error, by_model), point in zip(found, one["points"]):
                    print(f"    {size:12} {point['miss_ratio']:.4f} {exact[size]:.4f} {error:.4f} {'' if by_model else 'replayed'}")
    if whole:
        mean, worst = sum(whole) / len(whole), max(whole)
        print(f"\nfrom 8 MiB: {cells} cells, {small} too small; mean error {mean:.4f}, worst {worst:.4f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Slab classes of the ten applications: Tables 1 and 2 and Fig. 2 of the Dynacache paper (HotCloud'15).

    slabs.py --ebbtide BINARY [--seed 11] [--applications 3,4,9] [--svg fig2.svg]

Each application of `generate.py` is one trace, in a memcached with the memory of its reservation and classes of
96 x 2^i bytes, as `ebbtide advise --slab-factor 2` computes it. Printed are

- Table 1: hit ratio with pages by first come and where they earn most, misses that this avoids, the memory with which
  first come has the same hit ratio, and the entropy of the misses over size classes;
- where a high entropy promises too much: the application again with four times its memory (the paper's application 9);
- Table 2: the classes of applications 3 and 4;
- Fig. 2: the curve of the class of application 3 that needs most memory, and its concave fit.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import tomllib

import generate

MIB = 1 << 20
GIB = 1 << 30
PAPER = {  # Table 1: original and new hit ratio, miss reduction, additional memory, entropy
    1: ("69.6", "75.3", "18.6", "20", "0.5"),
    2: ("99.9", "99.9", "0", "0", "0"),
    3: ("97.5", "98.7", "51.1", "133", "2.7"),
    4: ("97.5", "97.7", "8.4", "14", "0"),
    5: ("98.3", "99.4", "65.2", "145", "2.4"),
    6: ("99.8", "99.8", "0", "0", "0.2"),
    7: ("29", "32.6", "5", "70", "0.6"),
    8: ("99.9", "99.9", "0", "0", "0.2"),
    9: ("93.9", "93.9", "0", "0", "1.6"),
    10: ("99.6", "99.6", "11.9", "14", "0.1"),
}
# Memory that first come is tried with, over the reservation, at most.
MAX_FACTOR = 4.0
# More memory for first come is looked for where the division gains this many points.
MIN_GAIN = 0.0005


def run(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def write_traces(seed, folder):
    """One trace for each application, from the rows of the merged one: {number: (path, reserved bytes)}."""
    parameters = tomllib.loads(generate.PARAMETERS.read_text())
    rng = random.Random(seed)
    applications = [generate.Application(given, parameters, rng) for given in parameters["application"]]
    out = {application.name: open(folder / f"{application.name}.csv", "w") for application in applications}
    for number, row in enumerate(generate.rows(applications, parameters, None, rng)):
        if number == 0:
            header = row.rpartition(",")[0] + "\n"
            for file in out.values():
                file.write(header)
            continue
        start, _, name = row.rstrip("\n").rpartition(",")
        out[name].write(start + "\n")
    for file in out.values():
        file.close()
    numbers = [given["number"] for given in parameters["application"]]
    return {number: (folder / f"{a.name}.csv", a.reserved) for number, a in zip(numbers, applications)}


def slabs(binary, trace, memory):
    """The memcached with slab classes of this memory."""
    budget = ["--budget", memory / GIB, "--dram-price", 1, "--flash-price", 1000]
    return run(binary, "advise", trace, "--json", "--slab-factor", 2, *budget)["slabs"]


def more_memory(binary, trace, memory, wanted):
    """Factor on the memory with which first come has the wanted hit ratio; None beyond MAX_FACTOR."""
    low, high = 1.0, MAX_FACTOR
    if slabs(binary, trace, memory * high)["first_come_hit_ratio"] < wanted:
        return None
    while high - low > 0.04:
        middle = (low + high) / 2
        if slabs(binary, trace, memory * middle)["first_come_hit_ratio"] < wanted:
            low = middle
        else:
            high = middle
    return high


def entropy(classes):
    """Of the misses over classes, in bits, with pages by first come."""
    misses = [one["share_of_gets"] * (1 - one["first_come_hit_ratio"]) for one in classes]
    return generate.entropy(misses) if sum(misses) > 0 else 0.0


def table_1(binary, traces):
    print("| application | memory | first come | optimal | fewer misses | more memory for as many hits | entropy | paper |")
    print("|---|---|---|---|---|---|---|---|")
    found = {}
    for number, (trace, memory) in traces.items():
        result = found[number] = slabs(binary, trace, memory)
        first, best = result["first_come_hit_ratio"], result["optimal_hit_ratio"]
        factor = more_memory(binary, trace, memory, best) if best - first > MIN_GAIN else 1.0
        more = f"over {MAX_FACTOR - 1:.0%}" if factor is None else f"{factor - 1:.0%}"
        paper = "{}, {}, {} %, {} %, {}".format(*PAPER[number])
        print(
            f"| {number} | {memory / MIB:.1f} MiB | {first:.2%} | {best:.2%} | {result['misses_avoided']:.1%} | {more} "
            f"| {entropy(result['classes']):.1f} | {paper} |",
            flush=True,
        )
    return found


def failing_entropy(binary, traces, number):
    """The application in which entropy promises more than there is, with little and with more memory."""
    if number not in traces:
        return
    trace, memory = traces[number]
    print(f"\n| application {number} | first come | optimal | fewer misses | entropy | objects |")
    print("|---|---|---|---|---|---|")
    for factor in (0.25, 1, 4):
        result = slabs(binary, trace, memory * factor)
        held = sum(one["first_come_bytes"] // one["chunk_bytes"] for one in result["classes"])
        print(
            f"| {memory * factor / MIB:.2f} MiB | {result['first_come_hit_ratio']:.2%} | {result['optimal_hit_ratio']:.2%} "
            f"| {result['misses_avoided']:.1%} | {entropy(result['classes']):.1f} | {held} |"
        )


def table_2(found, numbers):
    print("\n| application | chunk | gets | original hit ratio | allocation | optimal hit ratio | allocation |")
    print("|---|---|---|---|---|---|---|")
    for number in numbers:
        for one in found[number]["classes"]:
            print(
                f"| {number} | {one['chunk_bytes']} B | {one['share_of_gets']:.1%} | {one['first_come_hit_ratio']:.2%} "
                f"| {one['first_come_bytes'] / MIB:.3f} MiB | {one['optimal_hit_ratio']:.2%} "
                f"| {one['optimal_bytes'] / MIB:.3f} MiB |"
            )


def figure_2(binary, trace, svg):
    """The curve of the class that needs most memory, and how far its concave fit is from it."""
    curves = run(binary, "mrc", trace, "--by", "class", "--json")["curves"]
    middle = len(curves[0]["points"]) // 2
    last = max(curves, key=lambda curve: curve["points"][middle]["miss_ratio"])
    points = [(point["memory_bytes"], 1 - point["miss_ratio"]) for point in last["points"]]
    hull = [(point["memory_bytes"], 1 - point["miss_ratio"]) for point in last["hull"]]
    print(f"\n| {last['class']}, memory | hit ratio | concave fit |")
    print("|---|---|---|")
    worst = 0.0
    for size, hits in points:
        fit = on_line(hull, size)
        worst = max(worst, fit - hits)
        print(f"| {size / MIB:.3f} MiB | {hits:.2%} | {fit:.2%} |")
    print(f"\nThe fit is at most {100 * worst:.2f} points above the curve.")
    if svg:
        draw(points, hull, last["class"], svg)


def on_line(hull, size):
    for (left, low), (right, high) in zip(hull, hull[1:]):
        if left <= size <= right:
            return low + (high - low) * (size - left) / (right - left)
    return hull[-1][1]


def draw(points, hull, name, path):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    axes.plot([size / MIB for size, _ in points], [100 * hits for _, hits in points], "o-", markersize=3, label="measured")
    axes.plot([size / MIB for size, _ in hull], [100 * hits for _, hits in hull], "--", label="concave fit")
    axes.set_xlabel("memory, MiB")
    axes.set_ylabel("hit ratio, %")
    axes.set_title(f"application 3, {name}")
    axes.legend()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebbtide", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--applications", type=lambda text: [int(number) for number in text.split(",")])
    parser.add_argument("--svg", type=pathlib.Path, help="draw Fig. 2; needs matplotlib")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = write_traces(given.seed, pathlib.Path(folder))
        chosen = {number: traces[number] for number in given.applications or traces}
        found = table_1(given.ebbtide, chosen)
        failing_entropy(given.ebbtide, chosen, 9)
        table_2(found, [number for number in (4, 3) if number in found])
        if 3 in traces:
            figure_2(given.ebbtide, traces[3][0], given.svg)


if __name__ == "__main__":
    main()

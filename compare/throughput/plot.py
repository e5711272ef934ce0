"""Draws what `ebbtide-throughput compare` measured, beside its CSV file, and prints it as tables for Markdown.

usage: plot.py RESULTS.csv

Per value size and distribution: single-thread.svg, a thread's speed by engine and mix (the Segcache paper's Fig. 9), and
scaling.svg, the speed by the number of threads (its Fig. 10a). Lines and whiskers go from the slowest round to the
fastest.
"""

import csv
import sys
from itertools import groupby
from pathlib import Path

import matplotlib

matplotlib.use("svg")
# The same file from the same numbers.
matplotlib.rcParams.update({"svg.hashsalt": "ebbtide", "svg.fonttype": "none", "font.size": 9})
from matplotlib import pyplot  # noqa: E402

COLOURS = {"ebbtide": "C0", "segcache": "C1", "quick_cache": "C2", "moka": "C3", "foyer": "C4", "map": "0.6"}
HATCHES = {"get": "", "batch": "//", "zero-copy": ".."}
MARKERS = {"get": "o", "batch": "s", "zero-copy": "^"}
M = 1e6


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["threads"] = int(row["threads"])
        for name in ("ops_per_second", "ops_per_second_min", "ops_per_second_max"):
            row[name] = float(row[name]) / M
    return rows


def label(row):
    return row["engine"] if row["mode"] == "get" else f"{row['engine']} {row['mode']}"


def spread(rows):
    """Distances from the medians to the slowest and the fastest round."""
    below = [row["ops_per_second"] - row["ops_per_second_min"] for row in rows]
    above = [row["ops_per_second_max"] - row["ops_per_second"] for row in rows]
    return [below, above]


def style(row):
    return {"color": COLOURS.get(row["engine"], "k"), "label": label(row)}


def in_order(values):
    return list(dict.fromkeys(values))


def single_thread(rows, title, path):
    rows = [row for row in rows if row["threads"] == 1]
    if not rows:
        return
    mixes, labels = in_order(row["mix"] for row in rows), in_order(map(label, rows))
    figure, axes = pyplot.subplots(figsize=(9, 3.5), layout="constrained")
    width = 0.85 / len(labels)
    for i, name in enumerate(labels):
        bars = [row for row in rows if label(row) == name]
        places = [mixes.index(row["mix"]) + (i - len(labels) / 2 + 0.5) * width for row in bars]
        heights = [row["ops_per_second"] for row in bars]
        axes.bar(places, heights, width, yerr=spread(bars), error_kw={"lw": 0.7}, hatch=HATCHES[bars[0]["mode"]],
                 edgecolor="white", **style(bars[0]))
    axes.set(title=f"{title}, 1 thread on 1 core", ylabel="M requests/s", xticks=range(len(mixes)), xticklabels=mixes)
    axes.legend(fontsize=7, ncols=2)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def scaling(rows, title, path):
    """One panel per mix; the lines of shared keys are whole, those of disjoint ones dashed, of private caches dotted."""
    threads = sorted({row["threads"] for row in rows})
    if len(threads) < 2:
        return
    mixes = in_order(row["mix"] for row in rows)
    figure, panels = pyplot.subplots(1, len(mixes), figsize=(3 * len(mixes), 3.2), layout="constrained", squeeze=False)
    for axes, mix in zip(panels[0], mixes):
        of_mix = [row for row in rows if row["mix"] == mix]
        for name in in_order(map(label, of_mix)):
            line = [row for row in of_mix if label(row) == name]
            for sharing, dashes in (("shared", "-"), ("disjoint", "--"), ("private", ":")):
                points = [row for row in line if row["sharing"] == sharing or row["threads"] == 1]
                points.sort(key=lambda row: row["threads"])
                if len(points) > 1:
                    look = style(points[0]) | ({} if sharing == "shared" else {"label": None})
                    axes.errorbar([row["threads"] for row in points], [row["ops_per_second"] for row in points],
                                  yerr=spread(points), ls=dashes, marker=MARKERS[points[0]["mode"]], ms=3, lw=1, **look)
        axes.set(title=mix, xlabel="threads", xticks=threads, ylim=(0, None))
    panels[0][0].set_ylabel("M requests/s")
    panels[0][0].legend(fontsize=6)
    figure.suptitle(title)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def table(rows, title, speed):
    """A line per engine and mode, a column per mix and number of threads."""
    columns = in_order((row["mix"], row["threads"], row["sharing"]) for row in rows)
    print(f"| {title} | " + " | ".join(f"{mix}, {n} {sharing}" if n > 1 else f"{mix}, 1"
                                           for mix, n, sharing in columns) + " | hit ratio (fill, 1) | RSS MiB |")
    print("|---" * (len(columns) + 3) + "|")
    for name in in_order(map(label, rows)):
        line = {(row["mix"], row["threads"], row["sharing"]): row for row in rows if label(row) == name}
        cells = [f"{speed(line[at]):.2f}" if at in line else "-" for at in columns]
        fill = line.get(("fill", 1, "shared"))
        memory = [f"{float(fill['hit_ratio']):.3f}", f"{int(fill['rss_bytes']) / 2**20:.0f}"] if fill else ["-", "-"]
        print(f"| {name} | " + " | ".join(cells + memory) + " |")
    print()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    rows = read(path)

    def group(row):
        return row["value_bytes"], row["distribution"]

    for (value, distribution), members in groupby(sorted(rows, key=group, reverse=True), key=group):
        members = list(members)
        exponent, _, churn = distribution.partition(":")
        title = f"values of {value} B, Zipf {exponent}" + (f", {churn} new keys per request" if churn else "")
        name = f"{path.stem}-{value}-{distribution.replace(':', '-churn-')}"
        single_thread(members, title, path.with_name(f"{name}-single-thread.svg"))
        scaling(members, title, path.with_name(f"{name}-scaling.svg"))
        print(f"{title}\n")
        table(members, "M requests/s", lambda row: row["ops_per_second"])
        table(members, "M requests per processor second", lambda row: 1000 / float(row["cpu_ns_per_op"]))


if __name__ == "__main__":
    main()

"""Miss ratios at equal memory and memory for equal miss ratios: the Segcache paper's Figs. 6 and 7.

Whole traces, at shares of the footprint; between two of them a curve is interpolated by the logarithm of memory, as in
missratio/interpolation.py. Cells are kept in target/storage by the program's digest: only a new build measures again.
"""
import hashlib
import pathlib

import results
from storage.workloads import ENGINES, PRESETS, ROOT, STORAGE, prepare, replay

# Of missratio, which storage.workloads has put on the path.
import interpolation

# From the higher miss ratio of Ebbtide's to where the paper's other systems have the production one.
SHARES = {
    "c": (0.08, 0.115, 0.16, 0.225, 0.32, 0.45, 0.63),
    "n": (0.09, 0.13, 0.2, 0.3, 0.45, 0.68, 1.0),
    "mix": (0.007, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1),
    "u1": (0.055, 0.08, 0.115, 0.16, 0.23, 0.33, 0.48),
    # Ebbtide takes 256 KiB at least.
    "u2": (0.134, 0.19, 0.28, 0.4, 0.6),
}
OURS = "ebbtide"
FIVE = ("slab", "memcached", "memcached-crawler", "hyperbolic", "lhd")
BASELINE = "slab"
# The paper's plateau: STEP times the memory lowers the miss ratio by less than GAIN.
STEP, GAIN = 1.05, 0.0005


def measure(names):
    folder = ROOT / "compare/results/storage"
    rows = results.Rows("storage", "memory", ["workload", "server", "footprint", "memory", "miss_ratio"])
    for name in names:
        workload = prepare(name)
        for engine in (OURS, *FIVE):
            for memory, ratio in curve(workload, engine):
                rows.add(workload=name, server=engine, footprint=workload.footprint, memory=memory, miss_ratio=ratio)
    curves = {name: {engine: points(rows, name, engine) for engine in (OURS, *FIVE)} for name in names}
    show_miss_ratios(curves, folder / "fig6.svg")
    show_memory(curves, folder / "fig7.svg")


def curve(workload, engine):
    """(memory, miss ratio) of an engine; what this build has measured is read."""
    digest = hashlib.sha256(STORAGE.read_bytes()).hexdigest()[:12]
    kept = pathlib.Path(ROOT / f"compare/target/storage/{digest}-{workload.requests.stem}-{engine}.txt")
    memories = [int(workload.footprint * share) for share in SHARES[workload.name]]
    known = dict(map(parsed, kept.read_text().splitlines())) if kept.exists() else {}
    for memory in memories:
        if memory not in known:
            [report] = replay(workload, engine, [memory])
            known[memory] = report["miss_ratio"]
            kept.parent.mkdir(parents=True, exist_ok=True)
            with open(kept, "a") as file:
                file.write(f"{memory} {known[memory]}\n")
    return [(memory, known[memory]) for memory in memories]


def parsed(line):
    memory, ratio = line.split()
    return int(memory), float(ratio)


def points(rows, name, engine):
    chosen = [row for row in rows.rows if row["workload"] == name and row["server"] == engine]
    return sorted((row["memory"], row["miss_ratio"]) for row in chosen)


def plateau(points):
    """The least memory from which on more wins less than the paper's gain; the last one if there is none."""
    low, high = points[0][0], points[-1][0]
    memory = low
    while memory * STEP <= high:
        if interpolation.ratio_at(points, memory) - interpolation.ratio_at(points, memory * STEP) < GAIN:
            return memory
        memory *= STEP
    return high


def show_miss_ratios(curves, path):
    groups, lines = {}, []
    for name, found in curves.items():
        large = plateau(found[OURS])
        for size, memory in (("large", large), ("half", large / 2)):
            at = {engine: interpolation.ratio_at(points, memory) for engine, points in found.items()}
            if None in at.values():
                lines.append([name, size, f"{memory / 1e6:.2f} MB", *["-"] * (len(at) + 1)])
                continue
            relative = {engine: ratio / at[BASELINE] for engine, ratio in at.items()}
            groups[f"{name} {size}"] = relative
            best = min(FIVE, key=at.get)
            lines.append([name, size, f"{memory / 1e6:.2f} MB", f"{at[OURS]:.4f}", *(
                f"{relative[engine]:.2f}" for engine in at), f"{at[OURS] / at[best] - 1:+.0%} ({ENGINES[best]})"])
    header = ["workload", "size", "memory", "misses of ebbtide", *(ENGINES[engine] for engine in (OURS, *FIVE)),
              "beside the best of five"]
    results.markdown(header, lines)
    draw(groups, f"miss ratio, {ENGINES[BASELINE]} = 1", path)


def targets(name, points):
    """The miss ratio in production and a higher one; where none is published, those of Fig. 6."""
    if published := PRESETS[name].miss_ratios:
        return published
    large = plateau(points)
    return tuple(filter(None, (interpolation.ratio_at(points, large), interpolation.ratio_at(points, large / 2))))


def show_memory(curves, path):
    groups, lines = {}, []
    for name, found in curves.items():
        for size, target in zip(("production", "higher"), targets(name, found[OURS])):
            ours = interpolation.memory_for(found[OURS], target)
            if ours is None:
                lines.append([name, size, f"{target:.4f}", *["-"] * (len(FIVE) + 2)])
                continue
            at = {engine: interpolation.memory_for(points, target) for engine, points in found.items()}
            groups[f"{name} {size}"] = {engine: memory / ours for engine, memory in at.items() if memory}
            five = [found[engine] for engine in FIVE]
            lines.append([name, size, f"{target:.4f}", f"{ours / 1e6:.2f} MB", *(
                interpolation.compared(ours, found[engine], target) for engine in FIVE),
                interpolation.beside_least(ours, five, target)])
    header = ["workload", "size", "miss ratio", "memory of ebbtide", *(f"over {ENGINES[engine]}" for engine in FIVE),
              "beside the least of five"]
    results.markdown(header, lines)
    draw(groups, "memory for the same miss ratio, ebbtide = 1", path)


def draw(groups, label, path):
    pyplot = results.plotting()
    figure, axes = pyplot.subplots(figsize=(9, 3.2))
    engines = (OURS, *FIVE)
    width = 0.8 / len(engines)
    for place, engine in enumerate(engines):
        at = [index + (place - (len(engines) - 1) / 2) * width for index in range(len(groups))]
        axes.bar(at, [heights.get(engine, 0) for heights in groups.values()], width, label=ENGINES[engine])
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.set_xticks(range(len(groups)), groups, rotation=45, ha="right")
    axes.set_ylabel(label)
    axes.legend(frameon=False, fontsize=7)
    results.save(pyplot, figure, path)

"""The plots, after the figures of the Segcache paper: the same SVG from the same numbers."""
import re

import matplotlib

import policies
import tables
from systems import DEFAULT_POLICY, EBBTIDE_POLICIES

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "ebbtide", "svg.fonttype": "none", "font.size": 9})
from matplotlib import pyplot  # noqa: E402

SYSTEMS = {"ebbtide": tables.OURS, "ebbtide, fine segments": tables.OURS_FINE} | tables.COLUMNS
BASELINE = "slab eviction"


def draw(ratios, out):
    presets = tables.preset_traces(ratios)
    places = tables.by_place(ratios)
    real = {place: found for place, found in places.items() if not tables.is_preset(place[0])}
    relative_miss_ratio(ratios, presets, out / "fig6-relative-miss-ratio.svg")
    relative_memory(ratios, presets, out / "fig7-memory-for-the-same-miss-ratio.svg")
    variants(ratios, presets, r"metadata \+(\d+)", "bytes more per object", out / "fig8-metadata.svg")
    variants(ratios, presets, r"merge run (\d+)", "segments merged", out / "fig10b-merge-run.svg")
    variants(ratios, presets, r"segment 1/(\d+)", "segments in the memory, at least", out / "fig10c-segment-size.svg")
    against_policies(real, out / "policies-charged.svg")
    own_policies(real, out / "policy-ablation.svg")


def save(figure, path):
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)


def bars(groups, label, path):
    """`groups`: {group: {name: height}}."""
    names = [name for name in SYSTEMS if any(name in heights for heights in groups.values())]
    figure, axes = pyplot.subplots(figsize=(2 + 1.1 * len(groups), 3.2))
    width = 0.8 / max(len(names), 1)
    for index, name in enumerate(names):
        heights = [heights.get(name, 0) for heights in groups.values()]
        axes.bar([place + index * width for place in range(len(groups))], heights, width, label=name)
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.set_xticks([place + 0.4 for place in range(len(groups))], groups, rotation=45, ha="right")
    axes.set_ylabel(label)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, path)


def sizes(trace, points):
    """Our memory at the miss ratio in production and at a higher one, by name, with that miss ratio."""
    both = zip(("production", "higher"), tables.targets(trace, points))
    found = {name: (tables.memory_for(points, target), target) for name, target in both}
    return {name: pair for name, pair in found.items() if pair[0]}


def relative_miss_ratio(ratios, presets, path):
    groups = {}
    for trace in presets:
        found = tables.curves(ratios, trace)
        for size, (memory, _) in sizes(trace, found.get(tables.OURS, [])).items():
            at = {name: tables.ratio_at(found.get(system, []), memory) for name, system in SYSTEMS.items()}
            if at[BASELINE]:
                groups[f"{trace} {size}"] = {name: ratio / at[BASELINE] for name, ratio in at.items() if ratio}
    bars(groups, f"miss ratio, {BASELINE} = 1", path)


def relative_memory(ratios, presets, path):
    """Over memcached's, as slab eviction does not get there with the memory of some curves."""
    groups = {}
    for trace in presets:
        found = tables.curves(ratios, trace)
        for size, (_, target) in sizes(trace, found.get(tables.OURS, [])).items():
            at = {name: tables.memory_for(found.get(system, []), target) for name, system in SYSTEMS.items()}
            if at["memcached"]:
                groups[f"{trace} {size}"] = {name: memory / at["memcached"] for name, memory in at.items() if memory}
    bars(groups, "memory for the same miss ratio, memcached = 1", path)


def variants(ratios, presets, pattern, label, path):
    """Ours with one setting changed, over ours with the least of it."""
    figure, axes = pyplot.subplots(figsize=(4.2, 3))
    for trace in presets:
        points = []
        for cell, ratio in ratios.items():
            match = re.fullmatch(pattern, cell.policy)
            if cell.trace == trace and match:
                points.append((int(match[1]), ratio))
        points.sort()
        if points:
            axes.plot([x for x, _ in points], [y / points[0][1] for _, y in points], marker="o", markersize=3, label=trace)
    if "segment 1/" in pattern:
        axes.set_xscale("log", base=2)
    axes.set_xlabel(label)
    axes.set_ylabel("miss ratio, relative")
    axes.legend(fontsize=7)
    save(figure, path)


def against_policies(real, path):
    """Every policy of libcachesim, charged, over ours: a box over all traces and sizes."""
    rows = {}
    for name in policies.POLICIES:
        pairs = [(found.get(("libcachesim", name)), found.get(tables.OURS)) for found in real.values()]
        rows[name] = [theirs / ours for theirs, ours in pairs if theirs and ours]
    boxes({name: values for name, values in rows.items() if values}, "miss ratio, ebbtide = 1", path)


def own_policies(real, path):
    rows = {}
    for name in EBBTIDE_POLICIES:
        pairs = [(found.get(("ebbtide", name)), found.get(tables.OURS)) for found in real.values()]
        rows[name] = [other / ours for other, ours in pairs if other and ours]
    boxes({name: values for name, values in rows.items() if values}, f"miss ratio, {DEFAULT_POLICY} = 1", path)


def boxes(rows, label, path):
    if not rows:
        return
    figure, axes = pyplot.subplots(figsize=(1.5 + 0.45 * len(rows), 3))
    axes.boxplot(list(rows.values()), tick_labels=list(rows), whis=(0, 100))
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.tick_params(axis="x", rotation=60)
    axes.set_ylabel(label)
    axes.set_yscale("log")
    save(figure, path)

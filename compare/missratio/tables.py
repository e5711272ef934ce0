"""The table of results as Markdown: ours beside the peers, cell by cell, and what it says about the bars."""
import math
from collections import defaultdict
from statistics import median

import policies
from interpolation import beside_least, compared, memory_for, ratio_at
from preset_table import PRESETS
from presets import CHANGES, FINE
from systems import DEFAULT_POLICY

# Below, 64 segments are small and an object is a good part of one: medians are given with and without such cells.
SMALL_MEMORY = 2 << 20
OURS = ("ebbtide", DEFAULT_POLICY)
OURS_FINE = ("ebbtide", FINE)
MEMCACHED = ("memcached", "crawler")
SEGCACHE = ("segcache", "merge")
PROACTIVE = ("proactive", "lru")
COLUMNS = {
    "memcached": MEMCACHED,
    "memcached, no crawler": ("memcached", "no crawler"),
    "segcache": SEGCACHE,
    "redis": ("redis", "allkeys-lru"),
    "slab eviction": ("slab", "slab eviction"),
    "LRU, proactive expiry": PROACTIVE,
    "Hyperbolic, sampling": ("sampling", "hyperbolic"),
    "LHD, sampling": ("sampling", "lhd"),
}
# In the names of traces that Twitter published.
TWITTER = "twitter"
# The systems of the Segcache paper, itself left out.
PAPER = ("memcached", "memcached, no crawler", "slab eviction", "Hyperbolic, sampling", "LHD, sampling")


def by_place(ratios):
    """{(trace, share, memory): {(system, policy): miss ratio}}."""
    places = defaultdict(dict)
    for cell, ratio in ratios.items():
        places[cell.trace, cell.share, cell.memory][cell.system, cell.policy] = ratio
    return dict(sorted(places.items()))


def is_preset(trace):
    return trace.split("-")[0] in PRESETS


def best_policy(found):
    """The online policy of libcachesim with the fewest misses, and its miss ratio."""
    online = {name: found["libcachesim", name] for name in policies.ONLINE if ("libcachesim", name) in found}
    name = min(online, key=online.get)
    return name, online[name]


def traces_table(places):
    """One row per trace and size; in bold what misses less than we do."""
    yield f"| trace | share | memory | ebbtide | best policy, charged | {' | '.join(COLUMNS)} | Belady |"
    yield "|---" * (6 + len(COLUMNS)) + "|"
    for (trace, share, memory), found in places.items():
        if is_preset(trace) or ("libcachesim", "lru") not in found:
            continue
        ours = found.get(OURS)
        name, best = best_policy(found)
        texts = [f"{number(best, ours)} {name}"]
        texts += [number(found.get(column), ours) for column in COLUMNS.values()]
        texts.append(number(found.get(("libcachesim", "belady")), None))
        small = "" if memory >= SMALL_MEMORY else " *"
        yield f"| {trace} | {float(share):.0%}{small} | {memory} | {number(ours, None)} | {' | '.join(texts)} |"


def number(ratio, ours):
    if ratio is None:
        return "-"
    return f"**{ratio:.4f}**" if ours is not None and ratio < ours else f"{ratio:.4f}"


def summary(places):
    """Ours over each of the peers that the bars name, cell by cell."""
    yield "| against | cells | median | from 2 MiB | range | lost |"
    yield "|---|---|---|---|---|---|"
    peers = {
        "memcached with crawler": lambda found: found.get(MEMCACHED),
        "crate segcache": lambda found: found.get(SEGCACHE),
        "best policy, charged": lambda found: best_policy(found)[1],
        "exact LRU with proactive expiry": lambda found: found.get(PROACTIVE),
    }
    for label, peer in peers.items():
        ratios = {}
        for place, found in places.items():
            if not is_preset(place[0]) and ("libcachesim", "lru") in found and OURS in found and peer(found):
                ratios[place] = found[OURS] / peer(found)
        if not ratios:
            continue
        large = [ratio for (_, _, memory), ratio in ratios.items() if memory >= SMALL_MEMORY] or ratios.values()
        lost = [f"{trace} {float(share):.0%} ({ratio:.2f})" for (trace, share, _), ratio in ratios.items() if ratio > 1]
        spread = f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f}"
        medians = f"{median(ratios.values()):.3f} | {median(large):.3f}"
        yield f"| {label} | {len(ratios)} | {medians} | {spread} | {len(lost)}: {', '.join(lost)} |"


def curves(ratios, trace):
    """{(system, policy): [(memory, miss ratio)] by memory} of the curves over memory of a trace."""
    found = defaultdict(list)
    for (name, _, memory), systems in by_place(ratios).items():
        if name == trace:
            for system, ratio in systems.items():
                found[system].append((memory, ratio))
    wide = {system: sorted(points) for system, points in found.items()}
    return {system: points for system, points in wide.items() if len(points) > 2}


def preset_traces(ratios):
    """Those of the presets as they are now, and of the published traces: results at other scales may be kept."""
    there = {cell.trace for cell in ratios}
    published = sorted(trace for trace in there if trace.split("-")[1:2] == [TWITTER])
    return [trace for name, preset in PRESETS.items() if (trace := f"{name}-{preset.requests}") in there] + published


def presets_table(ratios):
    """Memory for the same miss ratio, ours over each system's, with segments by default and with fine ones."""
    columns = {"merge": ("ebbtide", "merge")} | {name: system for name, system in COLUMNS.items() if name != "redis"}
    yield "| preset | miss ratio | segments | our memory, bytes | " + " | ".join(columns) + " | least of the paper's five |"
    yield "|---" * (5 + len(columns)) + "|"
    for trace in preset_traces(ratios):
        found = curves(ratios, trace)
        for target in targets(trace, found.get(OURS, [])):
            five = [found[COLUMNS[name]] for name in PAPER if COLUMNS[name] in found]
            for segments, system in (("default", OURS), ("fine", OURS_FINE)):
                if (ours := memory_for(found.get(system, []), target)) is None:
                    continue
                cells = [compared(ours, found.get(column), target) for column in columns.values()]
                cells.append(beside_least(ours, five, target))
                yield f"| {trace} | {target:.4f} | {segments} | {ours:.0f} | {' | '.join(cells)} |"


def targets(trace, points):
    """The miss ratio in production and a higher one. Where nothing is published, as the paper chooses its sizes: where 5 %
    more memory wins less than 0.0005, and at half of that memory if the curve reaches so far."""
    if published := PRESETS[trace.split("-")[0]].miss_ratios:
        return published
    for (less, high), (more, low) in zip(points, points[1:]):
        if (high - low) / math.log(more / less) * math.log(1.05) < 0.0005:
            half = ratio_at(points, less / 2)
            return (high,) if half is None else (high, half)
    return ()


def expiry_table(ratios):
    """Our miss ratios over those of exact LRU with proactive expiry, at equal memory."""
    yield "| preset | segments | least | median | most | sizes at which we miss more |"
    yield "|---|---|---|---|---|---|"
    for trace in preset_traces(ratios):
        found = curves(ratios, trace)
        theirs = dict(found.get(PROACTIVE, []))
        for segments, system in (("default", OURS), ("fine", OURS_FINE)):
            both = [ratio / theirs[memory] for memory, ratio in found.get(system, []) if memory in theirs]
            if both:
                more = sum(ratio > 1 for ratio in both)
                spread = f"{min(both):.3f} | {median(both):.3f} | {max(both):.3f}"
                yield f"| {trace} | {segments} | {spread} | {more} of {len(both)} |"


def decomposition_table(ratios):
    """What expiry and overwriting cost ours and exact LRU."""
    yield "| preset | memory | trace | ebbtide | LRU, proactive expiry | ratio |"
    yield "|---|---|---|---|---|---|"
    for (trace, _, memory), found in by_place(ratios).items():
        for name in CHANGES:
            ours, theirs = found.get(("ebbtide", name)), found.get(("proactive", name))
            if ours and theirs:
                yield f"| {trace} | {memory} | {name} | {ours:.4f} | {theirs:.4f} | {ours / theirs:.2f} |"

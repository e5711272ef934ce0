"""The table of results as Markdown: ours beside the peers, cell by cell, and what it says about the bars."""
from collections import defaultdict
from statistics import median

import policies
from presets import PRESETS
from systems import DEFAULT_POLICY

# Below, 64 segments are small and an object is a good part of one: medians are given with and without such cells.
SMALL_MEMORY = 2 << 20
OURS = ("ebbtide", DEFAULT_POLICY)
MEMCACHED = ("memcached", "crawler")
SEGCACHE = ("segcache", "merge")
PROACTIVE = ("proactive", "lru")
COLUMNS = {
    "memcached": MEMCACHED,
    "segcache": SEGCACHE,
    "redis": ("redis", "allkeys-lru"),
    "slab eviction": ("slab", "slab eviction"),
    "LRU, proactive expiry": PROACTIVE,
    "Hyperbolic, sampling": ("sampling", "hyperbolic"),
    "LHD, sampling": ("sampling", "lhd"),
}


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
    longest = max(map(len, wide.values()), default=0)
    return {system: points for system, points in wide.items() if len(points) > longest // 2}


def memory_for(points, target):
    """The least memory with so low a miss ratio, by straight lines between the points; None beyond them."""
    for (less, high), (more, low) in zip(points, points[1:]):
        if low <= target < high:
            return less + (more - less) * (high - target) / (high - low)
    return points[0][0] if points and points[0][1] <= target else None


def presets_table(ratios):
    """Memory for the same miss ratio, ours over each system's."""
    yield "| preset | miss ratio | our memory | " + " | ".join(COLUMNS) + " |"
    yield "|---" * (3 + len(COLUMNS)) + "|"
    for trace in sorted({cell.trace for cell in ratios if is_preset(cell.trace)}):
        found = curves(ratios, trace)
        for target in targets(found.get(OURS, [])):
            ours = memory_for(found[OURS], target)
            cells = []
            for column in COLUMNS.values():
                theirs = memory_for(found.get(column, []), target)
                cells.append("-" if theirs is None else f"{ours / theirs:.2f}")
            yield f"| {trace} | {target:.4f} | {ours:.0f} | {' | '.join(cells)} |"


def targets(points):
    """Our miss ratios where more memory is of little use any more, and at half that memory."""
    for memory, ratio in points:
        if ratio <= points[-1][1] * 1.1:
            half = min(points, key=lambda point: abs(point[0] - memory / 2))
            return [ratio, half[1]]
    return []

"""The Segcache paper's workloads from the traces that Twitter published (twitter/cache-trace), instead of the presets.

The folder has the traces of the clusters as they are published, each in one file: `cluster52.sort.zst`, `cluster052.gz` and
the like. They are converted to csv; with --one-of N one key of N, chosen by hash, is kept, as whole traces have billions of
requests. mix is n, u2, c and livepipeline merged, each with its own keys.
"""
import re
import sys

import presets
import systems
import tables
import traces

CLUSTERS = {"c": 52, "u1": 17, "u2": 18, "n": 44}
# What the paper calls livepipeline is a part of mix alone.
MIX = (44, 18, 52, 23)
# Shares of the footprint. A real week touches more keys than a preset beside those in use, so they span two decades.
SHARES = ("0.01", "0.02", "0.04", "0.08", "0.16", "0.32", "0.63")


def run(evaluation, folder, only, one_of):
    there = found(folder)
    wanted = {name: (cluster,) for name, cluster in CLUSTERS.items()} | {"mix": MIX}
    chosen = {name: parts for name, parts in wanted.items() if not only or name in only}
    lacking = {name: [part for part in parts if part not in there] for name, parts in chosen.items()}
    for name, parts in lacking.items():
        if parts:
            print(f"{name} is left out: {folder} has no trace of cluster {', '.join(map(str, parts))}", flush=True)
    chosen = {name: parts for name, parts in chosen.items() if not lacking[name]}
    if not chosen:
        sys.exit(f"{folder}: no trace of the clusters {', '.join(map(str, [*CLUSTERS.values(), MIX[-1]]))}: "
                 "name the folder of files such as cluster52.sort.zst")
    for name, parts in chosen.items():
        path = converted(evaluation, name, [there[part] for part in parts], one_of)
        workload = presets.Workload(path, evaluation.load(path).footprint_bytes(), SHARES, None)
        evaluation.run_ours(path, workload.sizes(), (systems.DEFAULT_POLICY,))
        presets.evaluate(evaluation, {name: with_ablations(evaluation, workload)})


def found(folder):
    """{cluster: its file}."""
    pairs = ((re.match(r"cluster0*(\d+)\b", path.name), path) for path in sorted(folder.iterdir()))
    return {int(match[1]): path for match, path in pairs if match}


def converted(evaluation, name, sources, one_of):
    """Converts the sources to one csv trace, with one key of `one_of`, and returns its path."""
    path = evaluation.folder / "twitter" / f"{name}-{tables.TWITTER}-{one_of}.csv.zst"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [path.with_name(f"{path.name}.{number}.part.csv.zst") for number in range(len(sources))]
    for source, part in zip(sources, parts):
        how = ["sample", "--one-of", str(one_of)] if one_of > 1 else ["convert"]
        trace_command(evaluation, [*how, source], part)
    if len(parts) > 1:
        parts.append(path.with_name(f"{path.name}.merged.part.csv.zst"))
        trace_command(evaluation, ["merge", "--align", *parts[:-1]], parts[-1])
    # Last, as what is there is not made again.
    parts[-1].rename(path)
    for part in parts[:-1]:
        part.unlink()
    return path


def trace_command(evaluation, arguments, out):
    systems.lines([evaluation.binary, "trace", *arguments, "--to", "csv", "--overwrite", "--output", out])


def with_ablations(evaluation, workload):
    """At the size whose miss ratio is nearest to that in production."""
    name = traces.name_of(workload.path)
    points = tables.curves(evaluation.ours.ratios, name).get(tables.OURS, [])
    targets = tables.targets(name, points)
    if not (points and targets):
        return workload
    memory, _ = min(points, key=lambda point: abs(point[1] - targets[0]))
    share = next(share for share, size in workload.sizes().items() if size == memory)
    return presets.Workload(workload.path, workload.footprint, workload.shares, share)

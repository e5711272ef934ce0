"""The generated workloads: curves over memory, and what metadata, runs and segment sizes do to ebbtide.

`ebbtide generate --preset` makes the traces, small ones: sizes are shares of the footprint, so the scale matters little as
long as a cache has some hundred segments.
"""
import json
import pathlib
import subprocess
from dataclasses import dataclass, replace

import numpy

import systems
import traces
from preset_table import PRESETS
from results import Cell


@dataclass(frozen=True)
class Workload:
    """A trace, the bytes of all its keys and values, at which shares of them the curve is taken, and at which of these the
    ablations."""

    path: pathlib.Path
    footprint: int
    shares: tuple
    ablation_share: str | None

    def sizes(self):
        return {share: int(self.footprint * float(share)) for share in self.shares}


# Redis is no system of the paper.
FAST_PEERS = {name: system for name, system in systems.FAST_PEERS.items() if name != "redis"}
# The paper's figure of metadata shows these, those of runs and segments the first.
PADDED = ("c", "n")
SEGMENTED = ("c",)
# What of a trace is left out to see what it costs, and where.
DECOMPOSED = ("c", "mix")
CHANGES = {
    "as it is": lambda trace: trace,
    "without TTLs": lambda trace: replace(trace, ttl=trace.ttl * 0),
    "without sets and deletes": lambda trace: trace.rows(trace.op == traces.GET),
    "without both": lambda trace: replace(trace, ttl=trace.ttl * 0).rows(trace.op == traces.GET),
}
# libcachesim's LHD is fed row by row from Python, which takes long where most requests hit.
WITH_LHD = ("c", "mix")
# Bytes added to every value, for the ablation of metadata; and the cache of the ablations, as a share.
PADDING = (0, 16, 32, 48)
ABLATION_SHARE = {"c": "0.2", "n": "0.25", "mix": "0.032"}
MERGE_RUNS = (2, 3, 4, 5, 6, 8)
SEGMENTS = (32, 64, 128, 256, 512, 1024)
LEAST_SEGMENT = 4096
# Caches of 64 MiB and more have a thousand segments by default, such small ones fewer: this is what a large one does.
FINE = "s3fifo, fine segments"
FINE_SEGMENTS = 512


def run(evaluation, only):
    chosen = {name: preset for name, preset in PRESETS.items() if not only or name in only}
    made = {name: generated(evaluation, name, preset.requests) for name, preset in chosen.items()}
    evaluate(evaluation, {name: Workload(*made[name], preset.shares, ABLATION_SHARE.get(name)) for name, preset in chosen.items()})


def evaluate(evaluation, workloads):
    """The curves of the workloads, and the ablations of some: {preset: workload}."""
    sizes = {name: workload.sizes() for name, workload in workloads.items()}
    for name, workload in workloads.items():
        evaluation.run_ours(workload.path, sizes[name], (systems.DEFAULT_POLICY, "merge"))
        for place in sizes[name].items():
            variant(evaluation, workload.path, place, FINE, None, segments_of(place[1], FINE_SEGMENTS))
        evaluation.run_peers(workload.path, sizes[name], FAST_PEERS)
    for name, workload in workloads.items():
        ablations(evaluation, name, workload)
    # LHD and the crate take longer than all others together: they come last, and at every other size.
    every_other = {name: dict(list(places.items())[::2]) for name, places in sizes.items()}
    for name in WITH_LHD:
        if name in workloads:
            evaluation.run_policy(workloads[name].path, every_other[name], systems.LHD)
    for name, workload in workloads.items():
        evaluation.run_peers(workload.path, every_other[name], systems.SLOW_PEERS)


def ablations(evaluation, name, workload):
    share = workload.ablation_share
    if share is None:
        return
    place = share, workload.sizes()[share]
    if name in PADDED:
        metadata(evaluation, workload.path, place)
    if name in SEGMENTED:
        runs_and_segments(evaluation, workload.path, place)
    if name in DECOMPOSED:
        decompositions(evaluation, workload.path, place)


def generated(evaluation, preset, requests):
    """The trace and its footprint: the bytes of all its keys and values."""
    path = evaluation.folder / "presets" / f"{preset}-{requests}.csv.zst"
    report = pathlib.Path(f"{path}.report")
    if not path.exists() or not report.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [evaluation.binary, "generate", "--preset", preset, "--requests", requests, "--seed", "1"]
        command += ["--output", path, "--json"]
        report.write_text("\n".join(systems.lines(command)))
    return path, json.loads(report.read_text())["footprint_bytes"]


def metadata(evaluation, path, place):
    for padding in PADDING:
        longer = lambda trace: replace(trace, value_size=trace.value_size + padding)
        variant(evaluation, path, place, f"metadata {padding:+d}", longer)


def runs_and_segments(evaluation, path, place):
    for merged in MERGE_RUNS:
        variant(evaluation, path, place, f"merge run {merged}", None, ["--merge-run", str(merged)], "merge")
    for count in SEGMENTS:
        variant(evaluation, path, place, f"segment 1/{count}", None, segments_of(place[1], count))


def segments_of(memory, count):
    """The arguments for at least `count` segments in the memory."""
    return ["--segment-size", str(max(1 << (memory // count).bit_length() - 1, LEAST_SEGMENT))]


def decompositions(evaluation, path, place):
    """What overwriting and expiry cost ebbtide, and what they cost exact LRU with proactive expiry."""
    for name, change in CHANGES.items():
        variant(evaluation, path, place, name, change)
        variant(evaluation, path, place, name, change, system="proactive")


def variant(evaluation, path, place, name, change, more=(), policy=systems.DEFAULT_POLICY, system="ebbtide"):
    """A cell of a changed trace, or of other settings; `place` is a share of the footprint, and as much memory."""
    share, memory = place
    ours = system == "ebbtide"
    metadata = "all-in" if ours else systems.FAST_PEERS[system][2]
    cell = Cell(traces.name_of(path), share, memory, system, name, metadata)
    known = evaluation.ours if ours else evaluation.peers
    if cell in known:
        return
    if change:
        path = written(evaluation, change(evaluation.load(path)))
    if ours:
        found = systems.ebbtide(evaluation.binary, path, [memory], (policy,), [*more, *evaluation.more]).values()
    else:
        found = [ratio for _, ratio in systems.peer(evaluation.peer_binary, path, [memory], system)]
    for ratio in found:
        known.add(cell, ratio)


def written(evaluation, trace):
    path = evaluation.folder / "changed.csv"
    words = numpy.array(["get", "set", "delete"])[trace.op]
    columns = (trace.time, trace.key, trace.key_size, trace.value_size, words, trace.ttl)
    with open(path, "w") as file:
        file.write("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in zip(*(column.tolist() for column in columns)))
    return path

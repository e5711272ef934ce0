"""The generated workloads: curves over memory, and what metadata, runs and segment sizes do to ebbtide.

`ebbtide generate --preset` makes the traces, small ones: sizes are shares of the footprint, so the scale matters little.
"""
import subprocess

import numpy

import systems
from evaluate import PRESET_SHARES
from results import Cell

# Requests of each: as many as give it a footprint of a few megabytes, of which a share has enough segments.
PRESETS = {"c": "3m", "u1": "12m", "u2": "25m", "n": "8m", "mix": "2m"}
# Bytes added to every value, for the ablation of metadata; and the cache of the ablations, as a share.
PADDING = (0, 8, 16, 24, 32, 48)
ABLATION_SHARE = "0.4"
MERGE_RUNS = (2, 3, 4, 5, 6, 8)
SEGMENTS = (256, 512, 1024, 2048, 4096)
LEAST_SEGMENT = 4096


def run(evaluation, only):
    for preset, requests in PRESETS.items():
        if only and preset not in only:
            continue
        path = generated(evaluation, preset, requests)
        evaluation.run(path, PRESET_SHARES, (systems.DEFAULT_POLICY, "merge"))
        ablations(evaluation, path)


def generated(evaluation, preset, requests):
    path = evaluation.folder / "presets" / f"{preset}-{requests}.csv.zst"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [evaluation.binary, "generate", "--preset", preset, "--requests", requests, "--seed", "1", "--output", path]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    return path


def ablations(evaluation, path):
    trace = evaluation.load(path)
    memory = int(trace.footprint_bytes() * float(ABLATION_SHARE))
    for padding in PADDING:
        variant(evaluation, trace, memory, f"metadata {padding:+d}", lambda: padded(evaluation, trace, padding), [])
    for merged in MERGE_RUNS:
        variant(evaluation, trace, memory, f"merge run {merged}", lambda: path, ["--merge-run", str(merged)], "merge")
    for count in SEGMENTS:
        size = max(1 << (memory // count).bit_length() - 1, LEAST_SEGMENT)
        variant(evaluation, trace, memory, f"segment 1/{count}", lambda: path, ["--segment-size", str(size)])


def variant(evaluation, trace, memory, name, path, more, policy=systems.DEFAULT_POLICY):
    cell = Cell(trace.name, ABLATION_SHARE, memory, "ebbtide", name, "all-in")
    if cell not in evaluation.ours:
        found = systems.ebbtide(evaluation.binary, path(), [memory], (policy,), more)
        if (memory, policy) in found:
            evaluation.ours.add(cell, found[memory, policy])


def padded(evaluation, trace, padding):
    """The same trace with values that are longer by so many bytes: metadata as it would be if it took as much more."""
    path = evaluation.folder / "presets" / "padded.csv"
    words = numpy.array(["get", "set", "delete"])[trace.op]
    columns = (trace.time, trace.key, trace.key_size, trace.value_size + padding, words, trace.ttl)
    with open(path, "w") as file:
        file.write("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in zip(*(column.tolist() for column in columns)))
    return path

"""The pipeline on traces that are made here."""
import subprocess
import sys
import types
from dataclasses import replace

import numpy
import pytest

import check
import policies
import presets
import results
import tables
import traces
import twitter

HEADER = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n"


def trace_of(tmp_path, rows, name="made"):
    path = tmp_path / f"{name}.csv.zst"
    text = HEADER + "".join(",".join(map(str, row)) + "\n" for row in rows)
    path.write_bytes(subprocess.run(["zstd", "-c"], input=text.encode(), capture_output=True, check=True).stdout)
    return traces.load(path, tmp_path / "cache")


def gets(keys, ttl=0, step=1):
    return [(second * step, key, 16, 84, "get", ttl) for second, key in enumerate(keys)]


def test_the_footprint_counts_every_object_once(tmp_path):
    trace = trace_of(tmp_path, [(0, 7, 16, 84, "get", 0), (1, 7, 16, 999, "set", 5), (2, 8, 10, 10, "delete", 0)])
    assert trace.footprint_bytes() == 120
    assert (trace.op.tolist(), trace.ttl.tolist(), trace.only_gets) == ([0, 1, 2], [0, 5, 0], False)


def test_a_sampled_trace_says_so_before_its_header(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "HEADER", "# one key in 2: sample=2\n" + HEADER)
    assert trace_of(tmp_path, gets([1, 2])).key.tolist() == [1, 2]


def test_another_table_is_refused(tmp_path):
    path = tmp_path / "other.csv.zst"
    path.write_bytes(subprocess.run(["zstd", "-c"], input=b"a,b\n1,2\n", capture_output=True, check=True).stdout)
    with pytest.raises(ValueError, match="header"):
        traces.load(path, tmp_path / "cache")


@pytest.mark.parametrize("policy", policies.POLICIES)
def test_what_fits_is_missed_once(tmp_path, policy):
    trace = trace_of(tmp_path, gets(list(range(50)) * 4))
    assert policies.miss_ratio(trace, policy, 1 << 20, 24) == pytest.approx(0.25)


def test_metadata_takes_space(tmp_path):
    trace = trace_of(tmp_path, gets(list(range(50)) * 4))
    assert policies.miss_ratio(trace, "lru", 50 * 100, 0) == pytest.approx(0.25)
    assert policies.miss_ratio(trace, "lru", 50 * 100, 24) == 1


@pytest.mark.parametrize("policy", policies.ONLINE)
def test_expired_objects_are_missed(tmp_path, policy):
    trace = trace_of(tmp_path, gets([1, 1, 1, 1], ttl=20, step=10))
    assert policies.miss_ratio(trace, policy, 1 << 20, 24) == 0.5


@pytest.mark.parametrize("policy", policies.ONLINE)
def test_sets_store_without_counting_and_deletes_delete(tmp_path, policy):
    rows = [(0, 1, 16, 84, "set", 100)] + gets([1, 1]) + [(3, 1, 16, 84, "delete", 0), (4, 1, 16, 84, "get", 100)]
    assert policies.miss_ratio(trace_of(tmp_path, rows), policy, 1 << 20, 24) == pytest.approx(1 / 3)


def test_sampling_makes_space(tmp_path):
    rows = []
    for second in range(3000):
        rows.append((second, 1000 + second, 16, 84, "get", 10))
        rows.append((second, second % 60, 16, 84, "get", 0))
    trace = trace_of(tmp_path, rows)
    lazy, sampled = (policies.miss_ratio(trace, "lru", 100 * 100, 0, sampling) for sampling in (False, True))
    assert sampled < lazy


def test_the_check_finds_a_wrong_pipeline(tmp_path, monkeypatch, capsys):
    keys = numpy.random.default_rng(1).zipf(1.2, 3000) % 200
    trace = trace_of(tmp_path, gets(keys.tolist()))
    plain = replace(trace, key_size=trace.key_size * 0 + 1, value_size=trace.key_size * 0)
    truth = policies.miss_ratio(plain, "lru", 20, 0)
    table = tmp_path / "reference-miss-ratios.csv"
    table.write_text(
        "trace,algo,cache_size,miss_ratio,mode,size_frac,byte_miss_ratio,n_req,note\n"
        f"made,lru,20,{truth:.6f},object,0.1,,3000,\n"
    )
    assert not check.run(tmp_path, tmp_path / "cache", None)
    monkeypatch.setitem(policies.POLICIES, "lru", policies.POLICIES["fifo"])
    assert check.run(tmp_path, tmp_path / "cache", None)
    assert "allowed" in capsys.readouterr().out


def test_results_are_kept_and_written_in_order(tmp_path):
    cells = [results.Cell("b", "0.1", 10, "slab", "x", "38"), results.Cell("a", "0.1", 10, "slab", "x", "38")]
    kept = results.Results(tmp_path / "kept.csv")
    for cell in cells:
        kept.add(cell, 0.5)
    again = results.Results(tmp_path / "kept.csv")
    assert all(cell in again for cell in cells)
    results.write(again.ratios, tmp_path / "all.csv")
    assert [line[0] for line in (tmp_path / "all.csv").read_text().splitlines()] == ["t", "a", "b"]


def test_memory_for_a_miss_ratio_lies_between_the_points():
    points = [(100, 0.5), (200, 0.3), (400, 0.3), (800, 0.1)]
    assert tables.memory_for(points, 0.4) == pytest.approx(100 * 2**0.5)
    assert tables.memory_for(points, 0.2) == pytest.approx(400 * 2**0.5)
    assert tables.memory_for(points, 0.6) is None
    assert tables.memory_for(points, 0.05) is None
    assert tables.ratio_at(points, 100 * 2**0.5) == pytest.approx(0.4)
    assert tables.ratio_at(points, 50) is None


def test_memory_is_compared_or_bounded():
    points = [(100, 0.5), (200, 0.3)]
    assert tables.compared(70, points, 0.4) == f"{70 / (100 * 2**0.5):.2f}"
    assert tables.compared(70, points, 0.2) == "< 0.35"
    assert tables.compared(70, points, 0.6) == "> 0.70"
    assert tables.compared(70, None, 0.4) == "-"
    assert tables.beside_least(70, [points, [(140, 0.5), (200, 0.3)]], 0.3) == "-65%"
    assert tables.beside_least(150, [points, [(50, 0.3), (200, 0.2)]], 0.4) == "> +200%"
    assert tables.beside_least(70, [points], 0.2) == "-"


def test_the_paper_chooses_its_sizes_where_the_curve_flattens():
    flat_from_400 = [(100, 0.5), (200, 0.3), (400, 0.2), (800, 0.199)]
    assert tables.targets("mix-6m", flat_from_400) == pytest.approx((0.2, 0.3))
    assert tables.targets("mix-6m", flat_from_400[:3]) == ()
    assert tables.targets("c-10m", flat_from_400) == (0.0485, 0.0560)


def test_the_table_of_presets_names_the_saving():
    trace = f"c-{presets.PRESETS['c'].requests}"
    cell = lambda system, memory: results.Cell(trace, str(memory), memory, *system, "24")
    ratios = {}
    for memory, ratio in ((1000, 0.06), (2000, 0.05), (4000, 0.04)):
        ratios[cell(tables.OURS, memory)] = ratio
        ratios[cell(tables.MEMCACHED, memory * 2)] = ratio
    rows = list(tables.presets_table(ratios))[2:]
    assert len(rows) == 2 and all("| 0.50 |" in row and row.endswith("-50% |") for row in rows)
    assert list(tables.expiry_table(ratios))[2:] == []
    ratios |= {cell(tables.PROACTIVE, memory): 0.05 for memory in (1000, 2000, 4000)}
    assert "| default | 0.800 | 1.000 | 1.200 | 1 of 3 |" in list(tables.expiry_table(ratios))[2]


def test_a_changed_trace_is_replayed_as_changed(tmp_path):
    trace = trace_of(tmp_path, [(0, 1, 16, 84, "set", 100)] + gets([1, 1], ttl=7))
    changed = {name: change(trace) for name, change in presets.CHANGES.items()}
    assert (changed["without TTLs"].op.tolist(), changed["without TTLs"].ttl.tolist()) == ([1, 0, 0], [0, 0, 0])
    assert changed["without sets and deletes"].ttl.tolist() == [7, 7]
    assert changed["without both"].ttl.tolist() == [0, 0]


def test_losses_are_named():
    cell = lambda system, policy, trace="t": results.Cell(trace, "0.1", 4 << 20, system, policy, "24")
    ratios = {cell(*tables.OURS): 0.22, cell("libcachesim", "lru"): 0.3, cell("libcachesim", "arc"): 0.2}
    ratios |= {cell("memcached", "crawler"): 0.4}
    text = "\n".join(tables.summary(tables.by_place(ratios)))
    assert "| memcached with crawler | 1 | 0.550 | 0.550 | 0.55 to 0.55 | 0:" in text
    assert "| best policy, charged | 1 | 1.100 | 1.100 | 1.10 to 1.10 | 1: t 10% (1.10) |" in text


def test_published_traces_are_found_by_their_cluster(tmp_path):
    for name in ("cluster052.sort.zst", "cluster17.gz", "cluster441", "notes.txt"):
        (tmp_path / name).write_text("")
    names = {cluster: path.name for cluster, path in twitter.found(tmp_path).items()}
    assert names == {52: "cluster052.sort.zst", 17: "cluster17.gz", 441: "cluster441"}


def test_a_folder_without_published_traces_is_refused_by_name(tmp_path, capsys):
    with pytest.raises(SystemExit, match="cluster52.sort.zst"):
        twitter.run(None, tmp_path, None, 1)
    assert "mix is left out" in capsys.readouterr().out


def test_ablations_are_made_where_misses_are_as_in_production(tmp_path):
    path = tmp_path / f"c-{tables.TWITTER}-1.csv.zst"
    workload = presets.Workload(path, 1000, ("0.1", "0.2", "0.4"), None)
    evaluation = types.SimpleNamespace(ours=results.Results(tmp_path / "ours.csv"))
    assert twitter.with_ablations(evaluation, workload).ablation_share is None
    for (share, memory), ratio in zip(workload.sizes().items(), (0.2, 0.05, 0.01)):
        evaluation.ours.add(results.Cell(traces.name_of(path), share, memory, *tables.OURS, "all-in"), ratio)
    assert twitter.with_ablations(evaluation, workload).ablation_share == "0.2"

"""Traces and curves as numpy arrays."""

import subprocess
import sys

import numpy
import pytest

import ebbtide

TRACE = ebbtide.Trace(
    timestamp_s=numpy.array([0, 1, 1], dtype=numpy.uint64),
    key_id=numpy.array([7, 2**63, 7], dtype=numpy.uint64),
    key_size=numpy.array([20, 21, 20], dtype=numpy.uint32),
    value_size=numpy.array([100, 0, 4000], dtype=numpy.uint32),
    op=numpy.array(["get", "delete", "set"]),
    ttl_s=numpy.array([0, 0, 60], dtype=numpy.uint32),
)


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_trace_is_read_as_it_was_written(tmp_path, name):
    ebbtide.write_trace(tmp_path / name, TRACE)
    found = ebbtide.read_trace(tmp_path / name)
    for column, expected in zip(found, TRACE):
        assert numpy.array_equal(column, expected), (column, expected)
    assert found.key_id.dtype == numpy.uint64 and found.op[1] == "delete"


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_trace_with_pools_survives_a_round_trip(tmp_path, name):
    pools = numpy.array(["users", "", "a pool with a long name " * 4])
    ebbtide.write_trace(tmp_path / name, TRACE._replace(pool=pools))
    found = ebbtide.read_trace(tmp_path / name)
    assert numpy.array_equal(found.pool, pools) and numpy.array_equal(found.ttl_s, TRACE.ttl_s)
    assert TRACE.pool is None
    with pytest.raises(ValueError, match="'a,b': the name of a pool has no comma"):
        ebbtide.write_trace(tmp_path / "wrong.csv", TRACE._replace(pool=["a,b", "", ""]))


def test_a_trace_with_pools_may_be_empty(tmp_path):
    (tmp_path / "empty.csv").write_text("timestamp_s,key_id,key_size,value_size,op,ttl_s,pool\n")
    assert len(ebbtide.read_trace(tmp_path / "empty.csv").pool) == 0


def test_what_is_no_trace_is_refused(tmp_path):
    (tmp_path / "other.csv").write_text("time,object,size\n1,2,3\n")
    with pytest.raises(ValueError, match="time,object,size"):
        ebbtide.read_trace(tmp_path / "other.csv")
    with pytest.raises(ValueError, match="one length"):
        ebbtide.write_trace(tmp_path / "short.csv", TRACE._replace(op=numpy.array(["get"])))
    (tmp_path / "empty.csv").write_text("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
    assert len(ebbtide.read_trace(tmp_path / "empty.csv").key_id) == 0


def test_a_curve_falls_with_memory():
    with ebbtide.Cache("16m") as cache:
        profile = ebbtide.Profile(cache)
        assert profile.curve() is None and profile.verdict() is None
        random = numpy.random.default_rng(1)
        for _ in range(40):
            for key in (random.pareto(0.8, 5000) * 100).astype(int) % 60_000:
                if cache.get(f"{key}") is None:
                    cache[f"{key}"] = bytes(600)
            profile.update()
        curve = profile.curve()
        assert curve.memory_bytes.dtype == numpy.uint64 and curve.miss_ratio.dtype == numpy.float64
        assert numpy.all(numpy.diff(curve.memory_bytes.astype(float)) > 0)
        assert curve.miss_ratio[0] > curve.miss_ratio[-1] and 16 << 20 in curve.memory_bytes
        assert numpy.all((curve.low <= curve.miss_ratio) & (curve.miss_ratio <= curve.high))
        assert curve.sampled_keys > 0 and 0 < curve.sample_rate <= 1 and profile.verdict()
    with pytest.raises(ebbtide.Closed):
        ebbtide.Profile(cache)


def test_a_program_without_numpy_has_all_but_arrays(tmp_path):
    program = """
import sys
sys.modules["numpy"] = None
import ebbtide
with ebbtide.Cache("16m") as cache:
    cache["key"] = b"value"
    ebbtide.Profile(cache).update()
try:
    ebbtide.read_trace("trace.csv")
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install numpy" in run.stdout


def test_arrays_are_values():
    with ebbtide.Cache("8m") as cache:
        table = numpy.arange(6, dtype=numpy.int64).reshape(2, 3)
        records = numpy.zeros(2, dtype=[("id", ">u4"), ("score", "f8")])
        for value in (table, table[:1], table.astype(">i8"), records, numpy.arange(0), numpy.float32(0.5)):
            cache.set("key", value)
            assert cache.get("key") == value.tobytes()
        cache.set("key", table)
        assert numpy.array_equal(numpy.frombuffer(cache.get("key"), dtype=numpy.int64).reshape(2, 3), table)
        for value in (table.T, table[:, ::2], numpy.asfortranarray(table)):
            with pytest.raises(ValueError, match="those of this ndarray do not"):
                cache.set("key", value)
        with pytest.raises(ValueError, match="dtype"):
            cache.set("key", numpy.array(["2026-12-01"], dtype="datetime64[s]"))

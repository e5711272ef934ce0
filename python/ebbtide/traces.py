"""Traces as numpy arrays: the files that `ebbtide generate` writes and `ebbtide replay` reads."""

import gzip
import io
import warnings
from typing import Any, NamedTuple

from .curves import numpy

HEADER = "timestamp_s,key_id,key_size,value_size,op,ttl_s"
HEADER_WITH_POOL = HEADER + ",pool"


class Trace(NamedTuple):
    """Arrays of one length, a request each: seconds, number of the key, bytes, operation, seconds to live (0: none),
    and the name of the pool, empty without one. `pool` is None for a trace without this column."""

    timestamp_s: Any
    key_id: Any
    key_size: Any
    value_size: Any
    op: Any
    ttl_s: Any
    pool: Any = None


def _dtype():
    arrays = numpy()
    numbers = {"timestamp_s": "u8", "key_id": "u8", "key_size": "u4", "value_size": "u4", "op": "U8", "ttl_s": "u4"}
    return arrays.dtype([(name, numbers[name]) for name in HEADER.split(",")])


def _zstandard():
    try:
        import zstandard
    except ImportError as error:
        raise ImportError("traces that are named .zst: pip install zstandard") from error
    return zstandard


def _open(path, mode):
    name = str(path)
    if name.endswith(".gz"):
        return gzip.open(name, mode + "t", encoding="utf-8")
    if name.endswith(".zst"):
        return _zstandard().open(name, mode + "t", encoding="utf-8")
    return open(name, mode, encoding="utf-8")


def read_trace(path) -> Trace:
    """Reads a trace of the format `csv`, with or without the column `pool`, compressed if it is named .gz or .zst."""
    arrays = numpy()
    with _open(path, "r") as lines:
        header = lines.readline().strip()
        if header not in (HEADER, HEADER_WITH_POOL):
            raise ValueError(f"{path} begins with {header[:80]!r}, and not with {HEADER}")
        pool = None
        if header == HEADER_WITH_POOL:
            columns = [line.rstrip("\r\n").rpartition(",") for line in lines]
            lines = [numbers for numbers, _, _ in columns]
            pool = arrays.array([name for _, _, name in columns], dtype=str)
        with warnings.catch_warnings():
            # A trace may have no request.
            warnings.simplefilter("ignore", UserWarning)
            rows = arrays.loadtxt(lines, dtype=_dtype(), delimiter=",", ndmin=1)
    return Trace(*(arrays.ascontiguousarray(rows[name]) for name in HEADER.split(",")), pool)


def write_trace(path, trace: Trace) -> None:
    """Writes a trace of the format `csv`, compressed if the file is named .gz or .zst."""
    columns = [list(column) for column in trace if column is not None]
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"the arrays of a trace have one length, not {[len(column) for column in columns]}")
    for name in set(() if trace.pool is None else columns[-1]):
        if any(sign in name for sign in ",\r\n"):
            raise ValueError(f"{str(name)!r}: the name of a pool has no comma and no line break")
    with _open(path, "w") as file:
        rows = io.StringIO()
        rows.write((HEADER if trace.pool is None else HEADER_WITH_POOL) + "\n")
        for row in zip(*columns):
            rows.write(",".join(map(str, row)) + "\n")
        file.write(rows.getvalue())

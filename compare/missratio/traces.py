"""Traces in memory: `<name>.csv.zst` with the columns timestamp_s,key_id,key_size,value_size,op,ttl_s as numpy arrays.

Parsed arrays are kept in the cache directory, as the text takes far longer to read.
"""
import pathlib
import subprocess
from dataclasses import dataclass

import numpy

GET, SET, DELETE = 0, 1, 2
COLUMNS = ("time", "key", "key_size", "value_size", "op", "ttl")


@dataclass
class Trace:
    name: str
    path: pathlib.Path
    time: numpy.ndarray
    key: numpy.ndarray
    key_size: numpy.ndarray
    value_size: numpy.ndarray
    op: numpy.ndarray
    ttl: numpy.ndarray

    @property
    def sizes(self):
        return self.key_size + self.value_size

    @property
    def only_gets(self):
        """Nothing but gets of objects that never expire: what libcachesim replays by itself."""
        return not self.op.any() and not self.ttl.any()

    def rows(self, chosen):
        """The rows for which `chosen` holds."""
        return Trace(self.name, self.path, *(getattr(self, column)[chosen] for column in COLUMNS))

    def footprint_bytes(self):
        """Keys and values of all objects, each at the size of its first appearance."""
        _, first = numpy.unique(self.key, return_index=True)
        return int(self.sizes[first].sum())


def name_of(path):
    return pathlib.Path(path).name.removesuffix(".csv.zst")


def load(path, cache):
    path = pathlib.Path(path)
    name = name_of(path)
    kept = cache / f"{name}.npy"
    if not kept.exists() or kept.stat().st_mtime < path.stat().st_mtime:
        cache.mkdir(parents=True, exist_ok=True)
        numpy.save(kept, parse(path))
    return Trace(name, path, *numpy.load(kept))


def parse(path):
    text = subprocess.run(["zstdcat", str(path)], capture_output=True, check=True).stdout
    # A sampled trace begins with what it is of, after a hash.
    while text.startswith(b"#"):
        _, _, text = text.partition(b"\n")
    header, _, body = text.partition(b"\n")
    if header.strip() != b"timestamp_s,key_id,key_size,value_size,op,ttl_s":
        raise ValueError(f"{path}: the header line is {header!r}; wanted are the columns that `ebbtide generate` writes")
    for word, number in ((b"get", b"0"), (b"set", b"1"), (b"delete", b"2")):
        body = body.replace(b"," + word + b",", b"," + number + b",")
    numbers = numpy.fromstring(body.replace(b"\n", b","), dtype=numpy.int64, sep=",")
    return numpy.ascontiguousarray(numbers.reshape(-1, len(COLUMNS)).T)

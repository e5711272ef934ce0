"""Curves of a pool: the miss ratio that each amount of memory would have, as numpy arrays."""

from dataclasses import dataclass
from typing import Any

from ._ebbtide import PoolProfile


def numpy() -> Any:
    """The package, which only curves and traces need."""
    try:
        import numpy
    except ImportError as error:
        raise ImportError("curves and traces are numpy arrays: pip install numpy") from error
    return numpy


@dataclass(frozen=True, eq=False)
class Curve:
    """Arrays of one length, by ascending memory."""

    memory_bytes: Any
    miss_ratio: Any
    """The bounds of the 95 % interval of the sample."""
    low: Any
    high: Any
    """Whether the pool is full, so that less memory costs hits."""
    is_full: bool
    """Seconds that an entry stays before it is evicted; None where none is."""
    evicted_after: float | None
    sampled_keys: int
    """The share of all keys that are sampled."""
    sample_rate: float


class Profile:
    """Samples the accesses of a pool while it lives; one profile of a pool at a time."""

    def __init__(self, pool):
        self._profile = PoolProfile(pool)

    def update(self):
        """Takes in what was sampled since the last call. Call it about once a second: buffers are short."""
        self._profile.update()

    def curve(self, miss_ratio=None):
        """The curve, or None before enough was seen. With the miss ratio that was measured its level is that."""
        arrays = numpy()
        found = self._profile.curve(miss_ratio)
        if found is None:
            return None
        points, *rest = found
        memory, *ratios = zip(*points)
        columns = (arrays.array(column, dtype=arrays.float64) for column in ratios)
        return Curve(arrays.array(memory, dtype=arrays.uint64), *columns, *rest)

    def verdict(self, miss_ratio=None):
        """What to think of the pool's size, in a line; None before enough was seen."""
        return self._profile.verdict(miss_ratio)

"""An in-process cache: TTL-indexed segments in memory and on flash, pools, warm restart."""

import atexit
import os

from ._ebbtide import (
    NEGATIVE,
    AppendBuffer,
    Cache,
    Closed,
    CompactPool,
    ConfigurationError,
    Error,
    FixedArray,
    Items,
    KnownFailure,
    LoadTimeout,
    Map,
    Negative,
    NegativeCache,
    NotNumeric,
    OutOfMemory,
    Pool,
    RangeMap,
    RecursiveLoad,
    Ticket,
    TooLarge,
    UnknownPool,
    Words,
    WrongStructure,
    __version__,
    _ending,
    _forked,
)
from .curves import Curve, Profile
from .loading import get_or_load_async, get_or_load_object_async
from .memoize import memoize
from .traces import Trace, read_trace, write_trace

__all__ = [
    "AppendBuffer",
    "Cache",
    "Closed",
    "CompactPool",
    "ConfigurationError",
    "Curve",
    "Error",
    "FixedArray",
    "Items",
    "KnownFailure",
    "LoadTimeout",
    "Map",
    "NEGATIVE",
    "Negative",
    "NegativeCache",
    "NotNumeric",
    "OutOfMemory",
    "Pool",
    "Profile",
    "RangeMap",
    "RecursiveLoad",
    "Ticket",
    "TooLarge",
    "Trace",
    "UnknownPool",
    "Words",
    "WrongStructure",
    "__version__",
    "memoize",
    "read_trace",
    "write_trace",
]

Pool.get_or_load_async = get_or_load_async
NegativeCache.get_or_load_async = get_or_load_object_async

atexit.register(_ending)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

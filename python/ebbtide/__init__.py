"""An in-process cache: TTL-indexed segments in memory and on flash, pools, warm restart."""

from ._ebbtide import (
    Cache,
    Closed,
    ConfigurationError,
    Error,
    Items,
    Map,
    NotNumeric,
    OutOfMemory,
    Pool,
    TooLarge,
    UnknownPool,
    Words,
    WrongStructure,
    __version__,
)
from .memoize import memoize

__all__ = [
    "Cache",
    "Closed",
    "ConfigurationError",
    "Error",
    "Items",
    "Map",
    "NotNumeric",
    "OutOfMemory",
    "Pool",
    "TooLarge",
    "UnknownPool",
    "Words",
    "WrongStructure",
    "__version__",
    "memoize",
]

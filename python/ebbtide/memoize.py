"""Remembers what a function returned."""

import contextvars
import functools
import hashlib
import inspect
import pickle
import warnings

from ._ebbtide import LoadTimeout, RecursiveLoad
from .identity import name_of

# The longest key of a cache, and the readable bytes of a hashed one.
_KEY_BYTES = 255
_PREFIX_BYTES = 200

# The loads that the present task is a part of: one that waited for its own entry would wait in vain.
_loads = contextvars.ContextVar("ebbtide_loads", default=frozenset())


def _hashed(prefix, rest):
    digest = hashlib.blake2b(prefix[_PREFIX_BYTES:] + rest, digest_size=16).digest()
    return prefix[:_PREFIX_BYTES] + digest


class _NotPickled(Exception):
    """The result of a function is returned, but not remembered."""


class _Load:
    """A run of a coroutine function for an entry. The context of tasks that it starts has it, also after its end."""

    __slots__ = ("cache", "entry")

    def __init__(self, cache, entry):
        self.cache, self.entry = cache, entry

    def __enter__(self):
        _loads.set(frozenset(load for load in _loads.get() if load.cache is not None) | {self})

    def __exit__(self, *_):
        self.cache = None


class _Run:
    """A run of the function of a call, which gets its failure."""

    __slots__ = ("call",)

    def __init__(self, call):
        self.call = call

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        self.call.failure = error


class _Call:
    """One call: what its function returned or failed with, where it was called.

    The cache is asked `with` it. Code behind that is reached by a call which the cache has not answered: it returns
    `result`, or else runs the function without the cache.
    """

    __slots__ = ("failure", "memoized", "result", "returned")

    def __init__(self, memoized):
        self.memoized, self.returned, self.failure = memoized, False, None

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        failure, self.failure = self.failure, None
        # An error of the cache, before the function was called.
        is_refusal = isinstance(error, (LoadTimeout, RecursiveLoad)) and error is not failure
        return is_refusal or (self.returned and isinstance(error, _NotPickled))

    def bytes_of(self, result):
        self.result, self.returned = result, True
        try:
            return pickle.dumps(result, protocol=5)
        except Exception as error:
            self.memoized.warn(error)
            raise _NotPickled from error

    def answer(self, found):
        return self.result if self.returned else pickle.loads(found)


class _Memoized:
    def __init__(self, function, cache, key, ttl, stale_while_revalidate):
        self.function, self.cache, self.key = function, cache, key
        self.options = {"ttl": ttl, "stale_while_revalidate": stale_while_revalidate}
        self.name = getattr(function, "__qualname__", repr(function))
        self.prefix = f"{name_of(function)}:".encode()
        self.has_warned = False

    def entry(self, args, kwargs):
        if self.key is None:
            return _hashed(self.prefix, pickle.dumps((args, sorted(kwargs.items())), protocol=5))
        chosen = self.key(*args, **kwargs)
        if not isinstance(chosen, (str, bytes)):
            kind = type(chosen).__name__
            raise TypeError(f"key= of {self.name} returned {kind}: str or bytes name a call")
        chosen = chosen.encode() if isinstance(chosen, str) else chosen
        whole = self.prefix + chosen
        return whole if len(whole) <= _KEY_BYTES else _hashed(self.prefix, chosen)

    def forget(self, *args, **kwargs):
        return self.cache.delete(self.entry(args, kwargs))

    def warn(self, error):
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(f"a result of {self.name} is not remembered: {error}", RuntimeWarning, stacklevel=4)

    def call(self, *args, **kwargs):
        this, entry = _Call(self), self.entry(args, kwargs)

        def load():
            with _Run(this):
                result = self.function(*args, **kwargs)
            return this.bytes_of(result)

        with this:
            return this.answer(self.cache.get_or_load(entry, load, **self.options))
        return this.result if this.returned else self.function(*args, **kwargs)

    async def call_async(self, *args, **kwargs):
        this, entry = _Call(self), self.entry(args, kwargs)
        if any(load.entry == entry and load.cache is self.cache for load in _loads.get()):
            return await self.function(*args, **kwargs)

        async def load():
            with _Load(self.cache, entry), _Run(this):
                result = await self.function(*args, **kwargs)
            return this.bytes_of(result)

        with this:
            return this.answer(await self.cache.get_or_load_async(entry, load, **self.options))
        return this.result if this.returned else await self.function(*args, **kwargs)


def memoize(cache, ttl=None, key=None, *, stale_while_revalidate=None):
    """Decorates a function, plain or async, so that its results are remembered in `cache` for `ttl` seconds.

    The key of a call is made of the function's name and its pickled arguments; `key(*args, **kwargs)` makes another
    one, as str or bytes of any length. Results are pickled: a cache whose memory file others may write is not to be
    read this way.

    Functions of a module keep their results over a restart with a memory file, until their code, their defaults, the
    variables that they enclose, a function that they wrap, or the version of Python is another. Globals, and what a
    function calls, are not looked at: `cache.clear()` after a change of these. A function with a default or an enclosed
    variable that is no constant, function, class or module keeps its results for its process only, as do lambdas,
    functions inside functions, and bound methods.

    Of several callers of one missing key one calls the function, and all get its result; if it fails, the next one
    calls it. Who has waited for the cache's `load_timeout` calls it, too. An exception is not remembered, nor a result
    that is longer than the cache takes, that it has no memory for, or that cannot be pickled, which is warned of once.
    With `stale_while_revalidate` a result stays for these seconds after its TTL: one caller calls the function, and
    the others get the older result.

    `forget(*args, **kwargs)` of the decorated function removes the result of a call. The result of a call that runs
    meanwhile is not remembered.
    """

    def decorate(function):
        memoized = _Memoized(function, cache, key, ttl, stale_while_revalidate)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args, **kwargs):
                return await memoized.call_async(*args, **kwargs)

        else:

            @functools.wraps(function)
            def call(*args, **kwargs):
                return memoized.call(*args, **kwargs)

        call.forget = memoized.forget
        return call

    return decorate

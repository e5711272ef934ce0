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

# The entries whose loads the present task is a part of: a load that waited for itself would wait in vain.
_loading = contextvars.ContextVar("ebbtide_loading", default=frozenset())


def _hashed(prefix, rest):
    digest = hashlib.blake2b(prefix[_PREFIX_BYTES:] + rest, digest_size=16).digest()
    return prefix[:_PREFIX_BYTES] + digest


class _NotPickled(Exception):
    """The result of a function is returned, but not remembered."""


class _Call:
    """One call: what its function returned or failed with, where it was called."""

    __slots__ = ("failure", "memoized", "result", "returned")

    def __init__(self, memoized):
        self.memoized, self.returned, self.failure = memoized, False, None

    def bytes_of(self, result):
        self.result, self.returned = result, True
        try:
            return pickle.dumps(result, protocol=5)
        except Exception as error:
            self.memoized.warn(error)
            raise _NotPickled from error

    def answer(self, found):
        return self.result if self.returned else pickle.loads(found)

    def is_refusal(self, error):
        """Whether the cache refused the load before the function was called, which is then called without it."""
        return isinstance(error, (LoadTimeout, RecursiveLoad)) and error is not self.failure


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
        this = _Call(self)

        def load():
            try:
                result = self.function(*args, **kwargs)
            except BaseException as error:
                this.failure = error
                raise
            return this.bytes_of(result)

        try:
            return this.answer(self.cache.get_or_load(self.entry(args, kwargs), load, **self.options))
        except _NotPickled:
            if this.returned:
                return this.result
            raise
        except (LoadTimeout, RecursiveLoad) as error:
            if not this.is_refusal(error):
                raise
        finally:
            this.failure = None
        return self.function(*args, **kwargs)

    async def call_async(self, *args, **kwargs):
        this, entry, loading = _Call(self), self.entry(args, kwargs), _loading.get()
        if (id(self.cache), entry) in loading:
            return await self.function(*args, **kwargs)

        async def load():
            token = _loading.set(loading | {(id(self.cache), entry)})
            try:
                result = await self.function(*args, **kwargs)
            except BaseException as error:
                this.failure = error
                raise
            finally:
                _loading.reset(token)
            return this.bytes_of(result)

        try:
            return this.answer(await self.cache.get_or_load_async(entry, load, **self.options))
        except _NotPickled:
            if this.returned:
                return this.result
            raise
        except (LoadTimeout, RecursiveLoad) as error:
            if not this.is_refusal(error):
                raise
        finally:
            this.failure = None
        return await self.function(*args, **kwargs)


def memoize(cache, ttl=None, key=None, *, stale_while_revalidate=None):
    """Decorates a function, plain or async, so that its results are remembered in `cache` for `ttl` seconds.

    The key of a call is made of the function's name and its pickled arguments; `key(*args, **kwargs)` makes another
    one, as str or bytes of any length. Results are pickled: a cache whose memory file others may write is not to be
    read this way. Functions of a module keep their results over a restart with a memory file, until their code, or the
    version of Python, is another; results of lambdas and of functions inside functions are for their process.

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

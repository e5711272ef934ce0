"""Remembers what a function returned."""

import functools
import hashlib
import inspect
import pickle

from ._ebbtide import OutOfMemory, TooLarge

# The longest key of a cache, and the readable bytes of a hashed one.
_KEY_BYTES = 255
_PREFIX_BYTES = 200


def _hashed(prefix, rest):
    digest = hashlib.blake2b(prefix[_PREFIX_BYTES:] + rest, digest_size=16).digest()
    return prefix[:_PREFIX_BYTES] + digest


def memoize(cache, ttl=None, key=None):
    """Decorates a function, plain or async, so that its results are remembered in `cache` for `ttl` seconds.

    The key of a call is made of the function's name and its pickled arguments; `key(*args, **kwargs)` makes another
    one, as str or bytes of any length. Results are pickled: a cache whose memory file others may write is not to be
    read this way. An exception is not remembered, nor a result that is longer than the cache takes or that it has no
    memory for. Two callers of one missing key both call the function.
    """

    def decorate(function):
        prefix = f"{function.__module__}.{function.__qualname__}:".encode()

        def name(args, kwargs):
            if key is None:
                return _hashed(prefix, pickle.dumps((args, sorted(kwargs.items())), protocol=5))
            chosen = key(*args, **kwargs)
            if not isinstance(chosen, (str, bytes)):
                kind = type(chosen).__name__
                raise TypeError(f"key= of {function.__qualname__} returned {kind}: str or bytes name a call")
            chosen = chosen.encode() if isinstance(chosen, str) else chosen
            whole = prefix + chosen
            return whole if len(whole) <= _KEY_BYTES else _hashed(prefix, chosen)

        def remember(entry, result):
            try:
                cache.set(entry, pickle.dumps(result, protocol=5), ttl)
            except (TooLarge, OutOfMemory):
                pass

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args, **kwargs):
                entry = name(args, kwargs)
                found = cache.get(entry)
                if found is not None:
                    return pickle.loads(found)
                result = await function(*args, **kwargs)
                remember(entry, result)
                return result

        else:

            @functools.wraps(function)
            def call(*args, **kwargs):
                entry = name(args, kwargs)
                found = cache.get(entry)
                if found is not None:
                    return pickle.loads(found)
                result = function(*args, **kwargs)
                remember(entry, result)
                return result

        call.forget = lambda *args, **kwargs: cache.delete(name(args, kwargs))
        return call

    return decorate

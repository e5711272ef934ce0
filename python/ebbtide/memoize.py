"""Remembers what a function returned."""

import functools
import hashlib
import inspect
import pickle


def memoize(cache, ttl=None, key=None):
    """Decorates a function, plain or async, so that its results are remembered in `cache` for `ttl` seconds.

    The key of a call is made of the function's name and its pickled arguments; `key(*args, **kwargs)` makes another
    one, as str or bytes. Results are pickled: a cache whose memory file others may write is not to be read this way.
    An exception is not remembered. Two callers of one missing key both call the function.
    """

    def decorate(function):
        prefix = f"{function.__module__}.{function.__qualname__}:".encode()

        def name(args, kwargs):
            if key is not None:
                chosen = key(*args, **kwargs)
                return prefix + (chosen.encode() if isinstance(chosen, str) else chosen)
            arguments = pickle.dumps((args, sorted(kwargs.items())), protocol=5)
            return prefix[:200] + hashlib.blake2b(arguments, digest_size=16).digest()

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args, **kwargs):
                entry = name(args, kwargs)
                found = cache.get(entry)
                if found is not None:
                    return pickle.loads(found)
                result = await function(*args, **kwargs)
                cache.set(entry, pickle.dumps(result, protocol=5), ttl)
                return result

        else:

            @functools.wraps(function)
            def call(*args, **kwargs):
                entry = name(args, kwargs)
                found = cache.get(entry)
                if found is not None:
                    return pickle.loads(found)
                result = function(*args, **kwargs)
                cache.set(entry, pickle.dumps(result, protocol=5), ttl)
                return result

        call.forget = lambda *args, **kwargs: cache.delete(name(args, kwargs))
        return call

    return decorate

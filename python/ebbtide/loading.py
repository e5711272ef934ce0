"""Loads in coroutines: what `get_or_load` is for threads."""

import asyncio

from ._ebbtide import NEGATIVE


async def get_or_load_async(pool, key, load, ttl=None, *, stale_while_revalidate=None, negative_ttl=None):
    """As `get_or_load`, with a coroutine function `load`. Nothing in it blocks the event loop, with flash neither.

    Threads and tasks wait for each other's loads. If a task is cancelled while it loads, another one that waits for
    the key runs its own loader.
    """
    return await _run(pool._begin_load(key, ttl, stale_while_revalidate, negative_ttl), load)


async def get_or_load_object_async(cache, key, load, ttl=None):
    """As `get_or_load`, with a coroutine function `load`: see `Pool.get_or_load_async`."""
    value = await _run(cache._begin_load(key, ttl), load)
    return NEGATIVE if value is None else value


async def _run(task, load):
    """The value of a load, by the coroutine function `load` where the cache asks for it."""
    loop, is_due = asyncio.get_running_loop(), asyncio.Event()

    def wake():
        loop.call_soon_threadsafe(is_due.set)

    failure = None
    try:
        # Ends with the load, or after the cache's `load_timeout`.
        while True:
            is_due.clear()
            step, value = task.poll(wake)
            if step == "found":
                return value
            if step == "failed":
                raise failure
            if step == "wait":
                await is_due.wait()
                continue
            try:
                task.answer(await load())
            except Exception as error:
                failure = error
                task.fail()
    finally:
        task.cancel()
        # The exception holds this frame: without it there is no cycle.
        failure = None

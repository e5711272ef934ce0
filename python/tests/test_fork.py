"""Caches over a fork: a child has its own, and an error for one that it has inherited."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

HEAD = """
import asyncio, gc, os, signal, sys
import ebbtide

def in_child(function):
    child = os.fork()
    if child == 0:
        # A child that waits for a thread of its parent ends by this.
        signal.alarm(60)
        try:
            function()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def run(folder, body):
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-c", HEAD + textwrap.dedent(body)]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_a_forked_process_wakes_its_own_tasks(tmp_path):
    """Those that wait for a load of another task, and those whose `load_timeout` is over."""
    run(
        tmp_path,
        """
        def use():
            with ebbtide.Cache("16m", load_timeout=0.3) as cache:
                async def load():
                    await asyncio.sleep(0.1)
                    return b"value"

                async def never():
                    await asyncio.sleep(60)

                async def wait():
                    assert await asyncio.gather(*(cache.get_or_load_async("key", load) for _ in range(2))) == [b"value"] * 2
                    loading = asyncio.create_task(cache.get_or_load_async("slow", never))
                    await asyncio.sleep(0)
                    try:
                        await cache.get_or_load_async("slow", load)
                    except ebbtide.LoadTimeout:
                        loading.cancel()
                        return
                    raise AssertionError

                asyncio.run(wait())

        use()
        in_child(lambda: (use(), in_child(use)))
        use()
        """,
    )


def test_an_inherited_cache_is_refused(tmp_path):
    run(
        tmp_path,
        """
        cache = ebbtide.Cache("16m")
        pool, compact = cache.add_pool("users", min="4m"), cache.add_compact_pool("absent", key=3, max="1m")
        cache["key"] = b"value"
        entries, words, negatives = cache.items(), cache.words("words"), cache.with_negatives(compact)
        profile, load = ebbtide.Profile(cache), cache._begin_load("other", None, None, None)

        def use():
            uses = [
                lambda: cache.get("key"), lambda: cache.set("key", b"new"), lambda: pool.get("key"), lambda: len(pool),
                lambda: compact.get("key"), lambda: next(entries), lambda: words.add([1]), lambda: negatives.get("key"),
                lambda: negatives.delete("key"), lambda: cache.stats(), lambda: cache.get_or_load("other", bytes),
                lambda: asyncio.run(cache.get_or_load_async("other", None)), lambda: ebbtide.Profile(cache),
                lambda: profile.update(), lambda: profile.verdict(), lambda: load.poll(print),
            ]
            for number, use in enumerate(uses):
                try:
                    use()
                except ebbtide.Closed as error:
                    assert "forked" in str(error)
                else:
                    raise AssertionError(number)
            cache.close()

        in_child(use)
        assert cache["key"] == b"value" and len(list(entries)) == 1
        cache.close()
        """,
    )


def test_a_forked_process_leaves_its_parents_files(tmp_path):
    run(
        tmp_path,
        """
        def open_all():
            options = dict(flash="flash", flash_size="64m")
            return [ebbtide.Cache("16m", memory_file="memory"), ebbtide.Cache("16m", **options)]

        caches = open_all()
        for cache in caches:
            cache["key"] = b"value"

        def drop():
            written = lambda: [line for line in open("/proc/self/io") if line.startswith("syscw")]
            before = written()
            for cache in caches:
                cache.close()
            caches.clear()
            del globals()["cache"]
            gc.collect()
            assert written() == before

        in_child(drop)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            # All objects end, as in any process.
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        for cache in caches:
            assert cache["key"] == b"value"
            cache.close()
        del cache
        caches.clear()
        assert [cache["key"] for cache in open_all()] == [b"value"] * 2
        """,
    )


def test_a_loader_that_forks_answers_its_parent(tmp_path):
    """The child does not write what its copy of the loader returns, nor that it has failed."""
    run(
        tmp_path,
        """
        def run(is_async):
            cache, child = ebbtide.Cache("16m"), None

            def load():
                nonlocal child
                child = os.fork()
                return b"of the child" if child == 0 else b"of the parent"

            async def load_async():
                return load()

            async def get_async():
                try:
                    return await cache.get_or_load_async("key", load_async, negative_ttl=60)
                except ebbtide.Closed:
                    os._exit(child != 0)

            try:
                found = asyncio.run(get_async()) if is_async else cache.get_or_load("key", load, negative_ttl=60)
            except ebbtide.Closed:
                os._exit(child != 0)
            if child == 0:
                os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
            assert found == cache["key"] == b"of the parent"

        for is_async in (False, True):
            run(is_async)
        """,
    )


def test_a_living_child_locks_no_file_of_its_parent(tmp_path):
    """It has inherited the descriptors of a cache that its parent closes, and opens again."""
    run(
        tmp_path,
        """
        import tempfile

        folders = [tempfile.TemporaryDirectory(dir=parent) for parent in (".", "/dev/shm") if os.path.isdir(parent)]
        options = [dict(memory_file=os.path.join(folder.name, "memory")) for folder in folders]
        options.append(dict(flash="flash", flash_size="64m"))
        for kind in options:
            cache = ebbtide.Cache("16m", **kind)
            cache["key"] = b"value"
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            cache.close()
            del cache
            gc.collect()
            # A start waits for a locked file for half a minute.
            signal.alarm(20)
            with ebbtide.Cache("16m", **kind) as again:
                assert again["key"] == b"value"
            del again
            signal.alarm(0)
            os.close(writer)
            assert os.waitpid(child, 0)[1] == 0
        """,
    )

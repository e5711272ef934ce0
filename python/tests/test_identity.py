"""Names of memoized functions: functions that do different things never share a result."""

import subprocess
import sys
import textwrap

import pytest

import ebbtide


def define(cache, body):
    """The memoized function `load` of a module with this body."""
    scope = {"__name__": "module"}
    exec(textwrap.dedent(body), scope)
    return ebbtide.memoize(cache)(scope["load"])


def run(folder, seed="0"):
    """What `program.py` writes, in a process of its own."""
    command = [sys.executable, "program.py", "memory"]
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))}
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def test_functions_of_one_scope_are_told_apart(cache):
    one, two = ebbtide.memoize(cache)(lambda: 1), ebbtide.memoize(cache)(lambda: 2)
    assert (one(), two(), one(), two()) == (1, 2, 1, 2)

    def of(number):
        return ebbtide.memoize(cache)(lambda: number)

    assert [of(3)(), of(4)()] == [3, 4]

    class Number:
        def __init__(self, number):
            self.number = number

        def get(self):
            return self.number

    assert [ebbtide.memoize(cache)(Number(number).get)() for number in (5, 6)] == [5, 6]


def test_named_functions_of_one_name_are_told_apart(cache):
    assert define(cache, "def load():\n    return 'a'")() == "a"
    assert define(cache, "def load():\n    return 'b'")() == "b"
    # The same function, defined once more.
    again = define(cache, "def load():\n    return 'a'")
    hits = cache.stats()["hits"]
    assert again() == "a" and cache.stats()["hits"] == hits + 1


def test_named_functions_keep_their_results_over_a_restart(tmp_path):
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import sys
        import ebbtide

        cache = ebbtide.Cache("16m", memory_file=sys.argv[1])

        @ebbtide.memoize(cache)
        def load(word):
            print("called", word)
            return word in {"red", "green", "blue"}

        @ebbtide.memoize(cache)
        def other(word, mode="r"):
            print("other", word)

        local = ebbtide.memoize(cache)(lambda: print("local"))
        load("red"), other("red"), local()
        cache.close()
        """)
    )

    assert run(tmp_path, seed="1") == "called red\nother red\nlocal\n"
    assert run(tmp_path, seed="2") == "local\n"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("def load(a):\n    return a", "def load(*a):\n    return a"),
        ("def load(a, b=(1, 2)):\n    return b", "def load(a, b=(1, 3)):\n    return b"),
        ("def load(a, *, b=1):\n    return b", "def load(a, *, b=2):\n    return b"),
        ("def load(a, b=[1]):\n    return b", "def load(a, b=[2]):\n    return b"),
        ("@wrapped(1)\ndef load(a):\n    return a", "@wrapped(2)\ndef load(a):\n    return a"),
        ("@wrapped(0)\ndef load(a):\n    return 'one'", "@wrapped(0)\ndef load(a):\n    return 'two'"),
    ],
)
def test_functions_that_answer_otherwise_are_told_apart(cache, one, two):
    head = """
import functools

def wrapped(added):
    def decorate(function):
        @functools.wraps(function)
        def call(*args):
            return function(*args), added
        return call
    return decorate

"""
    assert define(cache, head + one)(1) != define(cache, head + two)(1)


def fail():
    raise ValueError


def test_functions_that_catch_errors_elsewhere_are_told_apart(cache):
    """Only their exception tables differ."""
    one = define(
        cache,
        """
        def load(first, second):
            try: first(); second()
            except ValueError: return "caught"
            return "done"
        """,
    )
    two = define(
        cache,
        """
        def load(first, second):
            first()
            try: second()
            except ValueError: return "caught"
            return "done"
        """,
    )
    assert one(fail, int) == "caught"
    with pytest.raises(ValueError):
        two(fail, int)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The wrapper has the name of what it wraps, and its code does not change.
        ("@timed\ndef load(word):\n    return 'one'", "@timed\ndef load(word):\n    return 'two'"),
        ("def load(word, mode='one'):\n    return mode", "def load(word, mode='two'):\n    return mode"),
        # An object of which it is not known what it does.
        ("def load(word, last=[]):\n    return last or 'one'", "def load(word, last=['two']):\n    return last[0]"),
    ],
)
def test_changed_functions_forget_results_over_a_restart(tmp_path, before, after):
    write_program(tmp_path, before)
    assert (run(tmp_path), run(tmp_path)) == ("one\n", "one\n")
    write_program(tmp_path, after)
    assert run(tmp_path) == "two\n"


@pytest.mark.parametrize(
    "body",
    [
        "@timed\ndef load(word):\n    print('called')",
        "def load(word, key=len, *, mode=('one', frozenset({'a', 'b', 1})), kind=Kind):\n    print('called')",
        "def load(word):\n    print('called')\n    return [None for _ in range(3) if (lambda: word)()][3:]",
        "load = Kind.load",
    ],
)
def test_unchanged_functions_keep_results_over_a_restart(tmp_path, body):
    write_program(tmp_path, body)
    assert run(tmp_path, seed="1").startswith("called\n")
    assert not run(tmp_path, seed="2").startswith("called\n")


def write_program(folder, body):
    head = """
import functools, sys
import ebbtide

class Kind:
    def load(word):
        print("called")
        return __class__.__name__

def timed(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)
    return call

"""
    tail = """

with ebbtide.Cache("16m", memory_file=sys.argv[1]) as cache:
    print(ebbtide.memoize(cache)(load)("w"))
"""
    (folder / "program.py").write_text(head + body + tail)

"""Every difference between Debian's memcached 1.6.18 and Ebbtide that the differential tests know by its name."""

import contextlib

import pytest
from harness import EBBTIDE, MEMCACHED, Server, open_to_others
from versions import EXAMPLES, STORES, USERS, Closes, masked, translate

MARK = b"mn\r\n", b"MN\r\n"
IDS = {"ids": lambda example: f"{example.name}: {example.data[:40]}"}


def ask(server, data):
    """What a new connection is answered, and whether it is closed behind that. The item k has the value 10 before."""
    with server.connect() as connection:
        assert connection.ask(b"flush_all\r\nset k 0 0 2\r\n10\r\n", b"STORED\r\n") == b"OK\r\nSTORED\r\n"
        connection.send(data + MARK[0])
        answer = connection.read_until(MARK[1])
    return masked(answer.removesuffix(MARK[1])), not answer.endswith(MARK[1])


def ask_last(server, example, expected):
    """As `ask`, for commands behind which nothing can be asked: the answer up to the last line of what is expected."""
    with server.connect() as connection:
        if "-Y" not in example.flags:
            assert connection.ask(b"flush_all\r\nset k 0 0 2\r\n10\r\n", b"STORED\r\n") == b"OK\r\nSTORED\r\n"
        return masked(connection.ask(example.data, expected.splitlines(keepends=True)[-1])), False


@contextlib.contextmanager
def server_for(example, binary, shared, tmp_path):
    """The shared server, or one with the flags of the example."""
    if not example.flags:
        yield shared
        return
    open_to_others(tmp_path)
    users = tmp_path / "users"
    users.write_bytes(USERS)
    with Server(binary, *(flag.format(users=users) for flag in example.flags)) as server:
        yield server


@pytest.mark.parametrize("example", EXAMPLES, **IDS)
def test_the_difference_is_as_it_is_said(memcached, ebbtide, example, tmp_path):
    assert example.theirs != example.ours
    for binary, shared, expected, closes in (
        (MEMCACHED, memcached, example.theirs, False),
        (EBBTIDE, ebbtide, example.ours, example.closes),
    ):
        with server_for(example, binary, shared, tmp_path) as server:
            answer = ask_last(server, example, expected) if example.is_last else ask(server, example.data)
            assert answer == (expected, closes)


@pytest.mark.parametrize("example", EXAMPLES, **IDS)
def test_what_1_6_18_is_asked_instead_has_the_answer_of_the_later_version(memcached, example):
    translation = translate(example.data)
    if isinstance(translation, Closes):
        assert (translation.name, translation.answer, example.closes) == (example.name, example.ours, True)
        return
    asked, names = translation
    # Features that 1.6.18 has no words for are left out of the streams: `test_differential_meta.py`.
    if names:
        assert example.name in names or example.name == "limits of numbers"
        assert ask(memcached, asked) == (example.ours, False)


def test_a_value_belongs_to_its_line_for_every_storage_command():
    for command in STORES:
        data = command + b" k bad 0 9 7\r\nflush_all\r\n" if command == b"cas" else command + b" k bad 0 9\r\nflush_all\r\n"
        assert translate(data) == (b"verbosity x\r\n", ["value of a refused command"])

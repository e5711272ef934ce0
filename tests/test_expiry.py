"""Absolute expiries, in real time beside memcached and over restarts: served until the second that was given, and never after it."""

import time

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, Server

# A client's look may be so late, or its clock read so much before the server's.
SLACK_SECONDS = 0.05
# A run with a longer time between two looks says little: somebody stalled.
GAP_SECONDS = 0.2
TRIES = 10


def commands(end):
    """Each gives the key of its name a life until `end`."""
    return b"".join(
        [
            b"set set 0 %d 1\r\nv\r\n" % end,
            b"set touch 0 0 1\r\nv\r\ntouch touch %d\r\n" % end,
            b"set gat 0 0 1\r\nv\r\ngat %d gat\r\n" % end,
            b"ms ms 1 T%d\r\nv\r\n" % end,
            b"set mg 0 0 1\r\nv\r\nmg mg T%d\r\n" % end,
            b"ma ma N%d\r\n" % end,
        ]
    )


NAMES = [b"set", b"touch", b"gat", b"ms", b"mg", b"ma"]


def keys_served(connection):
    answer = connection.ask(b"get " + b" ".join(NAMES) + b"\r\n", b"END\r\n")
    return {line.split()[1] for line in answer.split(b"\r\n") if line.startswith(b"VALUE")}


def last_seen(connection, seconds):
    """How long before (negative) or after its time the last key was seen, and the first one was missed, and by how much a
    stall may have changed these. Runs with long stalls are repeated, but for the last of TRIES."""
    for _ in range(TRIES):
        seen, missed, gap = one_run(connection, seconds)
        if gap < GAP_SECONDS and len(seen) == len(NAMES):
            break
    return max(seen.values(), default=-seconds), min(missed.values()), SLACK_SECONDS + gap


def give_lives(connection, end):
    connection.send(commands(end) + b"mn\r\n")
    connection.read_until(b"MN\r\n")


def one_run(connection, seconds):
    end = int(time.time()) + seconds
    give_lives(connection, end)
    return watch(connection, end)


def watch(connection, end):
    """Looks at the keys until all are missed: when each was last seen and first missed, and the longest time between two looks."""
    seen, missed = {}, {}
    last, gap = time.monotonic(), 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(missed) < len(NAMES) and time.monotonic() < deadline:
        before = time.time() - end
        served = keys_served(connection)
        after = time.time() - end
        last, gap = time.monotonic(), max(gap, time.monotonic() - last)
        for name in NAMES:
            if name in served:
                seen[name] = before
            else:
                missed.setdefault(name, after)
        time.sleep(0.005)
    assert len(missed) == len(NAMES), "all of them expire"
    return seen, missed, gap


def test_absolute_times_end_within_memcacheds_second(memcached):
    # Its clock ticks once a second, from when it was started: it may be early or late by a tick.
    with memcached.connect() as connection:
        seen, missed, slack = last_seen(connection, 3)
        assert missed > -1 - slack and seen < 1 + slack


def test_absolute_times_are_kept_to_the_second(ebbtide):
    with ebbtide.connect() as connection:
        for seconds in (1, 2, 3):
            seen, missed, slack = last_seen(connection, seconds)
            assert missed > -slack, f"lost before {seconds}: {missed}"
            assert seen < slack, f"served after {seconds}: {seen}"


# Objects that expire soon are not written to flash by default.
STORAGE = {"memory file": ["-e", "{}/memory"], "flash": ["--flash", "{}/flash:64m", "--flash-admission", "all,min-ttl:0"]}


@pytest.mark.parametrize("storage", STORAGE)
def test_absolute_times_are_kept_over_a_restart(tmp_path, storage):
    flags = [flag.format(tmp_path) for flag in STORAGE[storage]]
    with Server(EBBTIDE, "-m", "64", *flags) as server:
        # A machine that stalls takes longer for a restart than their life: then once more, with a longer one.
        for seconds in range(4, 4 + TRIES):
            end = int(time.time()) + seconds
            with server.connect() as connection:
                give_lives(connection, end)
            server.stop()
            # Life goes on while the server is down.
            time.sleep(1)
            server.bring_back()
            with server.connect() as connection:
                is_in_time = time.time() < end - 1
                seen, missed, gap = watch(connection, end)
            if is_in_time and gap < GAP_SECONDS:
                break
        slack = SLACK_SECONDS + gap
        assert max(seen.values(), default=-seconds) < slack, f"served after their time: {seen}"
        assert not is_in_time or min(missed.values()) > -slack, f"lost before their time: {missed}"
        assert is_in_time and len(seen) == len(NAMES), f"{len(seen)} are back, in time: {is_in_time}"

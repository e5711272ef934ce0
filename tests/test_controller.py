"""`--controller`: which mode the server runs, and what it refuses."""

import itertools
import json
import random
import socket
import subprocess
import time
import urllib.request

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, USER, Server, free_port, wait_for


@pytest.mark.parametrize("flags, mode", [((), "auto"), (("--controller", "off"), "off"), (("--controller", "dry-run"), "dry-run")])
def test_the_mode_is_told_and_one_pool_has_no_division(flags, mode):
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin, *flags) as server:
        with urllib.request.urlopen(f"http://{admin}/api/decisions", timeout=PATIENCE_SECONDS) as answer:
            assert json.load(answer) == {
                "controller": mode,
                "state": None,
                "policies": None,
                "decisions": [],
                "targets": [],
            }
        with pytest.raises(KeyError):
            server.stat("pool_division", "stats ebbtide")


KEYS = 200_000
VALUE = b"v" * 250


def open_stream(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)


def look_aside(stream, names, value):
    """Looks keys up, and stores those that are missing."""
    stream.sendall(b"get " + b" ".join(names) + b"\r\n")
    found = set()
    lines = stream.makefile("rb")
    while (line := lines.readline()) != b"END\r\n":
        found.add(line.split()[1])
        lines.read(len(value) + 2)
    missing = [name for name in names if name not in found]
    stream.sendall(b"".join(b"set %s 0 0 %d noreply\r\n%s\r\n" % (name, len(value), value) for name in missing))


def use(stream, random, prefix, keys):
    look_aside(stream, [b"%s%d" % (prefix, random.randrange(keys)) for _ in range(100)], VALUE)


@pytest.mark.parametrize("flags, moves", [((), True), (("--controller", "dry-run"), False)])
def test_memory_goes_to_the_pool_that_earns_hits(flags, moves):
    """Two pools have equal parts. The keys of one need nearly all of the memory, those of the other hardly any."""
    admin, source = f"127.0.0.1:{free_port()}", random.Random(5)
    pools = ("--pool", "hungry:prefix=h:", "--pool", "sated:prefix=s:")
    with Server(EBBTIDE, "-m", "64", "--admin", admin, *pools, *flags) as server, open_stream(server) as stream:

        def decisions():
            use(stream, source, b"h:", KEYS)
            use(stream, source, b"s:", 1000)
            return json.loads(server.fetch("/api/decisions"))["decisions"]

        def limit(pool):
            return int(server.stat(f"{pool}:limit_bytes", "stats pools"))

        before = limit("hungry")
        decision = wait_for(decisions, "a decision")[0]
        assert [step["to"] for step in decision["moves"]] == ["hungry"] * len(decision["moves"])
        assert decision["applied"] == moves
        if moves:
            wait_for(lambda: limit("hungry") > before + (1 << 20), "the pool has grown")
        else:
            assert limit("hungry") == before


@pytest.mark.parametrize("objective, receiver, unit", [("objects", "records", "more hits a second"), ("bytes", "pages", "more of hits a second")])
def test_the_objective_says_which_pool_earns_more(objective, receiver, unit):
    """Records are asked for ten times as often as pages, which are a hundred times as long; neither fit."""
    admin, source = f"127.0.0.1:{free_port()}", random.Random(5)
    pools = ("--pool", "records:prefix=r:", "--pool", "pages:prefix=p:", "--objective", objective, "--test-clock")
    with Server(EBBTIDE, "-m", "6", "-I", "64k", "--admin", admin, *pools) as server, open_stream(server) as stream:

        def load(rounds):
            for _ in range(rounds):
                look_aside(stream, [b"r:%d" % source.randrange(25_000) for _ in range(100)], b"v" * 100)
                look_aside(stream, [b"p:%d" % source.randrange(300) for _ in range(10)], b"v" * 10_000)

        def decisions():
            load(20)
            with server.connect() as connection:
                assert connection.ask(b"debugtime 2\r\n") == b"OK\r\n"
            return json.loads(server.fetch("/api/decisions"))["decisions"]

        # Gets of keys that are new say nothing of memory.
        load(700)
        decision = wait_for(decisions, "a decision")[-1]
        step = decision["moves"][0]
        assert step["to"] == receiver and unit in decision["reason"], decision
        assert (step["gained_bytes_per_second"] is None) == (objective == "objects")


LOOP_KEYS = 24_000
LONG_VALUE = b"v" * 4000


@pytest.mark.parametrize("mode, policy", [("auto", "random"), ("dry-run", "lru")])
def test_a_better_policy_is_set_in_auto_alone(mode, policy):
    """A loop over more keys than there is memory for: lru misses each get, random victims do not. A window of the choice
    has ten seconds, which the clock of the test skips."""
    admin, turn = f"127.0.0.1:{free_port()}", itertools.cycle(range(LOOP_KEYS))
    flags = ("--policy", "lru", "--controller", mode, "--controller-policies", "random", "--test-clock")
    with Server(EBBTIDE, "-m", "64", "--admin", admin, *flags) as server, open_stream(server) as stream:

        def load(gets):
            for _ in range(gets // 100):
                look_aside(stream, [b"k%d" % next(turn) for _ in range(100)], LONG_VALUE)

        def decisions():
            # A faster load would fill the buffer of the samples, which are taken once a second.
            load(2200)
            updates = server.fetch("/api/history")
            wait_for(lambda: server.fetch("/api/history") != updates, "an update")
            with server.connect() as connection:
                assert connection.ask(b"debugtime 10\r\n") == b"OK\r\n"
            return json.loads(server.fetch("/api/decisions"))["decisions"]

        decision = wait_for(decisions, "a decision")[-1]
        assert decision["applied"] == (mode == "auto") and not decision["undo"] and decision["moves"] == []
        changed = decision["policy"]
        assert (changed["pool"], changed["from"], changed["to"]) == ("default", "lru", "random")
        assert changed["miss_ratio_before"] > 0.9 and changed["miss_ratio_after"] < 0.8
        assert decision["reason"].startswith("default: random instead of lru: ")
        wait_for(lambda: server.stat("pool_policies", "stats ebbtide").startswith(decision["reason"]), "the statistic")
        assert server.stat("default:policy", "stats pools") == policy
        # The memory is full of objects that random victims leave: of one round of the loop a part hits.
        load(2 * LOOP_KEYS)
        hits = int(server.stat("get_hits"))
        load(LOOP_KEYS)
        hits = int(server.stat("get_hits")) - hits
        assert hits > LOOP_KEYS / 5 if mode == "auto" else hits < LOOP_KEYS / 20, hits


def test_the_state_of_policies_is_told():
    admin = f"127.0.0.1:{free_port()}"
    flags = ("--controller-policies", "lru,2q", "--pool", "a:prefix=a:")
    with Server(EBBTIDE, "-m", "64", "--admin", admin, *flags) as server:

        def told():
            with urllib.request.urlopen(f"http://{admin}/api/decisions", timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)["policies"]

        deadline = time.monotonic() + PATIENCE_SECONDS
        while (text := told()) is None:
            assert time.monotonic() < deadline, "the state of policies"
            time.sleep(0.1)
        assert text == "default: the models of policies have seen too few gets"
        assert server.stat("pool_policies", "stats ebbtide") == text


@pytest.mark.parametrize(
    "flags, advice",
    [
        (("--controller", "on"), "give auto, dry-run or off"),
        (("--controller-policies", "lru,best"), "--controller-policies lru,best: "),
        (("--controller", "off", "--controller-policies", "lru"), "give --controller auto, or leave the policies out"),
        (("--controller", "auto", "--admin", "off"), "give --admin 127.0.0.1:11212, or --controller off"),
    ],
)
def test_what_cannot_work_is_refused_with_advice(flags, advice):
    command = [EBBTIDE, *USER, "-p", str(free_port()), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode != 0 and advice in done.stderr

"""`--controller`: which mode the server runs, and what it refuses."""

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


def use(stream, random, prefix, keys):
    """Looks a hundred keys up, and stores those that are missing."""
    names = [b"%s%d" % (prefix, random.randrange(keys)) for _ in range(100)]
    stream.sendall(b"get " + b" ".join(names) + b"\r\n")
    found = set()
    lines = stream.makefile("rb")
    while (line := lines.readline()) != b"END\r\n":
        found.add(line.split()[1])
        lines.read(len(VALUE) + 2)
    missing = [name for name in names if name not in found]
    stream.sendall(b"".join(b"set %s 0 0 %d noreply\r\n%s\r\n" % (name, len(VALUE), VALUE) for name in missing))


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

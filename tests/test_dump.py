"""lru_crawler metadump and mgdump, beside Debian's memcached."""

import time
import urllib.parse

import pytest
from harness import EBBTIDE, MEMCACHED, Server

KEYS = [b"plain", b"a%b,c/d~e", bytes([1, 255, 39, 40]), b"k" * 250, "schlüssel".encode()]


def fill(server):
    with server.connect() as connection:
        for number, key in enumerate(KEYS):
            assert connection.ask(b"set %b %d %d 1\r\nx\r\n" % (key, number, 1000 * number)) == b"STORED\r\n"
        connection.ask(b"get plain\r\n", b"END\r\n")


def metadump(server, which):
    with server.connect() as connection:
        lines = connection.ask(b"lru_crawler metadump %b\r\n" % which, b"END\r\n").split(b"\n")
    assert lines[-2:] == [b"END\r", b""]
    # Later versions than 1.6.18 begin with OK.
    lines = lines[1:] if lines[0] == b"OK\r" else lines
    entries = [dict(field.split(b"=", 1) for field in line.split()) for line in lines[:-2]]
    assert len({entry[b"key"] for entry in entries}) == len(entries)
    return {entry[b"key"]: entry for entry in entries}


@pytest.mark.parametrize("which", [b"all", b"hash"])
def test_the_same_keys_with_the_same_fields(memcached, ebbtide, which):
    for server in (memcached, ebbtide):
        fill(server)
    theirs, ours = metadump(memcached, which), metadump(ebbtide, which)
    assert ours.keys() == theirs.keys()
    for key, entry in ours.items():
        expected = theirs[key]
        # The reference is a later version than 1.6.18 and tells the flags as well.
        assert list(entry) == [*expected, b"flags"] and entry[b"flags"] == b"%d" % KEYS.index(urllib.parse.unquote_to_bytes(key.decode()))
        assert entry[b"fetch"] == expected[b"fetch"]
        assert abs(int(entry[b"la"]) - time.time()) < 60
        expiry = int(expected[b"exp"])
        # Up to 1 s and 1.6 % early, and not on the same second.
        assert expiry == int(entry[b"exp"]) == -1 or abs(expiry - int(entry[b"exp"])) < 60 + 4000 * 0.016


@pytest.mark.parametrize(
    "command",
    [
        b"lru_crawler",
        b"lru_crawler crawl all",
        b"lru_crawler crawl 1,2,3",
        b"lru_crawler crawl 999",
        b"lru_crawler sleep 100",
        b"lru_crawler sleep 10000000",
        b"lru_crawler sleep x",
        b"lru_crawler sleep 1 2",
        b"lru_crawler tocrawl 10",
        b"lru_crawler metadump",
        b"lru_crawler metadump 0",
        b"lru_crawler metadump 60,64",
        b"lru_crawler metadump x",
        b"lru_crawler enable noreply",
        b"lru",
        b"lru tune 10 25 0.1 2.0",
        b"lru tune 10 25",
        b"lru tune 60 60 0.1 2.0",
        b"lru tune x y 0.1 2.0",
        b"lru tune 10 25 0 0",
        b"lru mode segmented",
        b"lru mode x",
        b"lru mode flat noreply",
        b"lru temp_ttl -1",
        b"lru temp_ttl x",
        b"slabs reassign 1 1",
        b"slabs reassign 1 999",
        b"slabs reassign x y",
        b"slabs reassign 30 31",
        b"slabs reassign 1",
        b"slabs reassign 1 2 noreply",
        b"slabs automove 1",
        b"slabs automove 3",
        b"slabs automove x",
        b"slabs automove ratio 0.5",
        b"slabs automove ratio",
        b"slabs automove 1 noreply",
        b"slabs frob 1",
    ],
)
def test_commands_without_a_counterpart_are_answered_alike(memcached, ebbtide, command):
    answers = []
    for server in (memcached, ebbtide):
        with server.connect() as connection:
            answers.append(connection.ask(command + b"\r\nmn\r\n", b"MN\r\n"))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_dumps_can_be_forbidden(binary):
    with Server(binary, "-X") as server, server.connect() as connection:
        assert connection.ask(b"lru_crawler metadump all\r\n") == b"ERROR metadump not allowed\r\n"

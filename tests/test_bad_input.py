"""Bytes that no client should send: memcached's answer, and a closed connection where memcached closes it, or where
`versions.py` says that Ebbtide does. What 1.6.18 answers otherwise than the later version that is the reference is translated
there."""

import socket
import time

import pytest
from versions import Closes, translate

LONG = b"k" * 251
# A server is quiet after this long; where the answers differ both get more time, up to the last of these.
QUIET_SECONDS = [0.06] * 20 + [0.5] * 6 + [2] * 5 + [10] * 2

CASES = {
    "empty line": b"\r\n",
    "bare newline": b"\n",
    "blanks": b"   \r\n",
    "unknown command": b"frob\r\n",
    "unknown command with words": b"frob a b c d e f g h i j k l m n o p q r s t u v w x y z\r\n",
    "upper case": b"GET k\r\nSET k 0 0 1\r\nv\r\n",
    "binary noise": bytes(range(1, 10)) + bytes(range(11, 128)) + b"\r\n",
    "zero byte in a command": b"get k\0k\r\n",
    "zero byte before a command": b"\0get k\r\n",
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "get without a key": b"get\r\nget \r\ngets\r\n",
    "get with a long key": b"get " + LONG + b"\r\n",
    "get with a long key behind others": b"get a b " + LONG + b"\r\n",
    "get with control characters": b"get a\x01b \x7f\x02\r\n",
    "gat without a key": b"gat\r\ngat 1\r\ngat x k\r\n",
    "gat with a long key": b"gat 0 " + LONG + b"\r\n",
    "set without arguments": b"set\r\nset k\r\nset k a\r\n",
    "set without a length": b"set k 0 0\r\n",
    "set with a long key": b"set " + LONG + b" 0 0 1\r\nv\r\n",
    "set with an empty key": b"set  0 0 1\r\nv\r\n",
    "set with a control character": b"set a\x01 0 0 1\r\nv\r\nget a\x01\r\n",
    "negative length": b"set k 0 0 -1\r\nv\r\n",
    "length of words": b"set k 0 0 one\r\nv\r\n",
    "length with a tail": b"set k 0 0 1x\r\nv\r\n",
    "length over 2^31": b"set k 0 0 2147483648\r\nv\r\n",
    "length at 2^31": b"set k 0 0 2147483646\r\nv\r\n",
    "flags negative": b"set k -1 0 1\r\nv\r\n",
    "flags too large": b"set k 4294967296 0 1\r\nv\r\n",
    "flags of words": b"set k x 0 1\r\nv\r\n",
    "exptime of words": b"set k 0 x 1\r\nv\r\n",
    "value longer than announced": b"set k 0 0 3\r\nvalue\r\nget k\r\n",
    "value shorter than announced": b"set k 0 0 7\r\nvalue\r\n",
    "value without a line end": b"set k 0 0 5\r\nvaluexxget k\r\n",
    "value ends with a bare newline": b"set k 0 0 5\r\nvalue\n\nget k\r\n",
    "too large": b"set k 0 0 5\r\nvalue\r\nset k 0 0 2000000\r\n" + b"v" * 2_000_000 + b"\r\nget k\r\n",
    "too large with noreply": b"set k 0 0 2000000 noreply\r\n" + b"v" * 2_000_000 + b"\r\nget k\r\n",
    "too large to add": b"set k 0 0 5\r\nvalue\r\nadd k 0 0 2000000\r\n" + b"v" * 2_000_000 + b"\r\nget k\r\n",
    "too large to append": b"set k 0 0 5\r\nvalue\r\nappend k 0 0 2000000\r\n" + b"v" * 2_000_000 + b"\r\nget k\r\n",
    "trailing words": b"set k 0 0 1 noreply x\r\nv\r\n",
    "misspelt noreply": b"set k 0 0 1 norply\r\nv\r\n",
    "cas without a token": b"cas k 0 0 1\r\nv\r\n",
    "cas with words": b"cas k 0 0 1 x\r\nv\r\n",
    "cas negative": b"cas k 0 0 1 -1\r\nv\r\n",
    "cas on nothing": b"cas nothing 0 0 1 1\r\nv\r\n",
    "incr without arguments": b"incr\r\nincr k\r\n",
    "incr by words": b"set k 0 0 1\r\n1\r\nincr k x\r\nincr k -1\r\nincr k 1x\r\nincr k 18446744073709551616\r\n",
    "incr words": b"set k 0 0 1\r\nx\r\nincr k 1\r\ndecr k 1\r\n",
    "incr past the end": b"set k 0 0 2\r\n10\r\nincr k 18446744073709551615\r\nget k\r\n",
    "incr nothing": b"set k 0 0 0\r\n\r\nincr k 1\r\n",
    "incr with a long key": b"incr " + LONG + b" 1\r\n",
    "decr below zero": b"set k 0 0 2\r\n10\r\ndecr k 11\r\nget k\r\n",
    "delete without a key": b"delete\r\n",
    "delete with a time": b"delete k 0\r\ndelete k 5\r\ndelete k x\r\n",
    "delete with a long key": b"delete " + LONG + b"\r\n",
    "touch without arguments": b"touch\r\ntouch k\r\ntouch k x\r\n",
    "touch with a long key": b"touch " + LONG + b" 0\r\n",
    "flush_all with words": b"flush_all x\r\n",
    "flush_all twice": b"flush_all 0 noreply x\r\n",
    "verbosity without a level": b"verbosity\r\nverbosity x\r\nverbosity 1 noreply\r\n",
    "cache_memlimit": b"cache_memlimit\r\ncache_memlimit x\r\n",
    "stats of nothing": b"stats frob\r\n",
    "shutdown is off": b"shutdown\r\n",
    "quit": b"quit\r\nget k\r\n",
    "quit with words": b"quit now\r\n",
    "commands behind an error": b"frob\r\nset k 0 0 1\r\nv\r\nget k\r\n",
    "line of 1 KB": b"x" * 1024 + b"\r\n",
    "line of 1 KB without an end": b"x" * 1024,
    "line of 100 KB without an end": b"x" * 100_000,
    "line of 100 KB": b"x" * 100_000 + b"\r\nversion\r\n",
    "set line of 100 KB without an end": b"set " + b"x" * 100_000,
    "key of 100 KB": b"get " + b"k" * 100_000 + b"\r\n",
    "multiget of 100 KB": b"get" + b" key" * 25_000 + b"\r\n",
    "multiget of 100 KB without an end": b"get" + b" key" * 25_000,
    "multiget with many keys that fit": b"set key 0 0 1\r\nv\r\nget" + b" key" * 5000 + b"\r\n",
}


PROBE = b"\r\nno such command\r\nget ~probe\r\n"


def talk(server, quiet, *parts):
    """What has come back after each part, and whether the connection is closed in the end."""
    with server.connect() as connection:
        connection.socket.settimeout(quiet)
        answers = []
        for part in parts:
            try:
                connection.send(part)
                while not connection.closed:
                    connection.take()
            except TimeoutError:
                pass
            answers.append(bytes(connection.received))
            if connection.closed:
                # What was on its way when the server hung up may or may not arrive.
                return answers[:1], "closed"
        return answers, "open"


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_answered_as_memcached_does(ebbtide, memcached, name):
    data = CASES[name]
    translation = translate(data + PROBE)
    for quiet in QUIET_SECONDS:
        ours = talk(ebbtide, quiet, data, PROBE)
        if isinstance(translation, Closes):
            theirs = [translation.answer], "closed"
        elif not translation[1]:
            theirs = talk(memcached, quiet, data, PROBE)
        else:
            # Where the first part ends in the translation is not known, so the end of all is compared.
            theirs, ours = talk(memcached, quiet, translation[0]), (ours[0][-1:], ours[1])
        if ours == theirs:
            break
    assert ours == theirs
    with ebbtide.connect() as connection:
        assert connection.ask(b"get ~probe\r\n") == b"END\r\n"


def test_one_byte_at_a_time(either):
    with either.connect() as connection:
        for byte in b"set slow 5 0 5\r\nvalue\r\nget slow\r\n":
            connection.send(bytes([byte]))
            time.sleep(0.001)
        assert connection.read_until(b"END\r\n") == b"STORED\r\nVALUE slow 5 5\r\nvalue\r\nEND\r\n"


def test_a_large_value_may_be_refused_before_it_has_come(either):
    """memcached answers when it has swallowed the value, Ebbtide may do so at once; both go on behind it."""
    with either.connect() as connection:
        connection.send(b"set k 0 0 2000000\r\n")
        connection.send(b"v" * 2_000_000 + b"\r\n")
        assert connection.read_until(b"\r\n") == b"SERVER_ERROR object too large for cache\r\n"
        assert connection.ask(b"get k\r\n") == b"END\r\n"


def test_a_set_that_breaks_off_stores_nothing(either):
    with either.connect() as connection:
        assert connection.ask(b"set broken 0 0 3\r\nold\r\n") == b"STORED\r\n"
    for part in (b"set broken 0 0 1000", b"set broken 0 0 1000\r\n", b"set broken 0 0 1000\r\nhalf of the value"):
        with either.connect() as connection:
            connection.send(part)
            connection.socket.shutdown(socket.SHUT_WR)
            assert connection.read_until(b"\n") == b""
    with either.connect() as connection:
        assert connection.ask(b"get broken\r\n", b"END\r\n") == b"VALUE broken 0 3\r\nold\r\nEND\r\n"


def test_a_client_that_does_not_read_holds_nobody_up(either):
    value = b"v" * 500_000
    with either.connect() as greedy, either.connect() as other:
        assert greedy.ask(b"set big 0 0 500000\r\n" + value + b"\r\n") == b"STORED\r\n"
        greedy.socket.setblocking(False)
        try:
            for _ in range(2000):
                greedy.socket.send(b"get big\r\n" * 10)
        except BlockingIOError:
            pass
        for _ in range(100):
            assert other.ask(b"get absent\r\n") == b"END\r\n"


def test_pipelined_commands_see_each_other(either):
    with either.connect() as connection:
        data = b"".join(b"set p 0 0 4\r\n%04d\r\nget p\r\n" % i for i in range(1000))
        end = b"VALUE p 0 4\r\n0999\r\nEND\r\n"
        expected = b"".join(b"STORED\r\nVALUE p 0 4\r\n%04d\r\nEND\r\n" % i for i in range(1000))
        assert connection.ask(data, end) == expected

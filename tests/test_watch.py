"""watch and stats detail, beside Debian's memcached."""

import re
import signal
import subprocess

import packets
import pytest
from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, Server

COMMANDS = b"".join(
    [
        b"set a%b 0 100 3\r\nabc\r\n",
        b"add a%b 0 0 1\r\nx\r\n",
        b"replace none 0 0 1\r\nx\r\n",
        b"append a%b 0 0 1\r\nx\r\n",
        b"cas a%b 0 0 1 999999999\r\nx\r\n",
        b"cas none 0 0 1 1\r\nx\r\n",
        b"gets a%b none\r\n",
        b"gat 50 a%b none\r\n",
        b"touch none 50\r\n",
        b"incr none 1\r\n",
        b"delete none\r\n",
        b"delete a%b\r\n",
    ]
)


def watch(server, kinds):
    watcher = server.connect()
    assert watcher.ask(b"watch %b\r\n" % kinds) == b"OK\r\n"
    return watcher


def lines(watcher, last):
    """The lines up to the one about `last`, without what differs from run to run."""
    text = watcher.read_until(b"key=" + last)
    text += watcher.read_until(b"\n")
    told = []
    for line in text.decode().splitlines():
        assert re.match(r"ts=\d+\.\d+ gid=\d+ type=", line), line
        line = re.sub(r"^ts=\S+ gid=\d+ |cfd=\d+", "", line)
        told.append(line)
    return told


@pytest.mark.parametrize("kinds", [b"mutations", b"fetchers"])
def test_the_same_lines(memcached, ebbtide, kinds):
    told = []
    for server in (memcached, ebbtide):
        with watch(server, kinds) as watcher, server.connect() as connection:
            connection.ask(COMMANDS + b"set last 0 0 1\r\nx\r\nget last\r\n", b"VALUE last 0 1\r\nx\r\nEND\r\n")
            told.append(lines(watcher, b"last"))
    if kinds == b"fetchers":
        # memcached looks a key up before it stores; those look-ups come first here.
        told[0] = told[0][6:-1] + [told[0][-1].replace("not_found clsid=0", "found clsid=1").replace("size=0", "size=1")]
    assert told[0] == told[1]


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_connections_come_and_go(binary):
    with Server(binary) as server, watch(server, b"connevents") as watcher:
        with server.connect() as connection:
            connection.ask(b"version\r\n")
            rport = "rport=%d" % connection.socket.getsockname()[1]
            connection.send(b"quit\r\n")
        text = watcher.read_until(f"{rport} transport=tcp reason=normal".encode()).decode()
    # Those that came before may be closed meanwhile.
    new, close = [line for line in text.splitlines() if rport in line]
    assert re.fullmatch(rf"ts=\S+ gid=\d+ type=conn_new rip=127.0.0.1 {rport} transport=tcp cfd=\d+", new)
    assert re.fullmatch(rf"ts=\S+ gid=\d+ type=conn_close rip=127.0.0.1 {rport} transport=tcp reason=normal", close)


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_evictions_are_told(binary):
    with Server(binary, "-m", "8") as server, watch(server, b"evictions") as watcher, server.connect() as connection:
        for start in range(0, 4000, 500):
            keys = range(start, start + 500)
            connection.send(b"".join(b"set k%d 0 0 4000 noreply\r\n%b\r\n" % (n, b"x" * 4000) for n in keys))
        connection.ask(b"version\r\n")
        line = watcher.read_until(b"\n").decode()
    assert re.fullmatch(r"ts=\S+ gid=\d+ type=eviction key=k\d+ fetch=no ttl=-1 la=\d+ clsid=\d+ size=4000\n", line)


@pytest.mark.parametrize("binary, flags", [(MEMCACHED, "-o ext_path="), (EBBTIDE, "--flash ")], ids=["memcached", "ebbtide"])
def test_what_flash_takes_is_told_as_that(binary, flags, tmp_path):
    flags = f"{flags}{tmp_path / 'flash'}:256m".split(" ")
    with Server(binary, "-m", "16", *flags) as server, watch(server, b"evictions") as watcher, server.connect() as connection:
        for n in range(30_000):
            connection.ask(b"set k%d 0 0 1000\r\n%b\r\n" % (n, b"x" * 1000))
        # A device that is slow for a moment loses some in both.
        line = (watcher.read_until(b" type=extwrite") + watcher.read_until(b"\n")).decode().splitlines()[-1]
    assert re.fullmatch(r"ts=\S+ gid=\d+ type=extwrite key=k\d+ fetch=no ttl=-1 la=\d+ clsid=\d+ bucket=0", line)


@pytest.mark.parametrize("words", [b"frob", b"fetchers frob", b"proxyreqs", b"rawcmds", b"", b"fetchers noreply"])
def test_kinds_are_taken_and_refused_alike(memcached, ebbtide, words):
    # A server that says nothing is told from one that is slow by the longer waits.
    for seconds in (1, 2, 5, 10, 30):
        answers = []
        for server in (memcached, ebbtide):
            with server.connect() as connection:
                connection.send(b"watch %b\r\n" % words)
                connection.socket.settimeout(seconds)
                try:
                    connection.take()
                except TimeoutError:
                    pass
                answers.append(connection.read_all())
        if answers[0] == answers[1]:
            break
    assert answers[0] == answers[1]


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_watching_can_be_forbidden(binary):
    with Server(binary, "-W") as server, server.connect() as connection:
        assert connection.ask(b"watch fetchers\r\n") == b"CLIENT_ERROR watch commands not allowed\r\n"


@pytest.mark.parametrize("flags", [[], ["-D", "#"]])
def test_prefixes_are_counted_alike(flags):
    dumps = []
    for binary in (MEMCACHED, EBBTIDE):
        with Server(binary, *flags) as server, server.connect() as connection:
            if not flags:
                assert connection.ask(b"stats detail on\r\n") == b"OK\r\n"
            commands = COMMANDS + b"set p:a#b 0 0 1\r\nx\r\nget p:a#b p:x q:y :z#\r\ngat 9 p:a#b p:x\r\ndelete p:x\r\n"
            connection.ask(commands + b"stats detail frob\r\n", b"on|off|dump\r\n")
            dumps.append(sorted(connection.ask(b"stats detail dump\r\n", b"END\r\n").split(b"\r\n")))
    assert dumps[0] == dumps[1]
    assert len(dumps[1]) > 3


def test_prefixes_are_dumped_alike_in_binary(memcached, ebbtide):
    topics = [b"detail on", b"detail off", b"detail frob", b"detail", b"detail dump", b" ", b" detail dump"]
    told = []
    for server in (memcached, ebbtide):
        told.append([])
        with server.connect() as connection:
            reader = packets.Reader(connection)
            assert reader.ask(packets.request(packets.STAT, b"detail on")).status == packets.OK
            for key in (b"p:a", b"q:b", b"p:c"):
                assert reader.ask(packets.put(packets.SET, key, b"v")).status == packets.OK
            for topic in topics:
                connection.send(packets.request(packets.STAT, topic) + packets.request(packets.NOOP))
                while (answer := reader.answer()).opcode != packets.NOOP:
                    # The order of the prefixes is each server's own.
                    told[-1].append((topic, answer.status, answer.key, sorted(answer.value.split(b"\r\n"))))
    assert told[0] == told[1]
    assert any(b"PREFIX p get 0 hit 0 set 2 del 0" in value for _, _, _, value in told[1])


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
@pytest.mark.parametrize("how", [b"shutdown\r\n", b"shutdown graceful\r\n", signal.SIGUSR1])
def test_a_stop_is_clean(binary, how):
    with Server(binary, "-A") as server, server.connect() as connection:
        if isinstance(how, bytes):
            connection.send(b"get none\r\n" + how)
            assert connection.read_until(b"nothing more") == b"END\r\n"
        else:
            server.process.send_signal(how)
        try:
            assert server.process.wait(PATIENCE_SECONDS) == 0
        except subprocess.TimeoutExpired:
            pytest.fail("it went on")

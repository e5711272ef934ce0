"""UDP (-U): memcached's frame, and the same answers as memcached's."""

import socket

import pytest

from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, PATIENT_FLASH, Connection, Server, free_port, wait_for

# The kernel drops datagrams that do not fit the receive buffer: it is larger than any answer here.
RECEIVE_BYTES = 4 << 20
# After so long no answer comes any more.
SILENCE_SECONDS = 0.3
REQUEST = 0x1234
# As in the kernel's asm-generic/socket.h.
SO_RCVBUFFORCE = 33


def frame(text, request=REQUEST, sequence=0, total=1, reserved=0):
    return b"".join(number.to_bytes(2, "big") for number in (request, sequence, total, reserved)) + text


class Datagrams:
    """A client's socket."""

    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # For root the limit of the machine does not count.
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.socket.connect((host, port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def message(self, end, request=REQUEST):
        """The text of the answers, whose frames are checked, up to `end`."""
        self.socket.settimeout(PATIENCE_SECONDS)
        text, expected, total = b"", 0, 0
        while not text.endswith(end) or expected != total:
            datagram = self.socket.recv(65536)
            assert len(datagram) <= 1400
            number, sequence, total, reserved = (int.from_bytes(datagram[at : at + 2], "big") for at in (0, 2, 4, 6))
            # memcached numbers the answer of each command and each value anew.
            assert (number, reserved) == (request, 0) and sequence == (expected if sequence else 0) and sequence < total
            assert sequence + 1 == total or len(datagram) == 1400
            expected = sequence + 1
            text += datagram[8:]
        return text

    def ask(self, text, end=b"\r\n", request=REQUEST):
        self.socket.send(frame(text, request))
        return self.message(end, request)

    def is_silent(self, datagram):
        self.socket.send(datagram)
        self.socket.settimeout(SILENCE_SECONDS)
        try:
            self.socket.recv(65536)
        except TimeoutError:
            return True
        return False


def start(binary, *flags):
    port = free_port()
    server = Server(binary, "-U", port, *flags)
    server.udp = port
    return server


@pytest.fixture(scope="module", params=[MEMCACHED, EBBTIDE], ids=["memcached", "ebbtide"])
def server(request):
    with start(request.param) as server:
        yield server


@pytest.fixture
def client(server):
    with Datagrams(server.udp) as client:
        yield client


def test_commands_are_answered(client):
    assert client.ask(b"set k 5 0 5\r\nvalue\r\n") == b"STORED\r\n"
    assert client.ask(b"get k\r\n", b"END\r\n", request=0xFFFF) == b"VALUE k 5 5\r\nvalue\r\nEND\r\n"
    assert client.ask(b"get k absent k\r\n", b"END\r\n") == b"VALUE k 5 5\r\nvalue\r\n" * 2 + b"END\r\n"
    assert client.ask(b"mg k v f\r\n", b"value\r\n") == b"VA 5 f5\r\nvalue\r\n"
    assert client.ask(b"append k 0 0 1\r\n!\r\n") == b"STORED\r\n"
    assert client.ask(b"delete k\r\nget k\r\n", b"END\r\n") == b"DELETED\r\nEND\r\n"
    assert client.ask(b"version\n").startswith(b"VERSION 1.6.")
    assert client.ask(b"frob\r\n") == b"ERROR\r\n"
    no_op = bytes([0x80, 0x0A, *bytes(22)])
    assert client.ask(no_op, bytes(22)) == bytes([0x81, 0x0A, *bytes(22)])


def test_long_answers_are_divided(client):
    value = bytes(n * 7 % 251 for n in range(100_000))
    with_tcp = b"set long 0 0 60000\r\n" + value[:60_000] + b"\r\n"
    assert client.ask(with_tcp) == b"STORED\r\n"
    for length in (1, 1370, 1371, 1372, 1373, 1392, 60_000):
        assert client.ask(b"set v 0 0 %d\r\n%s\r\n" % (length, value[:length])) == b"STORED\r\n"
        expected = b"VALUE v 0 %d\r\n%s\r\nEND\r\n" % (length, value[:length])
        assert client.ask(b"get v\r\n", b"END\r\n") == expected


def test_what_is_no_request_is_not_answered(client):
    assert client.ask(b"set k 0 0 1\r\nv\r\n") == b"STORED\r\n"
    for datagram in (b"", b"\0" * 7, frame(b""), frame(b"get k\r\n", total=2), frame(b"get k\r\n", total=0), frame(b"get k")):
        assert client.is_silent(datagram), datagram
        assert client.ask(b"get k\r\n", b"END\r\n") == b"VALUE k 0 1\r\nv\r\nEND\r\n"
    assert client.is_silent(frame(b"set k 0 0 1 noreply\r\nw\r\n"))
    # Neither sequence nor the reserved bytes are looked at.
    client.socket.send(frame(b"get k\r\n", sequence=5, reserved=7))
    assert client.message(b"END\r\n") == b"VALUE k 0 1\r\nw\r\nEND\r\n"


def test_both_transports_serve_one_cache(server, client):
    with server.connect() as connection:
        assert connection.ask(b"set tcp 0 0 1\r\nv\r\n") == b"STORED\r\n"
        assert client.ask(b"get tcp\r\n", b"END\r\n") == b"VALUE tcp 0 1\r\nv\r\nEND\r\n"
        settings = connection.ask(b"stats settings\r\n", b"END\r\n").decode()
        assert f"STAT udpport {server.udp}\r\n" in settings and f"STAT tcpport {server.port}\r\n" in settings
        connections = connection.ask(b"stats conns\r\n", b"END\r\n").decode()
        assert ":UDP UDP\r\n" in connections and f":addr udp:127.0.0.1:{server.udp}\r\n" in connections
        threads = connections.count(":UDP UDP")
        # Connections that tests before have closed may still be counted.
        counted = lambda: int(server.stat("curr_connections"))
        wait_for(lambda: counted() == 2 + threads, "this connection, that of the look, and UDP's")


@pytest.fixture(scope="module")
def ours():
    with start(EBBTIDE, "-A", "-I", "4m") as server:
        yield server


def test_one_request_has_one_numbered_answer(ours):
    with Datagrams(ours.udp) as client:
        assert client.ask(b"set k 0 0 1000\r\n" + b"v" * 1000 + b"\r\n") == b"STORED\r\n"
        client.socket.settimeout(PATIENCE_SECONDS)
        client.socket.send(frame(b"get k k k\r\nversion\r\n"))
        received = [client.socket.recv(65536) for _ in range(3)]
        assert [datagram[:8] for datagram in received] == [frame(b"", sequence=number, total=3) for number in range(3)]


def test_answers_are_bounded(ours):
    with Datagrams(ours.udp) as client, ours.connect() as connection:
        for length, fits in ((1 << 20, True), (2 << 20, False)):
            connection.send(b"set large 0 0 %d\r\n%s\r\n" % (length, b"v" * length))
            assert connection.read_until(b"\r\n") == b"STORED\r\n"
            expected = b"VALUE large 0 %d\r\n%s\r\nEND\r\n" % (length, b"v" * length)
            answer = client.ask(b"get large\r\n", b"END\r\n" if fits else b"\r\n")
            assert answer == (expected if fits else b"SERVER_ERROR response too large for UDP\r\n")
        # So do many small ones, and what is asked next is answered.
        assert connection.ask(b"set k 0 0 1000\r\n%s\r\n" % (b"v" * 1000)) == b"STORED\r\n"
        assert client.ask(b"get " + b"k " * 3000 + b"\r\n") == b"SERVER_ERROR response too large for UDP\r\n"
        assert client.ask(b"version\r\n").startswith(b"VERSION")


def test_endless_answers_are_refused(ours):
    with Datagrams(ours.udp) as client:
        for command in (b"watch\r\n", b"watch fetchers\r\n", b"lru_crawler metadump all\r\n", b"lru_crawler mgdump hash\r\n"):
            assert client.ask(command) == b"CLIENT_ERROR not available over UDP\r\n"


def test_clients_do_not_see_each_others_answers(ours):
    clients = [Datagrams(ours.udp) for _ in range(20)]
    for number, client in enumerate(clients):
        client.socket.send(frame(b"set k%d 0 0 2\r\n%02d\r\nget k%d\r\n" % (number, number, number), request=number))
    for number, client in enumerate(clients):
        expected = b"STORED\r\nVALUE k%d 0 2\r\n%02d\r\nEND\r\n" % (number, number)
        assert client.message(b"END\r\n", request=number) == expected
        client.socket.close()


def test_bytes_are_counted(ours):
    with Datagrams(ours.udp) as client:
        before = [int(ours.stat(name)) for name in ("bytes_read", "bytes_written", "cmd_touch")]
        for _ in range(1000):
            assert client.ask(b"touch absent 0\r\n") == b"NOT_FOUND\r\n"
        after = [int(ours.stat(name)) for name in ("bytes_read", "bytes_written", "cmd_touch")]
        assert after[0] - before[0] > 24_000 and after[1] - before[1] > 19_000 and after[2] - before[2] == 1000


def test_it_is_off_unless_asked_for(ebbtide):
    assert ebbtide.stat("udpport", "stats settings") == "0"
    with Datagrams(ebbtide.port) as client, pytest.raises(ConnectionRefusedError):
        client.is_silent(frame(b"version\r\n"))
        client.is_silent(frame(b"version\r\n"))


def test_values_on_flash_are_answered(tmp_path):
    with start(EBBTIDE, "-m", "16", "--flash", f"{tmp_path / 'flash'}:256m", *PATIENT_FLASH) as server, Datagrams(server.udp) as client:
        with server.connect() as connection:
            for number in range(3000):
                value = b"%06d" % number * 2000
                assert connection.ask(b"set k%d 0 0 %d\r\n%s\r\n" % (number, len(value), value)) == b"STORED\r\n"
        found = 0
        for number in range(0, 3000, 50):
            value = b"%06d" % number * 2000
            answer = client.ask(b"get k%d\r\n" % number, b"END\r\n")
            assert answer in (b"END\r\n", b"VALUE k%d 0 %d\r\n%s\r\nEND\r\n" % (number, len(value), value))
            found += answer != b"END\r\n"
        assert int(server.stat("get_extstore")) > 0 and found > 20


def test_shutdown_over_udp_ends_it(ours):
    with start(EBBTIDE, "-A") as server:
        with Datagrams(server.udp) as client:
            client.socket.send(frame(b"shutdown\r\n"))
        assert server.process.wait(PATIENCE_SECONDS) == 0
    with Connection(("127.0.0.1", ours.port)) as connection:
        assert connection.ask(b"version\r\n").startswith(b"VERSION")

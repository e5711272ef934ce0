"""Clients that mean harm, or are broken: others are served meanwhile, memory stays bounded, nothing is left behind."""

import os
import random
import signal
import socket
import threading
import time

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, Server, wait_for

MIB = 1 << 20
MEMORY_MIB = 64
# What the server promises beside -m, and what the connections of a test may hold in buffers of their own.
PROMISED_BYTES = int(MEMORY_MIB * MIB * 1.05) + 32 * MIB


@pytest.fixture
def server():
    with Server(EBBTIDE, "-m", MEMORY_MIB, "-c", 4096, "-o", "idle_timeout=0") as server:
        yield server


def open_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def assert_served(server, rounds=200):
    """A well-behaved client finds nothing amiss."""
    with server.connect() as connection:
        for turn in range(rounds):
            value = b"%d" % turn
            assert connection.ask(b"set served 0 0 %d\r\n%s\r\n" % (len(value), value)) == b"STORED\r\n"
            answer = connection.ask(b"get served\r\n", b"END\r\n")
            assert answer == b"VALUE served 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)


def test_slow_clients_hold_nobody_up(server):
    before = open_files(server)
    unfinished = [
        b"set slow 0 0 10\r\n0123456789\r\n",
        b"get " + b" ".join(b"key%d" % key for key in range(100)) + b"\r\n",
        b"set slow 0 0 100000\r\n" + b"x" * 100000 + b"\r\n",
        b"incr slow 1\r\n",
    ]
    clients = [(server.connect(), unfinished[client % len(unfinished)]) for client in range(400)]
    for position in range(20):
        for connection, command in clients:
            connection.socket.send(command[position : position + 1])
        assert_served(server, 20)
    assert server.rss_bytes() < PROMISED_BYTES + len(clients) * 16 * 1024
    # One of them comes to an end after all, and is answered.
    connection, command = clients[0]
    assert connection.ask(command[20:]) == b"STORED\r\n"
    for connection, _ in clients:
        connection.close()
    wait_for(lambda: open_files(server) <= before, "the files are closed")
    assert_served(server)


def test_uploads_that_stall_are_bounded(server):
    """Each announces a megabyte and sends most of it: together more than there is memory."""
    clients = [server.connect() for _ in range(120)]
    for number, connection in enumerate(clients):
        connection.send(b"set stalled%d 0 0 1000000\r\n" % number + b"s" * 900_000)
    assert_served(server)
    assert server.rss_bytes() < PROMISED_BYTES + len(clients) * 64 * 1024
    for connection in clients:
        connection.close()
    wait_for(lambda: server.stat("curr_connections") == "1", "the connections go")
    with server.connect() as connection:
        value = b"v" * 1_000_000
        assert connection.ask(b"set large 0 0 %d\r\n%s\r\n" % (len(value), value)) == b"STORED\r\n"
        assert connection.ask(b"get large\r\n", b"END\r\n").count(b"v") >= len(value)


def test_clients_that_do_not_read_hold_little(server):
    with server.connect() as connection:
        value = b"v" * 500_000
        assert connection.ask(b"set large 0 0 %d\r\n%s\r\n" % (len(value), value)) == b"STORED\r\n"
        for key in range(100):
            assert connection.ask(b"set small%d 0 0 1000\r\n%s\r\n" % (key, b"s" * 1000)) == b"STORED\r\n"
    deaf = []
    asked = b"get large\r\n" * 200 + b"get " + b" ".join(b"small%d" % key for key in range(100)) + b"\r\n"
    for _ in range(100):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.setblocking(False)
        client.send(asked)
        deaf.append(client)
    assert_served(server)
    # Each may hold one full output: a quarter of a megabyte and what the last value added, which is not copied.
    assert server.rss_bytes() < PROMISED_BYTES + len(deaf) * MIB // 2
    for client in deaf:
        client.close()
    wait_for(lambda: server.stat("curr_connections") == "1", "the connections go")
    assert_served(server)


def test_garbage_hurts_nobody_else(server):
    """Random bytes on several connections as fast as they are taken; a connection that is closed is opened again."""

    def read_what_is_there(stream):
        """So that it is not full buffers that stop the flow."""
        try:
            stream.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass

    block = random.Random(7).randbytes(1 << 20)
    stop = threading.Event()
    sent = [0] * 3

    def pour(number):
        while not stop.is_set():
            with socket.create_connection(("127.0.0.1", server.port)) as stream:
                stream.settimeout(1)
                try:
                    while not stop.is_set():
                        start = random.randrange(len(block) // 2)
                        sent[number] += stream.send(block[start : start + 65536])
                        read_what_is_there(stream)
                except (ConnectionError, TimeoutError):
                    continue

    pourers = [threading.Thread(target=pour, args=(number,)) for number in range(len(sent))]
    for pourer in pourers:
        pourer.start()
    try:
        soon, deadline = time.monotonic() + 3, time.monotonic() + PATIENCE_SECONDS
        while (now := time.monotonic()) < soon or min(sent) == 0 and now < deadline:
            assert_served(server, 20)
    finally:
        stop.set()
        for pourer in pourers:
            pourer.join()
    assert min(sent) > 0
    assert server.rss_bytes() < PROMISED_BYTES
    assert server.process.poll() is None
    assert_served(server)


def test_lines_of_garbage_are_answered_and_cost_nothing(server):
    """Text without a meaning: an ERROR for each line, however many come."""
    words = [b"nonsense", b"get", b"set a b c d", b"incr", b"delete", b"mystery word", b"touch x"]
    lines = b"".join(random.Random(1).choice(words) + b"\r\n" for _ in range(2000))
    with server.connect() as connection:
        before = server.rss_bytes()
        for _ in range(20):
            connection.send(lines)
            connection.send(b"version\r\n")
            connection.read_until(b"VERSION")
            connection.read_until(b"\r\n")
        assert server.rss_bytes() < before + 4 * MIB


def test_reads_that_stop_early_are_not_the_last(server, tmp_path):
    """What a read has not taken is there already, and nothing more will come."""

    def send_before_it_looks(server, send_first_part):
        with server.connect() as connection:
            assert connection.ask(b"mn\r\n") == b"MN\r\n"
            server.stop_threads()
            send_first_part(connection.socket)
            connection.socket.sendall(b"absent\r\n")
            server.process.send_signal(signal.SIGCONT)
            assert connection.read_until(b"END\r\n") == b"END\r\n"

    def send_urgent_data(stream):
        stream.sendall(b"get ")
        stream.send(b"!", socket.MSG_OOB)

    # A read stops before urgent data, and a Unix socket's behind bytes that came with an open file.
    send_before_it_looks(server, send_urgent_data)
    with Server(EBBTIDE, "-s", tmp_path / "socket") as unix:
        send_before_it_looks(unix, lambda stream: socket.send_fds(stream, [b"get "], [0]))

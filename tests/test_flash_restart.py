"""What flash held is there when the server comes back, and never what was changed, deleted or flushed before it ended."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import threading
import time

import packets
import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, PATIENT_FLASH, Server, wait_for

KEYS = 6000
FILLERS = 30000


def value_of(number, version):
    text = b"%d.%d." % (number, version)
    return (text * 900)[: 5000 if number % 10 == 0 else 300]


def with_flash(path):
    # What is found comes back, so that what was in memory alone is sent to flash by it.
    return Server(EBBTIDE, "-m", "12", "--flash", f"{path}:64m", *PATIENT_FLASH, "--flash-promotion", "always")


def fill(connection, first, count):
    """What it takes to send all else to flash."""
    for number in range(first, first + count):
        connection.send(b"set filler%d 0 0 300 noreply\r\n%s\r\n" % (number, b"f" * 300))
    connection.ask(b"mn\r\n")


def told(connection, data):
    """The answers to these commands, each of a line; an end before that is an error."""
    connection.send(data)
    answers = [connection.read_until(b"\r\n") for _ in range(data.count(b"incr") + 1)]
    if not answers[-1].endswith(b"\r\n"):
        raise EOFError("it has ended")
    return answers[0]


class Client:
    """Knows what the server has acknowledged."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.present = {}
        self.versions = 0
        # The command that may or may not have been done: its key, and what the key has then.
        self.open = None

    def command(self, number):
        self.versions += 1
        kind = self.random.randrange(20)
        if kind < 9:
            value = value_of(number, self.versions)
            return b"set key%d 0 0 %d\r\n%s\r\n" % (number, len(value), value), value
        if kind < 13 or number not in self.present:
            return b"delete key%d\r\n" % number, None
        if kind < 16:
            return b"append key%d 0 0 1\r\n!\r\n" % number, self.present[number] + b"!"
        if kind < 18:
            return b"touch key%d -1\r\n" % number, None
        return b"set key%d 0 0 2\r\n41\r\nincr key%d 1\r\n" % (number, number), b"42"

    def go_on(self, connection):
        number = self.random.randrange(KEYS)
        if self.random.randrange(100000) == 0:
            self.open = ("all", None)
            told(connection, b"flush_all\r\n")
            self.present.clear()
        else:
            command, value = self.command(number)
            self.open = (number, value)
            answer = told(connection, command)
            if value is None:
                self.present.pop(number, None)
            elif b"NOT_STORED" not in answer:
                # Else it was a miss, which removes nothing: a start may find the value in a region that was reclaimed
                # and not written since. It is the key's last one.
                self.present[number] = value
        self.open = None

    def check(self, server):
        found = 0
        with server.connect() as connection:
            for number in range(KEYS):
                answer = connection.ask(b"get key%d\r\n" % number, b"END\r\n")
                if answer == b"END\r\n":
                    continue
                value = answer.split(b"\r\n", 1)[1][: -len(b"\r\nEND\r\n")]
                allowed = [self.present.get(number)]
                if self.open is not None and self.open[0] == number:
                    allowed += [self.open[1], b"41" if self.open[1] == b"42" else None]
                assert value in allowed, f"key{number} came back as {value[:40]!r}, not {str(allowed)[:60]}"
                found += 1
        if self.open is not None:
            with server.connect() as connection:
                # Whatever became of it.
                commands = [b"flush_all\r\n"] if self.open[0] == "all" else [b"delete key%d\r\n" % self.open[0]]
                for command in commands:
                    connection.ask(command)
            if self.open[0] == "all":
                self.present.clear()
            else:
                self.present.pop(self.open[0], None)
            self.open = None
        return found


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_is_gone_comes_back_when_the_server_is_killed(tmp_path, seed):
    client = Client(seed)
    found = 0
    with with_flash(tmp_path / "flash") as server:
        assert "flash starts empty: it is new" in server.messages()
        fillers = 0
        for round in range(12):
            # A disk that stalls for long makes flash take little, or the start cold.
            if round >= 3 and found > 300:
                break
            with server.connect() as connection:
                for number in range(KEYS):
                    value = value_of(number, client.versions)
                    connection.ask(b"set key%d 0 0 %d\r\n%s\r\n" % (number, len(value), value))
                    client.present[number] = value
                fill(connection, fillers, FILLERS)
                fillers += FILLERS
                killer = threading.Timer(client.random.uniform(0.3, 1.0), server.process.kill)
                killer.start()
                try:
                    while True:
                        client.go_on(connection)
                except (OSError, EOFError):
                    # It was killed.
                    server.process.wait(PATIENCE_SECONDS)
                killer.join()
            server.bring_back()
            starts = re.findall("flash is warm after a crash|not stopped, and its deletion log is damaged", server.messages())
            assert len(starts) == round + 1, server.messages()
            found += client.check(server)
    assert found > 300, f"{found} came back: {server.messages()}"


def found_of_the_others(connection):
    """How many of the keys with odd numbers are there, as they were set; the others are not."""
    found = 0
    for number in range(KEYS):
        answer = connection.ask(b"get key%d\r\n" % number, b"END\r\n")
        if answer != b"END\r\n":
            assert number % 2 == 1 and value_of(number, 1) in answer
            found += 1
    return found


def test_a_server_that_was_stopped_is_warm(tmp_path):
    path = tmp_path / "flash"
    with with_flash(path) as server, server.connect() as connection:
        for number in range(KEYS):
            value = value_of(number, 1)
            connection.ask(b"set key%d 0 0 %d\r\n%s\r\n" % (number, len(value), value))
        fill(connection, 0, FILLERS)
        for number in range(0, KEYS, 2):
            connection.ask(b"delete key%d\r\n" % number)
        # How many got to flash hangs on how fast the disk is just now; those that are in memory alone do not come back.
        read_by_deletes = int(server.stat("get_extstore"))
        in_all = found_of_the_others(connection)
        before = int(server.stat("get_extstore")) - read_by_deletes
        assert in_all >= before
    with with_flash(path) as server:
        assert "flash is warm after a stop" in server.messages()
        with server.connect() as connection:
            after = found_of_the_others(connection)
        assert after > before * 0.8 and before > 100, f"{after} of {before} came back"
    os.unlink(f"{path}.removals")
    with with_flash(path) as server:
        assert server.messages().count("flash is warm after a stop") == 1, "a stop needs no log"


def put(connection, prefix, first, count, version):
    for number in range(first, first + count):
        value = value_of(number, version)
        connection.send(b"set %s%d 0 0 %d noreply\r\n%s\r\n" % (prefix, number, len(value), value))
    connection.ask(b"mn\r\n")


def of_version(server, prefix, count, version):
    """How many of these are there with the value of this version."""
    with server.connect() as connection:
        answers = [connection.ask(b"get %s%d\r\n" % (prefix, number), b"END\r\n") for number in range(count)]
    return sum(value_of(number, version) in answer for number, answer in enumerate(answers))


@pytest.mark.parametrize("stops", [True, False], ids=["after a stop", "after a kill"])
@pytest.mark.parametrize("old", ["flash", "flash.removals"])
def test_an_old_file_beside_the_current_one_starts_empty(tmp_path, old, stops):
    path = tmp_path / "flash"
    with with_flash(path) as server, server.connect() as connection:

        def is_on_flash():
            put(connection, b"key", 0, KEYS, 1)
            fill(connection, 0, FILLERS)
            return of_version(server, b"key", 2000, 1) > 100

        wait_for(is_on_flash, "flash takes what is evicted")
    shutil.copy(tmp_path / old, tmp_path / "old")
    with with_flash(path) as server:
        with server.connect() as connection:
            # What was on flash goes round, so that nothing is removed there when the keys are set anew.
            for turn in range(3):
                put(connection, b"other", turn * 20000, 20000, 1)
            put(connection, b"key", 0, 2000, 2)
        if not stops:
            server.kill()
    shutil.copy(tmp_path / "old", tmp_path / old)
    with with_flash(path) as server:
        assert of_version(server, b"key", 2000, 1) == 0, server.messages()
        assert "belongs to another run" in server.messages()


def test_a_warm_start_says_how_long_ago_flash_was_written(tmp_path):
    path = tmp_path / "flash"
    with with_flash(path) as server, server.connect() as connection:
        put(connection, b"key", 0, 20000, 1)
        stopping = time.monotonic()
    stopped = time.monotonic()
    time.sleep(2.1)
    starting = time.monotonic()
    with with_flash(path) as server:
        seconds = re.search(r"flash is warm after a stop: \d+ objects, written last (\d+) s ago", server.messages())
        min_seconds, max_seconds = starting - stopped - 1, time.monotonic() - stopping + 1
        assert seconds and min_seconds <= int(seconds[1]) <= max_seconds, server.messages()


def front_of(server):
    """The file in memory that a server has open; other servers have others at the same time."""
    paths = set()
    for link in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir():
        # A connection may end meanwhile.
        with contextlib.suppress(FileNotFoundError):
            paths.add(link.readlink())
    (front,) = (path for path in paths if path.suffix == ".front")
    return front


def test_after_a_kill_the_log_that_was_the_default_can_be_named(tmp_path):
    path = tmp_path / "flash"
    with with_flash(path) as server:
        with server.connect() as connection:
            put(connection, b"key", 0, 20000, 1)
        server.kill()
    named = ["-m", "12", "--flash", f"{path}:64m", "--flash-deletion-log", f"{path}.removals"]
    with Server(EBBTIDE, *named) as server:
        assert "flash is warm after a crash" in server.messages()


@pytest.mark.parametrize("with_other", [True, False], ids=["a start with flash", "a start without flash"])
def test_what_killed_servers_leave_in_memory_goes_with_their_flash(tmp_path, with_other):
    [gone, held, used] = [tmp_path / name for name in ("gone", "held", "used")]
    found = {}
    with with_flash(used) as user:
        found[used] = front_of(user)
        for path in (gone, held):
            with with_flash(path) as server:
                found[path] = front_of(server)
                server.kill()
        os.unlink(gone)
        with with_flash(tmp_path / "other") if with_other else Server(EBBTIDE, "-m", "12"):
            assert not found[gone].exists()
            assert found[held].exists() and found[used].exists()
    with with_flash(held) as server:
        assert "flash is warm after a crash" in server.messages()


# Few beside the places of the table of tokens.
TOKENS = 200


def set_token_key(connection, number, letter):
    """A value that is longer than those of which flash drops some: their page is not worth a write."""
    assert connection.ask(b"set token%d 0 0 3000\r\n%s\r\n" % (number, letter * 3000)) == b"STORED\r\n"


def push_out(connection):
    """Long values, twice as much as memory holds: few objects, so that a start has memory for the index of all."""
    for number in range(8000):
        connection.send(b"set long%d 0 0 3000 noreply\r\n%s\r\n" % (number, b"l" * 3000))
    connection.ask(b"mn\r\n")


def issued_tokens(server):
    """Keys of which half are on flash and half in memory, and the token that `gets` answers for each."""
    tokens = {}
    with server.connect() as connection:
        for number in range(TOKENS):
            if number == TOKENS // 2:
                push_out(connection)
            set_token_key(connection, number, b"a")
            answer = connection.ask(b"gets token%d\r\n" % number, b"END\r\n")
            tokens[number] = int(answer.split(b"\r\n")[0].split()[4])
    return tokens


def unknown_tokens(server):
    return int(server.stat("flash_unknown_tokens", "stats ebbtide"))


# What a command with a token answers: for the unchanged value, and for another one.
BOUND = [
    (b"cas token%d 0 0 1 %d\r\nx\r\n", b"STORED\r\n", b"EXISTS\r\n"),
    (b"ms token%d 1 C%d\r\nx\r\n", b"HD\r\n", b"EX\r\n"),
    (b"md token%d C%d\r\n", b"HD\r\n", b"EX\r\n"),
]


def test_tokens_outlive_a_stop(tmp_path):
    with with_flash(tmp_path / "flash") as server:
        tokens = issued_tokens(server)
        server.stop()
        server.bring_back()
        assert "flash is warm after a stop" in server.messages()
        with server.connect() as connection, server.connect() as binary:
            reader = packets.Reader(binary)
            for number, token in tokens.items():
                if number % 4 == 3:
                    set_token_key(connection, number, b"b")
                elif number % 8 == 0:
                    binary.send(packets.request(packets.GET, b"token%d" % number))
                    assert reader.answer().cas == token
                elif number % 8 == 4:
                    assert connection.ask(b"mg token%d c\r\n" % number) == b"HD c%d\r\n" % token
                command, stored, exists = BOUND[number % len(BOUND)]
                expected = exists if number % 4 == 3 else stored
                assert connection.ask(command % (number, token)) == expected, f"token{number}"
        assert unknown_tokens(server) == 0


def test_tokens_end_with_a_kill(tmp_path):
    with with_flash(tmp_path / "flash") as server:
        tokens = issued_tokens(server)
        server.stop()
        server.bring_back()
        # The tokens of the stop are for its start alone.
        server.kill()
        server.bring_back()
        assert "flash is warm after a crash" in server.messages()
        refused = 0
        with server.connect() as connection:
            for number, token in tokens.items():
                answer = connection.ask(b"cas token%d 0 0 1 %d\r\nx\r\n" % (number, token))
                assert answer in (b"EXISTS\r\n", b"NOT_FOUND\r\n")
                refused += answer == b"EXISTS\r\n"
        assert unknown_tokens(server) == refused > TOKENS / 2


def test_a_stop_without_a_drain_says_what_is_lost(tmp_path):
    flags = ["-m", "12", "--flash", f"{tmp_path / 'flash'}:64m", "--flash-drain-seconds", "0"]
    with Server(EBBTIDE, *flags) as server:
        with server.connect() as connection:
            for number in range(10):
                told(connection, b"set k%d 0 0 1\r\nx\r\n" % number)
        server.stop()
        lost = "10 objects in memory are lost, but those that flash has: --flash-drain-seconds 0\n"
        assert lost in server.messages(), server.messages()

"""A disk under flash that does nothing for a while: memory is served meanwhile, and nothing that was deleted then comes back."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, Server, free_port, memory_folder_has, wait_for
from test_udp import Datagrams, frame

MIB = 1 << 20
KEYS, VALUE_BYTES = 8000, 3000
LOAD_SECONDS = 10
# The server gives the device up after half a minute without an answer: a machine so slow that the disk stalled for as long
# shows nothing, and the run is repeated.
MAX_STALL_SECONDS = 25
RUNS = 3


def run(*words):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def filesystem(image, mib, folder):
    """ext4 in a file, at a folder."""
    image.touch()
    os.truncate(image, mib * MIB)
    run("mkfs.ext4", "-q", image)
    folder.mkdir()
    # The device goes with its filesystem, and that when no transfer is under way any more.
    run("mount", "-o", "loop", image, folder)
    try:
        yield folder
    finally:
        run("umount", "--lazy", folder)


class Disk:
    """A filesystem whose disk is a file of another one. While that is frozen the disk takes the first write and answers nothing more."""

    def __init__(self, below, folder):
        self.below = below
        self.folder = folder

    @contextlib.contextmanager
    def stalled(self):
        started = time.monotonic()
        run("fsfreeze", "--freeze", self.below)
        try:
            yield
        finally:
            run("fsfreeze", "--unfreeze", self.below)
            self.stalled_seconds = time.monotonic() - started


@pytest.fixture
def disk(tmp_path):
    with contextlib.ExitStack() as stack:
        # In memory if that holds it: what waits for it must not be in the way of the other tests' disk.
        place = "/dev/shm" if memory_folder_has(400) else tmp_path
        memory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place)))
        try:
            below = stack.enter_context(filesystem(memory / "below.img", 300, tmp_path / "below"))
            folder = stack.enter_context(filesystem(below / "disk.img", 200, tmp_path / "disk"))
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"no disk that can be stalled, which takes root and loop devices: {getattr(error, 'stderr', None) or error}")
        yield Disk(below, folder)


def value_of(number):
    return (b"%d." % number * VALUE_BYTES)[:VALUE_BYTES]


def store(connection, numbers):
    for number in numbers:
        assert connection.ask(b"set key%d 0 0 %d\r\n%s\r\n" % (number, VALUE_BYTES, value_of(number))) == b"STORED\r\n"
        # What is evicted faster than the device takes it is dropped.
        if number % 100 == 0:
            time.sleep(0.005)


def found(connection, numbers):
    """Those that are there, each with its value."""
    there = []
    for number in numbers:
        answer = connection.ask(b"get key%d\r\n" % number, b"END\r\n")
        if answer != b"END\r\n":
            assert answer == b"VALUE key%d 0 %d\r\n%s\r\nEND\r\n" % (number, VALUE_BYTES, value_of(number))
            there.append(number)
    return there


class Load(threading.Thread):
    """Gets and sets of some keys of memory at a set rate, on connections of all workers; `report` is what their client saw."""

    def __init__(self, server):
        super().__init__()
        keys = ["--keys", 500, "--value-size", 300, "--prefill", "--get-ratio", 0.9, "--connections", 8]
        pace = ["--rate", 5000, "--seconds", LOAD_SECONDS]
        self.command = [EBBTIDE, "bench", "--target", f"127.0.0.1:{server.port}", "--json", *keys, *pace]
        self.report = None
        self.start()

    def run(self):
        self.report = json.loads(run(*self.command))


def on_flash(connection, numbers, wanted):
    """Those of the numbers that are on flash, at least `wanted`. What is evicted faster than the device takes it is dropped."""
    there = []

    def is_enough():
        store(connection, range(KEYS))
        there[:] = found(connection, numbers)
        return len(there) >= wanted

    wait_for(is_enough, f"{wanted} are on flash")
    return there


def repeated(run):
    """Runs until one has not stalled for too long."""
    for _ in range(RUNS):
        if run() < MAX_STALL_SECONDS:
            return
    raise AssertionError("the device is given up")


def test_memory_is_served_while_the_disk_does_nothing_and_what_is_deleted_stays_away(disk):
    repeated(lambda: stall_under_load(disk))


def stall_under_load(disk):
    flash = disk.folder / "flash"
    flash.unlink(missing_ok=True)
    admin = ["--admin", f"127.0.0.1:{free_port()}"]
    with Server(EBBTIDE, "-m", "8", "-t", "2", *admin, "--flash", f"{flash}:96m") as server:
        with server.connect() as connection:
            there = on_flash(connection, [*range(0, 600, 2), *range(1, KEYS // 2, 2)], 250)
            deleted = [number for number in there if number % 2 == 0]
            kept = [number for number in there if number % 2 == 1]
            assert len(deleted) > 20 and len(kept) > 100
            load = Load(server)
            with disk.stalled():
                # More than there is memory.
                store(connection, range(KEYS, 2 * KEYS))
                # Over more than the five seconds in which the filesystem goes to the disk by itself.
                for number in deleted:
                    assert connection.ask(b"delete key%d\r\n" % number) == b"DELETED\r\n"
                    load.join(LOAD_SECONDS / len(deleted))
                wait_for(lambda: server.fetch("/healthz").startswith("degraded: "), "the stall is noticed")
                load.join(PATIENCE_SECONDS)
                assert not load.is_alive(), "memory is not served"
                assert found(connection, deleted) == []
        print({name: load.report["latency"][name] for name in ("p50_us", "p99_us", "p999_us", "max_us")})
        assert load.report["errors"] == 0 and load.report["hit_ratio"] > 0.99
        if disk.stalled_seconds >= MAX_STALL_SECONDS:
            return disk.stalled_seconds
        server.kill()
        server.bring_back()
        assert "flash is warm after a crash" in server.messages()
        with server.connect() as connection:
            assert found(connection, deleted) == []
            assert len(found(connection, kept)) > len(kept) * 0.8
    return disk.stalled_seconds


def test_a_delete_over_udp_goes_on_without_a_disk_that_does_nothing(disk):
    repeated(lambda: stall_under_deletes(disk))


def stall_under_deletes(disk):
    flash = disk.folder / "flash"
    flash.unlink(missing_ok=True)
    udp = free_port()
    flags = ["-m", "8", "-t", "2", "--admin", f"127.0.0.1:{free_port()}", "-U", udp]
    with Server(EBBTIDE, *flags, "--flash", f"{flash}:96m") as server:
        with server.connect() as connection, Datagrams(udp) as datagrams:
            # No more than can be parked at a time.
            there = on_flash(connection, range(0, 60), 6)[:25]
            with disk.stalled():
                # The first write that does not end stops the reads behind it.
                store(connection, range(KEYS, KEYS + 200))
                for number in there:
                    datagrams.socket.send(frame(b"delete key%d\r\n" % number, request=number))
                for number in there:
                    assert datagrams.message(b"\r\n", request=number) == b"DELETED\r\n"
    return disk.stalled_seconds

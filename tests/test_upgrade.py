"""Upgrade and rollback between two builds that differ in their version only: memory file and flash are warm."""

import os
import re
import signal
import subprocess

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, PATIENT_FLASH, Server
from test_memory_file import all_of, folder, stopped  # noqa: F401
from test_memory_file import fill as fill_memory

# `make upgrade` builds it: the same program with another version, in a build of its own, which takes minutes.
OTHER = os.environ.get("EBBTIDE_OTHER_VERSION")


def version_of(binary):
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout
    return re.search(r"ebbtide (\d+\.\d+\.\d+)", told)[1]


def put(server, name, count):
    with server.connect() as connection:
        for number in range(count):
            connection.send(b"set %s%d 0 0 3000 noreply\r\n%-3000d\r\n" % (name, number, number))
        connection.ask(b"mn\r\n")


def found(server, name, count):
    with server.connect() as connection:
        for number in range(count):
            answer = connection.ask(b"get %s%d\r\n" % (name, number), b"END\r\n")
            right = b"VALUE %s%d 0 3000\r\n%-3000d\r\nEND\r\n" % (name, number, number)
            assert answer in (b"END\r\n", right), answer[:60]
            yield answer == right


def seen(connection, has_flash):
    """All values with their flags; tokens, too, where no eviction changes them."""
    token = rb"^(VALUE \S+ \d+ \d+) \d+"
    answers = all_of(connection).items()
    return {key: re.sub(token, rb"\1", answer) if has_flash else answer for key, answer in answers}


def change_to(server, binary):
    """Stops the server and starts another build of it. Returns what that says."""
    before = version_of(server.binary)
    stopped(server, signal.SIGTERM)
    server.binary = binary
    told = len(server.messages())
    server.bring_back()
    messages = server.messages()[told:]
    assert f"ebbtide {version_of(binary)} " in messages, messages
    assert re.search(rf"memory is warm: \d+ objects, .*written by version {re.escape(before)}$", messages, re.M), messages
    return messages


@pytest.mark.skipif(OTHER is None, reason="`make upgrade` builds the other version")
@pytest.mark.parametrize("has_flash", [False, True], ids=["memory", "flash"])
def test_an_upgrade_and_its_rollback_are_warm(folder, tmp_path, has_flash):  # noqa: F811
    assert version_of(OTHER) != version_of(EBBTIDE)
    flags = ["-m", "64", "-I", "4m", "-e", folder / "memory"]
    flash = ["--flash", f"{tmp_path / 'flash'}:256m", *PATIENT_FLASH]
    # These are more than memory has.
    count = 30_000 if has_flash else 0
    with Server(EBBTIDE, *flags, *(flash if has_flash else [])) as server:
        put(server, b"old", count)
        with server.connect() as connection:
            fill_memory(connection)
        for binary, kept in [(OTHER, b"upgraded"), (EBBTIDE, b"rolled-back")]:
            with server.connect() as connection:
                before = seen(connection, has_flash)
            messages = change_to(server, binary)
            with server.connect() as connection:
                assert seen(connection, has_flash) == before
                assert connection.ask(b"set %s 0 0 1\r\n1\r\n" % kept) == b"STORED\r\n"
            assert ("flash is warm after a stop" in messages) == has_flash
            assert sum(found(server, b"old", count)) >= count * 0.9
        with server.connect() as connection:
            assert connection.ask(b"get upgraded rolled-back\r\n", b"END\r\n").count(b"VALUE") == 2

"""libmemcached's conformance tool."""

import subprocess

import pytest


@pytest.mark.parametrize("protocol, count", [("ascii", 20), ("binary", 25)])
def test_every_case_passes(either, protocol, count):
    result = subprocess.run(
        ["memccapable", "-h", "127.0.0.1", "-p", str(either.port), f"-{protocol[0]}", "-t", "10"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = result.stdout.splitlines()
    cases = [line for line in lines if line.startswith(protocol)]
    assert len(cases) > count, result.stdout + result.stderr
    assert [line for line in cases if "[pass]" not in line] == []
    assert result.returncode == 0

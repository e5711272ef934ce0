"""libmemcached's conformance tool."""

import subprocess


def test_every_ascii_case_passes(either):
    result = subprocess.run(
        ["memccapable", "-h", "127.0.0.1", "-p", str(either.port), "-a", "-t", "10"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = result.stdout.splitlines()
    cases = [line for line in lines if line.startswith("ascii")]
    assert len(cases) > 20, result.stdout + result.stderr
    assert [line for line in cases if "[pass]" not in line] == []
    assert result.returncode == 0

"""A rolling restart of three nodes with memory files, behind a proxy and behind a client that spreads the keys."""

import json
import re
import subprocess
import sys

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, ROOT, free_port

EXAMPLE = ROOT / "packaging/rolling-restart/rolling_restart.py"
KEYS = 600


def run(front):
    """The example's report and its notes. A port may be taken between the look and the start: then once more."""
    for _ in range(5):
        ports = ",".join(str(free_port()) for _ in range(5))
        command = [sys.executable, EXAMPLE, "--ebbtide", EBBTIDE, "--front", front, "--ports", ports, "--json"]
        command += ["--keys", str(KEYS), "--settle", "300", "--timeout", str(PATIENCE_SECONDS)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE_SECONDS)
        if "has not started" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("front", ["twemproxy", "ketama"])
def test_nothing_is_lost(front):
    report, notes = run(front)
    warm = [int(count) for count in re.findall(r"node \d is back: memory is warm: (\d+) objects", notes)]
    assert len(warm) == 3 and all(warm), notes
    # While a node was down its keys went to its neighbours, too.
    assert sum(warm) >= KEYS
    assert report["found_at_the_end"] == KEYS
    assert sum(row["requests"] for row in report["rows"]) > 4 * 300
    assert all(row["hits"] <= row["requests"] for row in report["rows"])

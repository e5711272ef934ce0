"""A rolling restart of three nodes with memory files, behind a proxy and behind a client that spreads the keys."""

import functools
import json
import re
import subprocess
import sys

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, ROOT, free_port

EXAMPLE = ROOT / "packaging/rolling-restart/rolling_restart.py"
KEYS = 600


@functools.cache
def run(front, *more):
    """The example's report and its notes. A port may be taken between the look and the start: then once more."""
    for _ in range(5):
        ports = ",".join(str(free_port()) for _ in range(5))
        command = [sys.executable, EXAMPLE, "--ebbtide", EBBTIDE, "--front", front, "--ports", ports, "--json"]
        command += ["--keys", str(KEYS), "--settle", "300", "--timeout", str(PATIENCE_SECONDS), *more]
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


def read_again(report):
    """Hits and misses of the requests after each node has come back."""
    phases = [row for row in report["phases"] if "is read again" in row["phase"]]
    assert len(phases) == 3 and all(row["requests"] >= 300 for row in phases), phases
    hits = sum(row["hits"] for row in phases)
    return hits, sum(row["requests"] for row in phases) - hits


@pytest.mark.parametrize("front", ["twemproxy", "ketama"])
def test_memory_files_keep_the_hits_of_the_whole(front):
    (warm, _), (cold, notes) = run(front), run(front, "--cold")
    assert "memory is warm" not in notes
    # A node without its objects misses each of its keys once, a third of those that are read: 50 to 60. The hit ratio
    # is the higher the more is read in that time.
    (hits, misses), (_, cold_misses) = read_again(warm), read_again(cold)
    assert hits / (hits + misses) > 0.97 and misses < cold_misses / 3, f"{misses} with memory files, {cold_misses} without"
    assert cold_misses > 3 * 30, cold_misses

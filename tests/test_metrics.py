"""/metrics, read as Prometheus reads it, held to its rules of naming, and compared with /api/overview."""

import json
import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import EBBTIDE, ROOT, Server, free_port

# A last word of a name says what is counted, or the name is of something without a unit.
UNITS = ("_bytes", "_seconds", "_ratio", "_info")
PLAIN = {"ebbtide_connections", "ebbtide_connections_limit", "ebbtide_items", "ebbtide_pool_items", "ebbtide_segments"}
LABELS = {
    "command": r"get|gat|set|delete|incr|decr|touch|cas|other",
    "pool": r"default",
    "result": r"hit|miss|mismatch|stored|not_stored|too_large|out_of_memory",
    "reason": r"memory|index_full|segment|flushed|expired|evicted|compacted",
    "use": r"live|expired|dead|index|metadata|free",
    "state": r"free|open|sealed|retired",
    "version": r"\d+\.\d+\.\d+",
    "le": r"[0-9.e-]+|\+Inf",
}


@pytest.fixture(scope="module")
def admin():
    with Server(EBBTIDE, "-m", "64", "--admin", f"127.0.0.1:{free_port()}") as server:
        with server.connect() as connection:
            connection.ask(b"set secret-key 0 0 1\r\n1\r\n")
            connection.ask(b"get secret-key\r\n", b"END\r\n")
            connection.ask(b"get other\r\n", b"END\r\n")
            connection.ask(b"delete other\r\n")
        yield server


def families(server):
    return {family.name: family for family in text_string_to_metric_families(server.fetch("/metrics"))}


def test_every_family_has_help_a_type_and_a_fitting_name(admin):
    found = families(admin)
    assert len(found) > 20
    for name, family in found.items():
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name) and name.split("_")[0] in ("ebbtide", "process")
        assert name in PLAIN or family.type == "counter" or name.endswith(UNITS), f"{name} has no unit"
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name == f"{name}_total"
            else:
                assert not name.endswith("_total")
            assert sample.value >= 0


def test_the_documentation_names_every_family_and_no_other(admin):
    page = (ROOT / "docs/observability.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \| (counter|gauge|histogram) \|(.*?)\| .* \|$", page, re.MULTILINE)
    documented = {}
    for names, kind, labels in rows:
        for name in re.findall(r"`(\w+)`", names):
            documented[name.removesuffix("_total")] = (kind, set(re.findall(r"`(\w+)`", labels)))
    found = {}
    for name, family in families(admin).items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = (family.type, labels)
    assert documented == found


def test_labels_are_few_and_fixed(admin):
    text = admin.fetch("/metrics")
    assert "secret-key" not in text
    samples = [sample for family in families(admin).values() for sample in family.samples]
    for sample in samples:
        for label, value in sample.labels.items():
            assert re.fullmatch(LABELS[label], value), sample
    keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(keys) == len(set(keys)) < 400


def test_histograms_are_cumulative_and_whole(admin):
    family = families(admin)["ebbtide_command_duration_seconds"]
    by_command = {}
    for sample in family.samples:
        by_command.setdefault(sample.labels["command"], []).append(sample)
    assert len(by_command) == 8
    for command, samples in by_command.items():
        buckets = [(float(s.labels["le"]), s.value) for s in samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and [c for _, c in buckets] == sorted(c for _, c in buckets), command
        count = next(s.value for s in samples if s.name.endswith("_count"))
        total = next(s.value for s in samples if s.name.endswith("_sum"))
        assert buckets[-1] == (float("inf"), count)
        assert (count == 0) == (total == 0)
    assert sum(s.value for s in by_command["get"] if s.name.endswith("_count")) > 0


def test_numbers_are_those_of_the_overview(admin):
    found = families(admin)
    overview = json.loads(admin.fetch("/api/overview"))

    def value(family, **labels):
        return next(s.value for s in found[family].samples if s.labels == labels)

    assert value("ebbtide_commands", command="get", result="hit") == overview["commands"]["get"]["hits"] == 1
    assert value("ebbtide_commands", command="get", result="miss") == overview["commands"]["get"]["misses"] == 1
    assert value("ebbtide_commands", command="delete", result="miss") == 1
    assert value("ebbtide_stores", result="stored") == overview["commands"]["set"]["stored"] == 1
    assert value("ebbtide_items") == overview["items"] == 1
    limit = value("ebbtide_memory_limit_bytes")
    assert limit == overview["memory"]["limit_bytes"] == 64 << 20
    assert sum(s.value for s in found["ebbtide_memory_bytes"].samples) == limit
    for use in ["live", "expired", "dead", "index", "metadata", "free"]:
        assert value("ebbtide_memory_bytes", use=use) == overview["memory"][f"{use}_bytes"]


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed; the other tests hold its rules")
def test_promtool_has_no_complaint(admin):
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=admin.fetch("/metrics"), capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_an_address_in_use_is_an_error_only_if_it_was_asked_for():
    with Server(EBBTIDE, "-m", "64") as other:
        started = subprocess.run(
            [EBBTIDE, "-p", str(free_port()), "-l", "127.0.0.1", "-u", "nobody", "--admin", f"127.0.0.1:{other.port}"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert started.returncode != 0
    assert f"--admin 127.0.0.1:{other.port}" in started.stderr

"""`ebbtide doctor` on this machine: findings with advice, and an exit code that tells of problems."""

import json
import subprocess

from harness import EBBTIDE


def doctor(*words):
    return subprocess.run([EBBTIDE, "doctor", *map(str, words)], capture_output=True, text=True, timeout=60)


def test_it_finds_problems_where_there_are_some():
    done = doctor("--json", "-m", "100t", "-c", 10**8)
    assert done.returncode == 1 and "would keep a server from working" in done.stderr
    report = json.loads(done.stdout)
    problems = {finding["name"]: finding for finding in report["findings"] if finding["verdict"] == "problem"}
    assert len(problems) == report["problems"] >= 2
    assert "lower -m" in problems["memory"]["advice"]
    assert "LimitNOFILE=" in problems["open files"]["advice"]


def test_every_finding_says_what_was_found_and_what_to_do(tmp_path):
    report = json.loads(doctor("--json", "-m", "8m", "-c", 10, "--path", tmp_path).stdout)
    names = {finding["name"] for finding in report["findings"]}
    assert names == {
        *{"open files", "backlog", "threads", "NUMA", "clock", "memory", "overcommit", "swap", "huge pages"},
        *{"membarrier", "io_uring", "direct I/O", "file system", "drive"},
        *{"steal", "CPU limit", "TCP", "conntrack", "NIC queues", "packets"},
    }
    for finding in report["findings"]:
        assert finding["found"]
        assert (finding["advice"] is None) == (finding["verdict"] == "ok")
    assert not list(tmp_path.iterdir())


def test_the_text_has_a_line_for_each_finding():
    done = doctor("-m", "8m", "-c", 10)
    verdicts = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert len(verdicts) == 17 and set(verdicts) <= {"ok", "advice", "PROBLEM"}
    assert done.returncode == int("PROBLEM" in verdicts)


def test_memory_without_a_unit_is_megabytes_as_for_the_server():
    def of(memory):
        findings = json.loads(doctor("--json", "-m", memory, "-c", 10).stdout)["findings"]
        return next(finding["found"] for finding in findings if finding["name"] == "memory")

    assert of("64") == of("64m") != of("64k")


def test_counts_have_units_as_elsewhere(tmp_path):
    same = [doctor("-c", "2k", "-b", "1k", "--json"), doctor("-c", "2000", "-b", "1000", "--json")]
    files = [next(row for row in json.loads(done.stdout)["findings"] if row["name"] == "open files") for done in same]
    assert files[0] == files[1]
    for words in (["bench", "--connections", "1k", "--seconds", "0.1"], ["bench", "--rate", "x"]):
        done = subprocess.run([EBBTIDE, *words], capture_output=True, text=True, timeout=60)
        assert "it needs --target" in done.stderr or "such as 5000, 20m or 1g" in done.stderr, done.stderr


def test_the_limits_of_the_memory_monitor_are_looked_at():
    words = ["--json", "-m", "64m", "-c", 10, "--memory-monitor"]
    report = json.loads(doctor(*words, "free,lower=900t,upper=1000t").stdout)
    found = next(finding for finding in report["findings"] if finding["name"] == "memory monitor")
    assert found["verdict"] == "problem" and "give a smaller lower" in found["advice"]
    refused = doctor(*words, "free,lower=1m")
    assert refused.returncode == 2 and "--memory-monitor free,lower=1m" in refused.stderr


def test_the_memory_file_is_looked_at(tmp_path):
    path = tmp_path / "memory"
    path.write_bytes(b"")
    path.chmod(0o666)
    report = json.loads(doctor("--json", "-m", "8m", "-c", 10, "-e", path).stdout)
    found = next(finding for finding in report["findings"] if finding["name"] == "memory file")
    assert found["verdict"] == "problem" and "chmod go-w" in found["advice"] and "mode 0666" in found["found"]


def test_the_settings_of_the_server_are_looked_at(tmp_path):
    (tmp_path / "memory").write_bytes(b"")
    (tmp_path / "memory").chmod(0o666)
    flags = tmp_path / "ebbtide.conf"
    flags.write_text(f"-m 8  # megabytes\n-c 100000000\n-e {tmp_path}/memory\n--flash {tmp_path}/flash:1g\n-u nobody\n")
    done = doctor("--json", "--flags-file", flags)
    assert done.returncode == 1
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert "for -m 8 MiB" in findings["memory"]["found"]
    assert findings["open files"]["verdict"] == findings["memory file"]["verdict"] == "problem"
    assert str(tmp_path) in findings["file system"]["found"]
    # Arguments of the command and flags of the server in any order.
    done = doctor("--flags-file", flags, "-c", "10", "-v", "--json", "--flash", f"{tmp_path}/flash:1g", "-e", tmp_path / "new")
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["open files"]["verdict"] == "ok" and f"{tmp_path}/new: " in findings["memory file"]["found"]
    refused = doctor("--flags-file", flags, "--frob")
    assert refused.returncode == 2 and "--frob: unknown flag" in refused.stderr

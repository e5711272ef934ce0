"""What is under packaging/: it parses, it fits the server's flags, and the server keeps its side of the protocols."""

import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest
import yaml

from harness import EBBTIDE, PATIENCE_SECONDS, ROOT, Server

PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "systemd/ebbtide.service"


def run(*words):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=60)


@pytest.fixture
def unit(tmp_path):
    """The unit with the binary that is tested, because systemd wants to see the file."""
    text = UNIT.read_text().replace("/usr/bin/ebbtide", str(pathlib.Path(EBBTIDE).resolve()))
    path = tmp_path / UNIT.name
    path.write_text(text)
    return path


def test_systemd_takes_the_unit(unit):
    done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
    assert done.returncode == 0, done.stderr
    assert str(unit.name) not in done.stderr


def test_the_unit_is_hardened(unit):
    done = run("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit)
    assert done.returncode == 0, done.stdout[-400:]


def test_the_flags_of_the_unit_and_its_file_start_a_server(tmp_path):
    conf = PACKAGING / "etc/ebbtide.conf"
    lines = UNIT.read_text().splitlines()
    commands = [line.partition("=")[2].split() for line in lines if line.startswith(("ExecStart=", "ExecStartPre="))]
    assert len(commands) == 2
    # What is commented out must be right as well; only the certificates are not there.
    everything = tmp_path / "ebbtide.conf"
    uncommented = re.sub(r"^# (?=-)", "", conf.read_text(), flags=re.M).replace("\n-Z\n", "\n")
    everything.write_text("\n".join(line for line in uncommented.splitlines() if "ssl_" not in line))
    for command in commands:
        for file in (conf, everything):
            words = [str(file) if word == "/etc/ebbtide.conf" else word for word in command[1:]]
            done = run(EBBTIDE, "--check", *words)
            assert done.returncode == 0 and "warning" not in done.stdout, (done.stdout, done.stderr)


def test_a_manager_is_told(tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        path.chmod(0o777)
        manager.settimeout(PATIENCE_SECONDS)

        def state():
            return dict(line.split("=", 1) for line in manager.recv(4096).decode().splitlines())

        flags = ["-e", tmp_path / "memory", "--save-seconds", "77"]
        with Server(EBBTIDE, *flags, environment={"NOTIFY_SOCKET": str(path)}) as server:
            told = state()
            assert told["READY"] == "1" and told["MAINPID"] == str(server.process.pid)
            server.connect().close()
            server.process.send_signal(signal.SIGHUP)
            told = state()
            assert told["RELOADING"] == "1" and int(told["MONOTONIC_USEC"]) > 0
            assert state()["READY"] == "1"
            server.process.send_signal(signal.SIGTERM)
            told = state()
            # Longer than the save of the memory file may take.
            assert told["STOPPING"] == "1" and int(told["EXTEND_TIMEOUT_USEC"]) > 77_000_000
            assert server.process.wait(PATIENCE_SECONDS) == 0


def test_a_manager_with_an_abstract_name_is_told():
    name = f"ebbtide-test-{os.getpid()}-{socket.gethostname()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        manager.settimeout(PATIENCE_SECONDS)
        with Server(EBBTIDE, environment={"NOTIFY_SOCKET": "@" + name}):
            assert manager.recv(4096).startswith(b"READY=1\n")


def test_a_manager_that_is_gone_disturbs_nobody(tmp_path):
    with Server(EBBTIDE, environment={"NOTIFY_SOCKET": str(tmp_path / "absent")}) as server:
        assert server.stat("pid") == str(server.process.pid)


def test_the_kubernetes_objects_fit_together():
    documents = list(yaml.safe_load_all((PACKAGING / "kubernetes/ebbtide.yaml").read_text()))
    kinds = {document["kind"]: document for document in documents}
    assert set(kinds) == {"Service", "StatefulSet", "PodDisruptionBudget"}
    stateful = kinds["StatefulSet"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels == kinds["Service"]["spec"]["selector"]
    assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert stateful["serviceName"] == kinds["Service"]["metadata"]["name"]
    (container,) = stateful["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"] for port in kinds["Service"]["spec"]["ports"]} <= set(ports)
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    args = container["args"]
    report = run(EBBTIDE, "--check", *args)
    assert report.returncode == 0, report.stderr
    assert f"0.0.0.0:{ports['admin']}" in report.stdout and f":{ports['memcache']}" in report.stdout
    megabytes = int(args[args.index("-m") + 1])
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    assert limit >= megabytes * 1.05 + 32


def test_the_image_is_built_from_what_is_there():
    lines = (PACKAGING / "docker/Dockerfile").read_text().splitlines()
    instructions = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    version = re.search(r'rust-version = "([\d.]+)"', (ROOT / "Cargo.toml").read_text())[1]
    assert f"FROM rust:{version}-" in "\n".join(lines)
    assert instructions["USER"].split(":")[0] != "0"
    assert run(EBBTIDE, "--check", *re.findall(r'"([^"]*)"', instructions["CMD"])).returncode == 0

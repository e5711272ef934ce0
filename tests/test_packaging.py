"""What is under packaging/: it parses, it fits the server's flags, and the server keeps its side of the protocols."""

import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess

import pytest
import yaml

import helm
import tls
from harness import EBBTIDE, PATIENCE_SECONDS, ROOT, USER, Server, free_port

PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "systemd/ebbtide.service"


def run(*words):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=PATIENCE_SECONDS)


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
    # The unit provides the directory of the memory file.
    assert "StateDirectory=ebbtide" in lines and "-e /var/lib/ebbtide/" in uncommented
    uncommented = uncommented.replace("/var/lib/ebbtide/", f"{tmp_path}/")
    everything.write_text("\n".join(line for line in uncommented.splitlines() if "ssl_" not in line))
    for command in commands:
        for file in (conf, everything):
            words = [str(file) if word == "/etc/ebbtide.conf" else word for word in command[1:]]
            done = run(EBBTIDE, *USER, "--check", *words)
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
    instructions = dict(line.split(None, 1) for line in lines if line and not line.startswith(("#", " ")))
    version = re.search(r'rust-version = "([\d.]+)"', (ROOT / "Cargo.toml").read_text())[1]
    assert f"FROM rust:{version}-" in "\n".join(lines)
    assert instructions["USER"].split(":")[0] != "0"
    assert run(EBBTIDE, "--check", *re.findall(r'"([^"]*)"', instructions["CMD"])).returncode == 0
    # Line tables are three quarters of the binary.
    assert any(re.search(r"strip -o /ebbtide\b", line) for line in lines)


@pytest.mark.parametrize("by", ["default", "admin", "no admin", "password", "TLS", "socket", "binary", "file"])
def test_the_health_check_of_the_image_finds_a_server(tmp_path, by):
    check = next(line for line in (PACKAGING / "docker/Dockerfile").read_text().splitlines() if line.startswith("HEALTHCHECK"))
    words = re.findall(r'"([^"]*)"', check)[1:]
    users = tmp_path / "users"
    users.write_text("user:pass\n")
    (tmp_path / "conf").write_text(f"--admin 127.0.0.1:{free_port()}\n")
    admin = ["--admin", f"127.0.0.1:{free_port()}"]
    more = {
        "default": [],
        "admin": admin,
        "no admin": ["--admin", "off"],
        "password": ["-Y", users],
        "TLS": tls.flags(*tls.Authority(tmp_path).issue("server")),
        "socket": ["-s", tmp_path / "socket"],
        "binary": ["-B", "binary"],
        "file": ["--flags-file", tmp_path / "conf"],
    }[by]
    with Server(EBBTIDE, *more) as server:
        healthy = run(EBBTIDE, *words, "--pid", server.process.pid)
        assert (healthy.returncode, healthy.stdout) == (0, "ok\n"), healthy.stderr
        # One that is stopped has open ports and does not answer.
        server.stop_threads()
        hung = run(EBBTIDE, *words, "--pid", server.process.pid)
        server.process.send_signal(signal.SIGCONT)
        assert hung.returncode == 1 and str(server.process.pid) in hung.stderr
    assert run(EBBTIDE, *words, "--pid", server.process.pid).returncode == 1
    assert "no ebbtide" in run(EBBTIDE, *words, "--pid", os.getpid()).stderr


def test_the_layer_of_dependencies_has_a_workspace_that_cargo_takes(tmp_path):
    """What the first COPY and RUN of the image do, in a folder, but for the build itself."""
    text = (PACKAGING / "docker/Dockerfile").read_text().replace("\\\n", " ")
    copied = next(line.split()[2:-1] for line in text.splitlines() if line.startswith("COPY --parents"))
    ignored = (ROOT / ".dockerignore").read_text().split()
    for pattern in copied:
        found = list(ROOT.glob(pattern))
        assert found and pattern.split("/")[0] not in ignored, pattern
        for path in found:
            to = tmp_path / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(path, to) if path.is_dir() else shutil.copy(path, to)
    script = next(line[4:] for line in text.splitlines() if line.startswith("RUN for manifest"))
    build = "cargo build --release --locked --package ebbtide-cli"
    assert build in script
    script = script.replace(build, "cargo tree --locked --offline --package ebbtide-cli")
    done = subprocess.run(["sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "hashbrown" in done.stdout, done.stderr


VARIANTS = {
    "plain": {},
    "memory": {"memoryFile": {"kind": "memory"}, "stopSeconds": 120},
    "hostPath": {"memoryFile": {"kind": "hostPath"}, "minReadySeconds": 60, "cpu": "3"},
    "volume": {"memoryFile": {"kind": "persistentVolume", "storageClassName": "fast"}, "stopSeconds": 90},
    "two volumes": {"memoryFile": {"kind": "persistentVolume"}, "flash": {"enabled": True, "megabytes": 2048}},
    "deletion log": {"flash": {"enabled": True, "megabytes": 2048, "storageClassName": "", "deletionLog": "/flash/deletions"}},
    "everything": {
        "memoryFile": {"kind": "hostPath"},
        "flash": {"enabled": True, "megabytes": 2048, "storageClassName": "fast", "deletionLog": ""},
        "authSecret": "users",
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "networkPolicy": {"enabled": True},
        "nodeSelector": {"disk": "nvme"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "tolerations": [{"key": "cache", "operator": "Exists"}],
        "priorityClassName": "cache",
        "imagePullSecrets": [{"name": "registry"}],
        "podAnnotations": {"team": "storage"},
        "extraArgs": ["-o", "idle_timeout=600"],
    },
}


def longest_stop(arguments, folder):
    """Seconds that a stop may take with these arguments of a container, by `--check`."""
    replaced = []
    for argument in arguments:
        for place in ("/flash/", "/memory/"):
            if argument.startswith(place):
                mount = folder / place.strip("/")
                mount.mkdir(exist_ok=True)
                argument = f"{mount}/{argument.removeprefix(place)}"
        replaced.append(argument)
    if "-Y" in replaced:
        at = replaced.index("-Y")
        del replaced[at : at + 2]
    done = run(EBBTIDE, *USER, "--check", *replaced)
    assert done.returncode == 0, done.stderr
    return int(re.search(r"stop\s+at most (\d+)s", done.stdout)[1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_makes_objects_that_fit_together(variant, tmp_path):
    values, kinds = helm.chart(PACKAGING / "helm/ebbtide", "cache", VARIANTS[variant])
    optional = {"ServiceMonitor", "PrometheusRule", "NetworkPolicy"} if variant == "everything" else set()
    assert set(kinds) == {"Service", "StatefulSet", "PodDisruptionBudget"} | optional
    stateful = kinds["StatefulSet"]["spec"]
    pod = stateful["template"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    selectors = [stateful["selector"]["matchLabels"], kinds["Service"]["spec"]["selector"]]
    selectors.append(kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    (container,) = pod["containers"]
    ports = {port["name"] for port in container["ports"]}
    if optional:
        selectors.append(kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
        assert kinds["ServiceMonitor"]["spec"]["selector"]["matchLabels"] == kinds["Service"]["metadata"]["labels"]
        rules = kinds["NetworkPolicy"]["spec"]["ingress"]
        assert {port["port"] for rule in rules for port in rule["ports"]} == ports
        assert rules[0]["from"][0]["podSelector"]["matchLabels"] == values["networkPolicy"]["clientLabels"]
        monitor = kinds["ServiceMonitor"]
        assert monitor["spec"]["endpoints"][0]["port"] in ports
        assert monitor["metadata"]["labels"] == values["serviceMonitor"]["labels"]
        # The job of the alert rules.
        assert kinds["Service"]["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "ebbtide"
        rule = kinds["PrometheusRule"]
        assert rule["spec"] == yaml.safe_load((PACKAGING / "prometheus/alerts.yaml").read_text())
        assert rule["metadata"] == {"name": "cache", "labels": values["prometheusRule"]["labels"]}
        for name in ("nodeSelector", "affinity", "tolerations", "priorityClassName", "imagePullSecrets"):
            assert pod[name] == values[name]
        assert stateful["template"]["metadata"]["annotations"] == values["podAnnotations"]
    if values["memoryFile"]["kind"] == "hostPath" and not values["affinity"]:
        (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"] == labels
    assert all(selector == labels for selector in selectors)
    assert stateful["serviceName"] == kinds["Service"]["metadata"]["name"] == "cache"
    assert {port["targetPort"] for port in kinds["Service"]["spec"]["ports"]} <= ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    assert pod["terminationGracePeriodSeconds"] > longest_stop(container["args"], tmp_path)
    # Every mount has its volume, and the container may hold what its flags ask for.
    volumes = {volume["name"] for volume in pod.get("volumes") or []}
    volumes |= {claim["metadata"]["name"] for claim in stateful.get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container.get("volumeMounts") or []} == volumes
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    # The cache lies in a mapped file and counts once; the index is in memory and, after a stop, in the file.
    is_mapped = values["memoryFile"]["kind"] == "memory"
    flash_part = 1 / 32 if values["flash"]["enabled"] else 0
    assert limit >= values["memoryMegabytes"] * ((1.25 if is_mapped else 1.05) + flash_part) + 32
    assert limit <= values["memoryMegabytes"] * 1.5
    # The flags are the server's, with paths that exist here.
    users = tmp_path / "users"
    users.write_text("user:secret\n")
    mounts = {f"/{name}/": f"{tmp_path / name}/" for name in ("flash", "memory")}
    for folder in mounts.values():
        pathlib.Path(folder).mkdir(exist_ok=True)
    args = [str(arg).replace("/auth/users", str(users)) for arg in container["args"]]
    args = [next((arg.replace(*mount) for mount in mounts.items() if arg.startswith(mount[0])), arg) for arg in args]
    report = run(EBBTIDE, *USER, "--check", *args)
    assert report.returncode == 0, report.stderr
    # Every pod reaches the admin port, and without passwords the cache.
    warnings = [line for line in report.stdout.splitlines() if line.startswith("warning ")]
    risks = ["admin HTTP on 0.0.0.0:11212 can be read"] + ([] if values["authSecret"] else ["no password is asked"])
    assert len(warnings) == len(risks) and all(risk in warning for risk, warning in zip(risks, warnings)), warnings


def test_a_memory_file_on_a_volume_fits_and_stays_closed_to_others():
    values, kinds = helm.chart(PACKAGING / "helm/ebbtide", "cache", VARIANTS["two volumes"])
    stateful = kinds["StatefulSet"]["spec"]
    claims = {claim["metadata"]["name"]: claim["spec"] for claim in stateful["volumeClaimTemplates"]}
    assert set(claims) == {"memory", "flash"}
    size = int(claims["memory"]["resources"]["requests"]["storage"].removesuffix("Mi"))
    # The image of the memory, and 5 % that ext4 keeps for root.
    assert size * 0.95 > values["memoryMegabytes"] + 2
    pod = stateful["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    file = pathlib.PurePath(container["args"][container["args"].index("-e") + 1])
    assert str(file.parent) == mounts["memory"]
    # The kubelet would change the mode of the file at each mount, and a start refuses one that the group may write to.
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    # A start may take as long as the stop that wrote the file.
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= values["stopSeconds"] + 300
    _, kinds = helm.chart(PACKAGING / "helm/ebbtide", "cache", VARIANTS["volume"])
    (claim,) = kinds["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert (claim["metadata"]["name"], claim["spec"]["storageClassName"]) == ("memory", "fast")


def test_large_numbers_of_the_chart_are_whole():
    changes = {"memoryMegabytes": 2_000_000, "flash": {"enabled": True, "megabytes": 4_000_000}, "stopSeconds": 1_000_000}
    _, kinds = helm.chart(PACKAGING / "helm/ebbtide", "cache", changes)
    (container,) = kinds["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert {"2000000", "/flash/cache:4000000m", "1000000"} <= {str(argument) for argument in container["args"]}


def test_the_deletion_log_of_the_chart_lies_on_the_volume():
    def arguments(variant):
        _, kinds = helm.chart(PACKAGING / "helm/ebbtide", "cache", VARIANTS[variant])
        (container,) = kinds["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        return container["args"], {mount["mountPath"] for mount in container["volumeMounts"]}

    args, mounts = arguments("deletion log")
    log = pathlib.PurePath(args[args.index("--flash-deletion-log") + 1])
    assert str(log.parent) in mounts
    assert "--flash-deletion-log" not in arguments("everything")[0]


def test_what_a_rolling_update_keeps_is_told_for_values_that_exist():
    """The table of the page names values of the chart, and the grace period that the chart has."""
    page = (ROOT / "docs/operations.md").read_text().split("## Rolling update in Kubernetes\n")[1].split("\n## ")[0]
    values, kinds = helm.chart(PACKAGING / "helm/ebbtide", "cache", {})
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {path for row in rows for path in re.findall(r"`([\w.]+):", row)}
    assert named == {"memoryFile.kind", "flash.enabled", "flash.deletionLog"}
    for path in named:
        helm.look_up(values, path)
    grace = kinds["StatefulSet"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    more = int(re.search(r"`stopSeconds` plus (\d+) seconds", page)[1])
    assert grace == values["stopSeconds"] + more
    assert str(more + 40) in page, "with flash"


def names_of_metrics(text):
    return set(re.findall(r"\b(?:ebbtide|process)_[a-z_]+\b", text))


def test_alerts_and_dashboard_use_metrics_that_exist(tmp_path):
    flash = tmp_path / "flash"
    with Server(EBBTIDE, "--admin", f"127.0.0.1:{free_port()}", "--flash", f"{flash}:64m") as server:
        there = {line.split("{")[0].split(" ")[0] for line in server.fetch("/metrics").splitlines() if not line.startswith("#")}
    alerts = yaml.safe_load((PACKAGING / "prometheus/alerts.yaml").read_text())
    rules = alerts["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["annotations"]["summary"] and rule["annotations"]["action"]
        assert names_of_metrics(rule["expr"]) <= there or rule["expr"].startswith("up{"), rule["alert"]
    dashboard = json.loads((PACKAGING / "grafana/ebbtide.json").read_text())
    panels = dashboard["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    expressions += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    expressions += [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    for expression in expressions:
        assert names_of_metrics(expression) and names_of_metrics(expression) <= there, expression
        assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")
    # No two panels lie over each other.
    cells = [(x, y) for panel in panels for box in [panel["gridPos"]] for x in range(box["x"], box["x"] + box["w"]) for y in range(box["y"], box["y"] + box["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_takes_the_alert_rules():
    done = run("promtool", "check", "rules", "--lint-fatal", PACKAGING / "prometheus/alerts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The Debian package, built from the binary under test."""
    folder = tmp_path_factory.mktemp("package")
    done = subprocess.run(
        [PACKAGING / "debian/build.sh", EBBTIDE, "0.1.0", folder],
        cwd=ROOT,
        env={**os.environ, "COMPRESSION": "none"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    (package,) = folder.glob("*.deb")
    return package


def test_lintian_finds_nothing(package):
    if shutil.which("lintian") is None:
        pytest.skip("lintian is not installed: apt-get install lintian")
    # Xz is what a release has; dpkg-deb stores nothing here, which is quicker.
    tags = ["uses-no-compression-for-data-tarball", "uses-no-compression-for-control-tarball"]
    done = run("lintian", "--allow-root", "--suppress-tags", ",".join(tags), package)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_helm_takes_the_chart(tmp_path):
    if shutil.which("helm") is None:
        pytest.skip("helm is not installed: the test of the templates stands for it")
    for variant, changes in VARIANTS.items():
        values = tmp_path / f"{variant}.yaml"
        values.write_text(yaml.safe_dump(changes))
        for command in (["lint", PACKAGING / "helm/ebbtide"], ["template", "cache", PACKAGING / "helm/ebbtide"]):
            done = run("helm", *command, "--values", values)
            assert done.returncode == 0, done.stdout + done.stderr


def test_the_debian_package_has_what_belongs_to_it(package, tmp_path):
    fields = run("dpkg-deb", "--field", package).stdout
    assert "Package: ebbtide\n" in fields and "Version: 0.1.0\n" in fields
    root = tmp_path / "root"
    assert run("dpkg-deb", "--extract", package, root).returncode == 0
    assert run("dpkg-deb", "--control", package, tmp_path / "control").returncode == 0
    assert (tmp_path / "control/conffiles").read_text() == "/etc/ebbtide.conf\n"
    for script in ("postinst", "prerm", "postrm"):
        assert run("sh", "-n", tmp_path / "control" / script).returncode == 0
    assert run(root / "usr/bin/ebbtide", "-V").stdout.startswith("memcached 1.6.")
    assert run(root / "usr/bin/ebbtide", "--check", "--flags-file", root / "etc/ebbtide.conf").returncode == 0
    unit = (root / "lib/systemd/system/ebbtide.service").read_text()
    assert all((root / path.lstrip("/")).exists() for path in re.findall(r"/usr/bin/\w+|/etc/[\w.]+", unit))
    manuals = {path.name for path in (root / "usr/share/man/man1").iterdir()}
    assert {"ebbtide.1.gz", "ebbtide-replay.1.gz", "ebbtide-capture.1.gz"} <= manuals
    for manual in (root / "usr/share/man/man1").iterdir():
        page = gzip.open(manual, "rt").read()
        assert page.lstrip().startswith((".ie", ".TH")) and ".SH NAME" in page, manual
    assert "_ebbtide" in (root / "usr/share/bash-completion/completions/ebbtide").read_text()
    assert (root / "usr/share/zsh/vendor-completions/_ebbtide").read_text().startswith("#compdef ebbtide")
    assert "ebbtide" in (root / "usr/share/fish/vendor_completions.d/ebbtide.fish").read_text()


# Stands for the service manager: runs the installed server with the memory file of its state directory, stops it with
# SIGTERM, and waits until it is gone.
INVOKE = """#!/bin/sh
set -e
echo "$@" >> "$LOG"
state=$DPKG_ROOT/var/lib/ebbtide
stop() {
    pid=$(cat "$LOG.pid" 2>/dev/null) || return 0
    kill -TERM "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
}
case $1 in stop | restart) stop ;; esac
case $1 in start | restart)
    mkdir -p -m 700 "$state"
    "$DPKG_ROOT/usr/bin/ebbtide" $USER_FLAGS -d -p "$PORT" -l 127.0.0.1 -e "$state/memory" -P "$LOG.pid" \
        </dev/null >/dev/null 2>&1
    ;;
esac
"""


def test_an_upgrade_of_the_package_keeps_the_memory_file_warm(package, tmp_path):
    root, tools, later, log = (tmp_path / name for name in ("root", "tools", "later", "log"))
    for folder in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "run/systemd/system"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    tools.mkdir()
    for name, text in (("deb-systemd-invoke", INVOKE), ("deb-systemd-helper", "#!/bin/sh\n"), ("systemctl", "#!/bin/sh\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    assert run("dpkg-deb", "--raw-extract", package, later).returncode == 0
    control = later / "DEBIAN/control"
    control.write_text(control.read_text().replace("Version: 0.1.0\n", "Version: 0.1.1\n"))
    newer = tmp_path / "newer.deb"
    assert run("dpkg-deb", "--root-owner-group", "-Znone", "--build", later, newer).returncode == 0
    port = free_port()
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    environment = {**os.environ, "PATH": f"{tools}:{path}", "LOG": str(log), "PORT": str(port), "USER_FLAGS": " ".join(USER)}

    def dpkg(*words):
        force = "--force-script-chrootless,not-root,depends,bad-path"
        line = ["dpkg", f"--root={root}", force, "--log=/dev/null", *map(str, words)]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(line, end):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(line)
            answer = b""
            while not answer.endswith(end):
                answer += connection.recv(65536)
            return answer

    state = root / "var/lib/ebbtide"
    try:
        dpkg("--install", package)
        assert ask(b"set kept 0 0 5\r\nvalue\r\n", b"STORED\r\n")
        first = int((tmp_path / "log.pid").read_text())
        dpkg("--install", newer)
        assert int((tmp_path / "log.pid").read_text()) != first
        assert b"value" in ask(b"get kept\r\n", b"END\r\n"), "cold after the upgrade"
        dpkg("--remove", "ebbtide")
        assert stat.S_ISREG((state / "memory").stat().st_mode), "a removal keeps the state"
        assert log.read_text().splitlines() == [f"{verb} ebbtide.service" for verb in ("start", "restart", "stop")]
        dpkg("--purge", "ebbtide")
        assert not state.exists()
    finally:
        if (tmp_path / "log.pid").exists():
            os.kill(int((tmp_path / "log.pid").read_text()), signal.SIGKILL)

"""Settings in files, and `--check`, which says what would become of them."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, USER, Server, free_port, open_to_others
from tls import Authority, flags

DEBIAN = pathlib.Path("/etc/memcached.conf")


@pytest.fixture
def folder(tmp_path):
    open_to_others(tmp_path)
    return tmp_path


def run(*words, user=USER):
    words = [EBBTIDE, *user, *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL)


def check(*words):
    return run("--check", *words)


def report(*words):
    done = check(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_that_memcached_lists_is_known():
    usage = subprocess.run([MEMCACHED, "-h"], capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout
    options = re.findall(r"^   - ([a-z_]+):", usage, flags=re.M)
    flags = re.findall(r"^-([A-Za-z])[ ,]", usage, flags=re.M)
    assert len(options) > 40 and len(flags) > 30
    for option in options:
        message = check("-o", f"{option}=1").stderr
        assert "Illegal suboption" not in message, option
    for flag in flags:
        assert "unknown flag" not in check(f"-{flag}").stderr, flag


def test_a_file_of_flags_starts_a_server(folder):
    file = folder / "ebbtide.conf"
    file.write_text("# a comment\n-d\nlogfile /var/log/x\n-m 100 # all of it\n-c 500\n-o idle_timeout=77,modern\n-f 1.5\n")
    with Server(EBBTIDE, "--flags-file", file, "-c", 300) as server:
        settings = [server.stat(name, "stats settings") for name in ("maxbytes", "maxconns", "idle_timeout")]
        assert settings == [str(100 << 20), "300", "77"]
        assert "-f is ignored" in server.messages()


def test_debians_own_file_is_understood():
    assert "127.0.0.1:11211" in report("--flags-file", DEBIAN)


def test_a_toml_file_starts_a_server(folder):
    file = folder / "ebbtide.toml"
    file.write_text('memory-limit = "100m"\nconn-limit = 500\npolicy = "s3fifo"\n[extended]\nidle_timeout = 77\n')
    with Server(EBBTIDE, "--config", file) as server:
        settings = [server.stat(name, "stats settings") for name in ("maxbytes", "maxconns", "idle_timeout")]
        assert settings == [str(100 << 20), "500", "77"]


def test_mistakes_in_files_are_named_with_their_line(folder):
    file = folder / "file"
    for flag, text, line, code, part in (
        ("--flags-file", "-m 64\n-Q\n", 2, 78, "-Q"),
        ("--flags-file", "-m 64\n\n-p 70000\n", 3, 64, "-p 70000"),
        ("--config", "port = 11211\nfrob = 1\n", 2, 78, "frob"),
        ("--config", "port = \n", 1, 78, ""),
        ("--config", "[extended]\nproxy_config = 'f'\n", 2, 64, "proxy"),
    ):
        file.write_text(text)
        for words in ((flag, file), ("--check", flag, file)):
            done = run(*words, "-p", free_port())
            assert done.returncode == code, done.stderr
            assert f"{file}:{line}: " in done.stderr and part in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1
    done = run("--config", folder / "absent")
    assert done.returncode == 71 and str(folder / "absent") in done.stderr


def test_a_check_says_what_the_numbers_become():
    text = report("-m", 1024, "-I", "2m", "-l", "127.0.0.1:7,notls:127.0.0.1:8", "-t", 3, "-c", 77)
    lines = dict(line.split(None, 1) for line in text.splitlines())
    assert lines["listen"] == "127.0.0.1:7, 127.0.0.1:8"
    assert lines["memory"].startswith("1 GiB")
    assert (lines["threads"], lines["connections"]) == ("3", "77")
    # The engine's own numbers.
    with Server(EBBTIDE, "-m", 1024, "-I", "2m") as server:
        segments = server.stat("segments_total", "stats ebbtide")
        assert f"segments         {segments} of 1.0 MiB" in text
        assert "largest value    2 MiB" in text


def test_a_check_takes_no_port_and_ends_as_the_start_would(folder):
    authority = Authority(folder)
    certificate = authority.issue("server")
    with Server(EBBTIDE) as server:
        assert f":{server.port}" in report("-p", server.port, "-l", "127.0.0.1")
    assert "(TLS)" in report(*flags(*certificate))
    certificate[1].write_text("junk")
    for words in (
        flags(*certificate),
        ["-l", "999.1.1.1"],
        ["-m", 1],
        ["--policy", "frob"],
        ["--segment-size", "5000"],
        ["-Q"],
    ):
        done = check(*words)
        started = run(*words, "-p", free_port())
        assert done.returncode == started.returncode != 0, words
        assert done.stderr == started.stderr


def test_a_check_refuses_one_place_for_two_things(folder):
    file, link, port = folder / "file", folder / "link", free_port()
    link.symlink_to(folder)
    (folder / "text").write_text("")
    admin = ["--admin", "127.0.0.1:0"]
    for words, part in (
        (["--flash", f"{file}:64m", "-e", file], "--flash and -e: one path for two files"),
        (["--flash", f"{file}:64m", "-e", link / "file"], "--flash and -e: one path for two files"),
        (["--flash", f"{file}:64m", "--history-file", file, *admin], "--flash and --history-file: one path for two"),
        (["-e", file, "--history-file", file, *admin], "-e and --history-file: one path for two files"),
        (["-l", "127.0.0.1", "--admin", f"127.0.0.1:{port}"], f"the server itself listens on 127.0.0.1:{port}"),
        (["-s", folder / "absent/s"], "failed to listen on UNIX socket"),
        (["-s", folder / "text/s"], "failed to listen on UNIX socket"),
        (["-s", folder / "text"], "is no socket"),
    ):
        done, started = check("-p", port, *words), run("-p", port, *words)
        assert done.returncode == started.returncode != 0, words
        assert done.stderr == started.stderr and part in done.stderr, words
    assert sorted(path.name for path in folder.iterdir()) == ["link", "text"]


def test_a_check_looks_at_the_folder_of_the_pid_file(folder):
    assert "pid file" not in report("-P", folder / "pid")
    absent = report("-P", folder / "absent/pid")
    assert f"{folder}/absent does not exist: make it" in absent
    assert "it is a directory" in report("-P", folder)
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    if os.getuid() != 0:
        assert "let this user write there" in report("-P", closed / "pid")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_the_folder_of_the_pid_file_is_judged_as_the_user_that_writes_it(folder):
    closed = folder / "of-root"
    closed.mkdir(mode=0o755)
    done = run("--check", "-P", closed / "pid", user=["-u", "nobody"])
    assert "let this user write there" in done.stdout, done


def test_a_check_says_that_the_history_file_is_in_use(folder):
    history, admin = folder / "history", ["--admin", "127.0.0.1:0"]
    words = ["-p", free_port(), "--history-file", history, *admin]
    line = lambda: next(line for line in report(*words).splitlines() if line.startswith("history-file "))
    assert str(history) in line() and "in use" not in line()
    with Server(EBBTIDE, "--history-file", history, *admin):
        assert "; in use: a start is refused until the server that writes it has stopped" in line()
    assert "in use" not in line()
    assert report("-p", free_port()).splitlines().count("history-file       none") == 1


def test_a_history_that_nobody_can_see_is_warned_of(folder):
    warning = "the dashboard that shows the history is off; give --admin"
    assert warning in report("-p", free_port(), "--history-file", folder / "history")
    assert warning not in report("-p", free_port(), "--history-file", folder / "history", "--admin", "127.0.0.1:0")
    with Server(EBBTIDE, "--history-file", folder / "history") as server:
        assert warning in server.messages()


def test_the_table_of_settings_has_the_admin_address_that_follows_from_the_port():
    assert "--admin 127.0.0.1:11212 (default)" in report("-p", 11211)
    assert "--admin off (default)" in report("-p", free_port())


@pytest.mark.parametrize(
    "words, flag",
    [
        (["--memory", "64"], "-m, --memory-limit <num>"),
        (["--max-memory=64mb"], "-m, --memory-limit <num>"),
        (["--maxmemory", "64mb"], "-m, --memory-limit <num>"),
        (["--cacheSizeMB", "64"], "-m, --memory-limit <num>"),
        (["--maxmemory-policy", "allkeys-lru"], "--policy <name>"),
        (["--bind", "127.0.0.1"], "-l, --listen <addr>"),
        (["--requirepass", "x"], "-Y, --auth-file <file>"),
        (["--maxclients", "9"], "-c, --conn-limit <num>"),
        (["--nvmCachePath", "/x"], "--flash <path:size>"),
        (["--porrt", "9"], "-p, --port <num>"),
    ],
)
def test_words_of_other_caches_are_answered_with_the_flag(folder, words, flag):
    message = check(*words).stderr
    assert f"did you mean {flag}?" in message, message
    if "=" not in words[0] and words[0] != "--porrt":
        file = folder / "settings.toml"
        file.write_text(f'{words[0].removeprefix("--")} = "{words[1]}"\n')
        assert f"did you mean {flag.split('--')[1].split()[0]}?" in check("--config", file).stderr


def test_a_check_warns_of_more_memory_than_there_is():
    assert "lower -m" in report("-m", "900000")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_a_check_reads_files_as_the_user_that_will(folder):
    # The start reads them as root, before it becomes the other user.
    certificate, key = Authority(folder).issue("server")
    key.chmod(0o600)
    done = run("--check", *flags(certificate, key), user=["-u", "nobody"])
    assert done.returncode == 0, done.stderr
    # Started by the other user it would not be read.
    become_nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    binary = shutil.copy(EBBTIDE, folder / "ebbtide")
    pathlib.Path(binary).chmod(0o755)
    words = [binary, "--check", "-u", "nobody", *map(str, flags(certificate, key))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, **become_nobody)
    assert done.returncode == 64 and str(key) in done.stderr and "ermission denied" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
def test_a_user_is_only_noted_without_root(folder):
    binary = shutil.copy(EBBTIDE, folder / "ebbtide")
    pathlib.Path(binary).chmod(0o755)
    port = free_port()
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary, "-u", "memcache", "-p", str(port)]
    with subprocess.Popen([*words, "-l", "127.0.0.1"], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "-u memcache is ignored" in process.stderr.readline()
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
def test_a_check_tells_the_warnings_of_a_start(folder):
    binary = shutil.copy(EBBTIDE, folder / "ebbtide")
    pathlib.Path(binary).chmod(0o755)
    port, udp, admin = free_port(), free_port(), free_port()
    flags = ["-u", "memcache", "-k", "-f", "1.5", "-l", "0.0.0.0", "-p", str(port), "-U", str(udp)]
    flags += ["--admin", f"0.0.0.0:{admin}", "-v"]
    other = ["prlimit", "--memlock=0", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary]
    done = subprocess.run([*other, "--check", *flags], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    checked = {line.split(None, 1)[1] for line in done.stdout.splitlines() if line.startswith("warning ")}
    assert "set                --user memcache (command line; ignored)" in done.stdout.splitlines()
    with subprocess.Popen([*other, *flags], stderr=subprocess.PIPE, text=True) as process:
        try:
            told = []
            for line in process.stderr:
                told.append(line.strip())
                if "--user" in line:
                    break
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)
    assert told[-1] == "--user memcache (command line; ignored)"
    warned = {line.split("warning: ", 1)[1] for line in told if "warning: " in line}
    for part in ("-f is ignored", "-u memcache is ignored", "-k invalid", "UDP on", "admin HTTP on", "no password"):
        assert any(part in warning for warning in warned), (part, warned)
    assert checked == warned

"""The command line: what starts, what is refused with which exit code, and how the server stops."""

import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import time

import pytest

from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, USER, Connection, Server, free_port, wait_for
from tls import Authority

HAS_IPV6 = pathlib.Path("/proc/net/if_inet6").exists() and "lo" in pathlib.Path("/proc/net/if_inet6").read_text()


def run(*flags, user=USER):
    """Runs a server that is expected to end by itself."""
    return subprocess.run(
        [EBBTIDE, *user, *map(str, flags)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL
    )


# Flags, exit code (memcached's for the same mistake), and what stderr must name.
REFUSED = [
    (["-Q"], 1, ["-Q"]),
    (["--frob"], 1, ["--frob"]),
    (["stray"], 1, ["stray"]),
    (["-p"], 1, ["-p"]),
    (["-p", "70000"], 64, ["-p 70000", "65535"]),
    (["-p", "12x"], 64, ["-p 12x"]),
    (["-m", "0"], 64, ["-m 0", "1/2 of memory max"]),
    (["-m", "1"], 64, ["-m 1", "1/2 of memory max"]),
    (["-m", "many"], 64, ["-m many"]),
    (["-I", "10"], 64, ["-I 10", "less than 1024 bytes"]),
    (["-I", "40m"], 64, ["-I", "1/2 of memory max"]),
    (["-I", "2g", "-m", "8000"], 64, ["-I", "gigabyte"]),
    (["-c", "0"], 1, ["-c 0", "greater than 0"]),
    (["-t", "0"], 1, ["-t 0", "greater than 0"]),
    (["-R", "0"], 1, ["-R 0", "greater than 0"]),
    (["-a", "999"], 64, ["-a 999", "octal"]),
    (["-B", "frob"], 64, ["-B frob"]),
    (["-o", "frob"], 1, ['Illegal suboption "frob"']),
    (["-o", "idle_timeout"], 1, ["idle_timeout"]),
    (["-l", "999.1.1.1"], 71, ["-l 999.1.1.1", "failed to listen"]),
    (["-l", "192.0.2.1"], 71, ["-l 192.0.2.1", "failed to listen"]),
    (["-s", "/nonexistent/socket"], 71, ["-s /nonexistent/socket", "failed to listen"]),
    (["-o", "proxy_config=/etc/hostname"], 64, ["proxy_config", "no proxy"]),
    (["-l", "mtls:127.0.0.1:7"], 71, ["-l mtls:127.0.0.1:7"]),
    (["-l", "btls:127.0.0.1:7"], 71, ["-l btls:127.0.0.1:7"]),
    (["-l", "proto[ascii]:127.0.0.1:7"], 71, ["-l proto[ascii]:127.0.0.1:7"]),
    (["-l", "tag[name]:127.0.0.1:7"], 71, ["-l tag[name]:127.0.0.1:7"]),
    (["-Y", "/nonexistent"], 1, ["-Y", "/nonexistent", "Could not open authfile"]),
    (["-Y", "/etc/hostname"], 1, ["-Y", "/etc/hostname", "malformed entry", "user:password"]),
    (["-Y", "/etc/hostname", "-B", "binary"], 64, ["-Y", "BINARY"]),
    (["-S"], 1, ["-S", "MEMCACHED_SASL_PWDB"]),
    (["-S", "-B", "ascii"], 64, ["-S", "ASCII"]),
    (["--busy-poll", "sometimes"], 64, ["--busy-poll sometimes", "auto, always or never"]),
    (["--policy", "frob"], 64, ["--policy frob", "merge"]),
]


@pytest.mark.parametrize("flags, code, named", REFUSED, ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "")
def test_mistakes_are_refused(flags, code, named):
    # Behind the mistake stands a free port, so that a server that does start disturbs nobody.
    result = run("-p", free_port(), *flags)
    assert result.returncode == code, result.stderr
    for name in named:
        assert name in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) <= 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_an_unknown_user_is_refused():
    result = run("-p", free_port(), user=["-u", "nosuchuser"])
    assert result.returncode == 67
    assert "can't find the user nosuchuser" in result.stderr


def taken_port(hosts):
    """A port, and the sockets that have it on these hosts."""
    for _ in range(20):
        taken, port = [], 0
        try:
            for host in hosts:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                taken.append(socket.create_server((host, port), family=family))
                port = taken[0].getsockname()[1]
            return port, taken
        except OSError:
            for other in taken:
                other.close()
    raise RuntimeError("no port is free on all hosts")


def test_a_port_in_use_is_refused():
    port, taken = taken_port(["127.0.0.1", "::1"] if HAS_IPV6 else ["127.0.0.1"])
    try:
        for flags in (["-p", port], ["-l", f"127.0.0.1:{port}"], ["-d", "-p", port], ["-l", f"localhost:{port}"]):
            result = run(*flags)
            assert result.returncode == 71, (flags, result.stderr)
            assert str(port) in result.stderr and "in use" in result.stderr
    finally:
        for other in taken:
            other.close()


@pytest.mark.skipif(not HAS_IPV6, reason="one address family alone")
@pytest.mark.parametrize("busy, left", [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_one_address_family_of_two_is_served_with_a_warning(busy, left):
    port, taken = taken_port([busy])
    command = [EBBTIDE, *USER, "-p", str(port)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            warning = next(line for line in process.stderr if "in use" in line)
            assert "warning" in warning and str(port) in warning and "is served" in warning
            line = next(line for line in process.stderr if "memory" in line and " on " in line)
            addresses = line.split(" on ", 1)[1].split(";")[0]
            assert addresses == (f"[::]:{port}" if ":" in left else f"0.0.0.0:{port}")
            family = socket.AF_INET6 if ":" in left else socket.AF_INET

            def answer():
                with socket.socket(family) as client:
                    client.settimeout(PATIENCE_SECONDS)
                    try:
                        client.connect((left, port))
                    except OSError:
                        return b""
                    client.sendall(b"version\r\n")
                    return client.recv(100)

            assert wait_for(answer, "it listens").startswith(b"VERSION 1.6.")
        finally:
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0
            taken[0].close()
    # What was asked for by its address is needed.
    port, taken = taken_port([busy])
    with taken[0]:
        host = f"[{left}]" if ":" in left else left
        result = run("-l", f"{host}:{port}", "-l", f"[{busy}]:{port}" if ":" in busy else f"{busy}:{port}")
        assert result.returncode == 71 and "in use" in result.stderr


def listening_lines(binary, *flags):
    with Server(binary, "-vv", *flags) as server:
        files = {int(name) for name in os.listdir(f"/proc/{server.process.pid}/fd")}
    lines = [line for line in server.messages().splitlines() if "server listening" in line]
    assert all(line[0] == "<" and int(line[1:].split()[0]) in files for line in lines), lines
    return {line.split(" ", 1)[1] for line in lines}


@pytest.mark.parametrize("flags", [[], ["-B", "ascii"], ["-B", "binary"], ["-l", "127.0.0.1,127.0.0.2"]], ids=" ".join)
def test_very_verbose_names_the_listening_sockets_as_memcached_does(flags):
    assert listening_lines(EBBTIDE, *flags) == listening_lines(MEMCACHED, *flags) != set()
    port = free_port()
    udp = ["-U", port, *flags]
    # memcached serves TCP before it has opened, and told of, its last UDP socket.
    wait_for(lambda: listening_lines(EBBTIDE, *udp) == listening_lines(MEMCACHED, *udp), "the lines of both agree")
    assert "server listening (udp)" in listening_lines(EBBTIDE, *udp)


def test_help_and_version():
    for flag in ("-h", "--help"):
        result = run(flag)
        assert result.returncode == 0
        first = result.stdout.splitlines()[0]
        assert first == run("-V").stdout.splitlines()[0]
        with Server(EBBTIDE) as server:
            assert first == "memcached " + server.stat("version")
        assert "--memory-limit" in result.stdout and "-o" in result.stdout
    result = run("-V")
    assert result.returncode == 0
    assert result.stdout.startswith("memcached 1.6.")
    assert "ebbtide 0." in result.stdout


def test_the_help_is_short_or_long_and_there_for_commands():
    short, long = run("-h", user=[]).stdout, run("--help", user=[]).stdout
    assert len(short) < len(long) and "Network:" in short and "Flash:" in long and "idle_timeout" in long
    assert all(len(line) <= 80 for line in short.splitlines())
    assert run("help", user=[]).stdout == long
    of_replay = run("help", "replay", user=[]).stdout
    assert of_replay == run("replay", "--help", user=[]).stdout and "--memory" in of_replay
    assert run("version", user=[]).stdout == run("-V").stdout
    for shell in ("bash", "zsh", "fish"):
        text = run("completions", shell, user=[]).stdout
        assert "memory-limit" in text and "capture" in text, shell


@pytest.mark.parametrize("words, meant", [
    (["relpay"], "replay"),
    (["help", "captrue"], "capture"),
    (["--memroy-limit=64"], "--memory-limit"),
    (["replay", "x", "--memroy", "64m"], "--memory"),
])
def test_a_slip_of_the_pen_gets_the_word_that_was_meant(words, meant):
    result = run(*words, user=[])
    assert result.returncode in (1, 2) and meant in result.stderr, result.stderr


def test_a_start_says_what_it_is_in_one_line(tmp_path):
    admin = free_port()
    flags = ["-m", "100", "--policy", "lru", "--admin", f"127.0.0.1:{admin}", "-e", tmp_path / "memory"]
    with Server(EBBTIDE, *flags) as server:
        wait_for(lambda: "dashboard" in server.messages(), "it says what it is")
        lines = [line for line in server.messages().splitlines() if "dashboard" in line]
        port = server.port
    # The mode follows the file system of temporary files.
    lines = [re.sub(r"\(cold\), (mapped, with \w+ pages|saved at a stop);", "(cold), MODE;", line) for line in lines]
    assert lines == [
        f"ebbtide 0.1.0 (memcached {run('-V').stdout.split()[1]}) on 127.0.0.1:{port}; memory 100 MiB, lru; "
        f"memory file {tmp_path}/memory (cold), MODE; dashboard http://127.0.0.1:{admin}/"
    ]
    assert "no password" not in server.messages()


def test_an_open_server_is_warned_of(tmp_path):
    users = tmp_path / "users"
    users.write_text("user:secret\n")
    for flags, is_open in (([], True), (["-Y", users], False)):
        with Server(EBBTIDE, "-l", "*", *flags) as server:
            wait_for(lambda: "dashboard" in server.messages(), "it says what it is")
            assert ("no password is asked" in server.messages()) == is_open


def test_each_setting_is_told_with_its_origin(tmp_path):
    file = tmp_path / "ebbtide.conf"
    file.write_text("# memory\n-m 100\n")
    with Server(EBBTIDE, "--flags-file", file, "-c", 77, "-v") as server:
        wait_for(lambda: "--threads" in server.messages(), "the settings are told")
        told = server.messages()
    checked = run("--check", "--flags-file", file, "-c", 77).stdout
    for row in (f"--memory-limit 100 ({file}:2)", "--conn-limit 77 (command line)", "--listen-backlog 1024 (default)"):
        assert f"  {row}\n" in told and any(line.split(None, 1) == ["set", row] for line in checked.splitlines()), row


def test_flags_as_charts_pass_them():
    with Server(EBBTIDE, "-m 100", "-I 2m", "-t 2", "-c 500", "-o", "modern,idle_timeout=0", "-vU0") as server:
        assert server.stat("limit_maxbytes") == str(100 << 20)
        assert server.stat("item_size_max", "stats settings") == str(2 << 20)
        assert server.stat("maxconns", "stats settings") == "500"
        assert server.stat("num_threads", "stats settings") == "2"


def test_each_flag_without_a_meaning_gives_one_warning():
    with Server(EBBTIDE, "-f", "1.5", "-o", "hashpower=20,modern", "-N", "4") as server:
        pass
    lines = [line for line in server.messages().splitlines() if "warning" in line]
    assert len(lines) == 3
    for line, name in zip(lines, ("-f", "-o hashpower", "-N")):
        assert name in line


def test_tokens_without_cas():
    with Server(EBBTIDE, "-C") as server, server.connect() as connection:
        assert connection.ask(b"stats settings\r\n", b"END\r\n").count(b"STAT cas_enabled yes\r\n") == 1
        assert connection.ask(b"set k 0 0 1\r\nv\r\n") == b"STORED\r\n"
        token = connection.ask(b"gets k\r\n", b"END\r\n").split(b"\r\n")[0].split()[4]
        assert int(token) > 0
        assert connection.ask(b"mg k c\r\n") == b"HD c%s\r\n" % token
        assert connection.ask(b"cas k 0 0 1 %d\r\nw\r\n" % (int(token) - 1)) == b"EXISTS\r\n"
        assert connection.ask(b"cas k 0 0 1 %s\r\nw\r\n" % token) == b"STORED\r\n"
        assert connection.ask(b"ms k 1 c E5\r\nz\r\n") == b"HD c5\r\n"
        assert connection.ask(b"ms k 1 C6\r\ny\r\n") == b"EX\r\n"
        assert connection.ask(b"ms k 1 C5\r\ny\r\n") == b"HD\r\n"


def test_several_addresses():
    port, other = free_port(), free_port()
    hosts = [f"127.0.0.1:{port},127.0.0.2:{port}", f"127.0.0.3:{other}"] + ([f"[::1]:{port}"] if HAS_IPV6 else [])
    flags = [word for host in hosts for word in ("-l", host)]
    with subprocess.Popen([EBBTIDE, *USER, *flags], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for where in [("127.0.0.1", port), ("127.0.0.2", port), ("127.0.0.3", other)]:
                wait_for(lambda: reachable(where), "it listens")
            assert not reachable(("127.0.0.2", other))
            if HAS_IPV6:
                socket.create_connection(("::1", port), 5).close()
        finally:
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0


def reachable(where):
    try:
        with Connection(where) as connection:
            return connection.ask(b"version\r\n").startswith(b"VERSION 1.6.")
    except OSError:
        return False


def test_a_unix_socket_has_its_mode_and_goes_away(tmp_path):
    path = tmp_path / "socket"
    with Server(EBBTIDE, "-s", path, "-a", "0766") as server:
        assert path.stat().st_mode & 0o777 == 0o766
        with server.connect() as connection:
            assert connection.ask(b"set k 0 0 1\r\nv\r\n") == b"STORED\r\n"
    assert not path.exists()
    with Server(EBBTIDE, "-s", path):
        assert path.stat().st_mode & 0o777 == 0o700


def answers(server):
    """Whether it is this server that listens."""
    try:
        return server.stat("pid") == str(server.process.pid)
    except OSError:
        return False


def test_a_socket_file_is_replaced_and_left_to_whom_it_belongs(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Server(EBBTIDE, "-s", path) as first, first.connect() as connection:
        with Server(EBBTIDE, "-s", path) as second:
            # Until it listens on the file that it has put there, connections are refused.
            wait_for(lambda: answers(second), "the second one has the socket")
            # As with memcached the one that came first goes on with the connections it has.
            assert connection.ask(b"get k\r\n") == b"END\r\n"
            first.process.terminate()
            assert first.process.wait(PATIENCE_SECONDS) == 0
            assert second.stat("pid") == str(second.process.pid)
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    result = run("-s", path)
    assert result.returncode == 71 and "is no socket" in result.stderr
    assert path.read_text() == "precious"


def test_more_connections_than_allowed_are_turned_away():
    with Server(EBBTIDE, "-c", "40") as server:
        held = []
        try:
            while len(held) < 40:
                connection = server.connect()
                # The look whether the server listens may still count as a connection.
                if connection.ask(b"get k\r\n") == b"END\r\n":
                    held.append(connection)
                else:
                    connection.close()
            for _ in range(6):
                with server.connect() as extra:
                    answer = extra.read_until(b"never")
                    assert extra.closed
                    assert answer == b"ERROR Too many open connections\r\n"
            held.pop().close()
            wait_for(lambda: reachable(("127.0.0.1", server.port)), "it listens again")
            wait_for(lambda: turned_away(server) >= 6, "six are turned away")
        finally:
            for connection in held:
                connection.close()


def turned_away(server):
    try:
        return int(server.stat("rejected_connections"))
    except KeyError:
        # Turned away itself: the connection before is not quite gone.
        return 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(number):
    with Server(EBBTIDE) as server, server.connect() as connection:
        assert connection.ask(b"set k 0 0 1\r\nv\r\n") == b"STORED\r\n"
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE_SECONDS) == 0
        connection.read_until(b"never")
        assert connection.closed


def test_hangups_and_broken_pipes_do_not_stop_it():
    with Server(EBBTIDE) as server:
        server.process.send_signal(signal.SIGHUP)
        server.process.send_signal(signal.SIGPIPE)
        for _ in range(20):
            connection = server.connect()
            connection.send(b"stats\r\n" * 1000)
            connection.close()
        assert reachable(("127.0.0.1", server.port))


def test_shutdown_is_allowed_by_a_flag():
    with Server(EBBTIDE, "-A") as server:
        with server.connect() as connection:
            connection.send(b"shutdown\r\n")
        assert server.process.wait(PATIENCE_SECONDS) == 0


def test_flush_all_can_be_refused():
    for binary in (MEMCACHED, EBBTIDE):
        with Server(binary, "-F", "-X") as server, server.connect() as connection:
            assert connection.ask(b"set k 0 0 1\r\nv\r\n") == b"STORED\r\n"
            for command in (b"flush_all\r\n", b"flush_all 10\r\n"):
                assert connection.ask(command) == b"CLIENT_ERROR flush_all not allowed\r\n"
            assert connection.ask(b"flush_all noreply\r\nget k\r\n", b"END\r\n") == b"VALUE k 0 1\r\nv\r\nEND\r\n"
            settings = connection.ask(b"stats settings\r\n", b"END\r\n")
            assert b"STAT flush_enabled no\r\n" in settings and b"STAT dump_enabled no\r\n" in settings


def test_idle_connections_are_closed():
    with Server(EBBTIDE, "-o", "idle_timeout=1") as server, server.connect() as connection:
        start = time.monotonic()
        assert connection.ask(b"get k\r\n") == b"END\r\n"
        connection.read_until(b"never")
        assert connection.closed
        assert time.monotonic() - start > 0.5


def test_pid_file(tmp_path):
    path = tmp_path / "pid"
    with Server(EBBTIDE, "-P", path) as server:
        wait_for(path.exists, "its file")
        assert int(path.read_text()) == server.process.pid
    assert not path.exists()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, b"shutdown\r\n"])
@pytest.mark.parametrize("closes", ["before the start", "while it serves"])
def test_a_server_whose_log_nobody_reads_serves_and_stops(tmp_path, stop, closes):
    port, pid_file = free_port(), tmp_path / "pid"
    line = [EBBTIDE, *USER, "-p", str(port), "-l", "127.0.0.1", "-vv", "-A", "-P", str(pid_file), "-e", str(tmp_path / "memory")]
    reader, writer = os.pipe()
    if closes == "before the start":
        os.close(reader)
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=writer) as process:
        os.close(writer)
        try:
            wait_for(lambda: reachable(("127.0.0.1", port)), "it listens")
            if closes != "before the start":
                os.close(reader)
            process.send_signal(signal.SIGHUP)
            with Connection(("127.0.0.1", port)) as connection:
                assert connection.ask(b"set key 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
                if isinstance(stop, bytes):
                    connection.send(stop)
                else:
                    process.send_signal(stop)
                assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
    assert not pid_file.exists()
    with Server(EBBTIDE, "-e", tmp_path / "memory") as server, server.connect() as connection:
        assert "memory is warm: 1 objects" in server.messages()
        assert connection.ask(b"get key\r\n", b"END\r\n") == b"VALUE key 0 5\r\nvalue\r\nEND\r\n"


def test_a_daemon_reads_relative_files_again(tmp_path):
    port = free_port()
    users, flags, config = (tmp_path / name for name in ("users", "ebbtide.conf", "ebbtide.toml"))
    users.write_text("user:old\n")
    flags.write_text("-Y users\n-P pid\n")
    config.write_text('[[pool]]\nname = "first"\nprefix = "a:"\n')
    chain, key = Authority(tmp_path).issue("server")
    tls = ["-Z", "-o", f"ssl_chain_cert={chain.name},ssl_key={key.name}", "-l", f"notls:127.0.0.1:{port}"]
    files = ["--flags-file", "ebbtide.conf", "--config", "ebbtide.toml", "-e", "memory"]
    with open(tmp_path / "log", "wb") as log:
        line = [EBBTIDE, *USER, "-d", "-v", *files, *tls]
        started = subprocess.run(line, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=log, timeout=PATIENCE_SECONDS)
    told = (tmp_path / "log").read_text
    assert started.returncode == 0, told()
    pid = int((tmp_path / "pid").read_text())

    def pools(password):
        words = f"user {password}".encode()
        with Connection(("127.0.0.1", port)) as connection:
            if connection.ask(b"set login 0 0 %d\r\n%s\r\n" % (len(words), words)) != b"STORED\r\n":
                return b""
            return connection.ask(b"stats pools\r\n", b"END\r\n")

    try:
        assert b"first" in pools("old")
        users.write_text("user:new\n")
        config.write_text(config.read_text() + '[[pool]]\nname = "second"\nprefix = "b:"\n')
        os.kill(pid, signal.SIGHUP)
        wait_for(lambda: b"second" in pools("new") or "refused" in told(), "the files are read again")
        assert "refused" not in told()
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not (tmp_path / "pid").exists(), "it stops")
    assert (tmp_path / "memory").stat().st_size > 0


def test_daemon(tmp_path):
    path, port = tmp_path / "pid", free_port()
    result = run("-d", "-P", path, "-p", port, "-l", "127.0.0.1")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    # The starter leaves when the port is open, so nothing has to be waited for.
    assert reachable(("127.0.0.1", port))
    pid = int(path.read_text())
    try:
        assert os.getsid(pid) == pid
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)} == {"/dev/null"}
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not path.exists(), "its file goes")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_root_is_given_up():
    port = free_port()
    command = [EBBTIDE, "-u", "nobody", "-p", str(port), "-l", "127.0.0.1"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: reachable(("127.0.0.1", port)), "it listens")
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in status)
            assert fields["Uid"].split() == ["65534"] * 4
            assert fields["Gid"].split() == ["65534"] * 4
            assert fields["Groups"].split() == []
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def privileged_port():
    """A port below 1024 that nobody has."""
    for port in range(1023, 600, -1):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError("no port is free")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_what_only_root_may_open_is_opened_before_root_is_given_up(tmp_path):
    tmp_path.chmod(0o700)
    users, unix, port = tmp_path / "users", tmp_path / "socket", privileged_port()
    users.write_text("user:secret\n")
    users.chmod(0o600)
    login = b"set auth 0 0 11\r\nuser secret\r\n"
    command = [EBBTIDE, "-u", "nobody", "-Y", str(users), "-p", str(port), "-l", "127.0.0.1"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:

            def stored():
                try:
                    with Connection(("127.0.0.1", port)) as connection:
                        return connection.ask(login) == b"STORED\r\n"
                except OSError:
                    assert process.poll() is None, process.stderr.read()

            wait_for(stored, "the password is known")
            assert "65534" in pathlib.Path(f"/proc/{process.pid}/status").read_text().split("Uid:")[1].splitlines()[0]
            # What cannot be read any more is told, and stays.
            process.send_signal(signal.SIGHUP)
            line = next(line for line in process.stderr if "SIGHUP" in line)
            assert str(users) in line and "Permission denied" in line
            assert stored()
        finally:
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0
    command = [EBBTIDE, "-u", "nobody", "-s", str(unix), "-a", "0700"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: unix.exists() and reachable(str(unix)), "it listens")
            status = unix.stat()
            assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (65534, 65534, 0o700)
        finally:
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_a_check_as_root_reads_what_the_start_reads(tmp_path):
    tmp_path.chmod(0o700)
    users = tmp_path / "users"
    users.write_text("user:secret\n")
    result = run("--check", "-Y", users, "-p", free_port(), user=["-u", "nobody"])
    assert (result.returncode, result.stderr) == (0, "")


def test_ten_thousand_idle_connections_cost_little_memory():
    megabytes, wanted = 64, 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted + 200:
        wanted = hard - 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 100), hard))
    connections = []
    try:
        with Server(EBBTIDE, "-m", megabytes, "-c", wanted + 10) as server:
            with server.connect() as connection:
                value = b"v" * 1000
                for batch in range(110):
                    keys = range(batch * 1000, batch * 1000 + 1000)
                    connection.send(b"".join(b"set key%d 0 0 1000 noreply\r\n%s\r\n" % (key, value) for key in keys))
                assert connection.ask(b"get key109999\r\n", b"END\r\n").startswith(b"VALUE")
            for at in range(wanted):
                connection = server.connect()
                connections.append(connection.socket)
                # Each has spoken once, so that whatever it needs has been taken.
                connection.send(b"get absent\r\n")
                assert connection.read_until(b"END\r\n") == b"END\r\n", at
            assert int(server.stat("curr_connections")) >= wanted
            assert server.rss_bytes() <= 1.05 * megabytes * 2**20 + 32 * 2**20
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

"""Authentication beside Debian's memcached, with clients that know the password, guess it, or have something else in mind."""

import os
import random
import select
import signal
import socket
import subprocess
import time

import bmemcached
import pytest
from bmemcached.exceptions import MemcachedException

import packets
from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, Server
from packets import AUTH_ERROR, GET, NOOP, OK, SASL_AUTH, SASL_LIST, SASL_STEP, VERSION, put, request

SEED = int(os.environ.get("EBBTIDE_SEED", random.SystemRandom().getrandbits(32)))
USERS = b"user:pass\nother:word:with:colons\n"
# memcached's database of users is that of the SASL library, which names users with their host.
HOST = socket.gethostname()


@pytest.fixture
def users(tmp_path):
    tmp_path.chmod(0o755)
    path = tmp_path / "users"
    path.write_bytes(USERS)
    path.chmod(0o644)
    return path


def login(value, key="x", tail=""):
    return f"set {key} 0 0 {len(value)}{tail}\r\n".encode() + value + b"\r\n"


LOGINS = [b"user pass", b"other word:with:colons", b"user bad"]
LOGINS += [b"user", b"", b"userpass", b"USER pass", b"user pas", b"user passs", b"other word", b"x" * 3000]
COMMANDS = [b"get k\r\n", b"gets a b\r\n", b"version\r\n", b"quit\r\n", b"stats\r\n", b"mn\r\n", b"mg k v\r\n", b"frob\r\n"]
COMMANDS += [b"\r\n", b"flush_all\r\n", b"delete k noreply\r\n", b"set x\r\n"]
COMMANDS += [b"SET x 0 0 9\r\n", b"shutdown\r\n", b"watch\r\n", b"lru_crawler metadump all\r\n", b"\x80\n", b"get " + b"k " * 900 + b"\n"]


def test_every_line_before_authentication_is_answered_as_memcached_does(users):
    chance = random.Random(SEED)
    print(f"EBBTIDE_SEED={SEED}")
    with Server(EBBTIDE, "-Y", users) as ebbtide, Server(MEMCACHED, "-Y", users) as memcached:
        for _ in range(150):
            with ebbtide.connect() as ours, memcached.connect() as theirs:
                said = []
                while True:
                    # One line at a time: of a pipeline memcached answers only the last.
                    line = chance.choice(COMMANDS)
                    if chance.random() < 0.5:
                        line = login(chance.choice(LOGINS), tail=chance.choice(["", " noreply", " 0 0"]))
                    said.append(line[:60])
                    answers = [connection.ask(line) for connection in (ours, theirs)]
                    assert answers[0] == answers[1], said
                    if answers[0] == b"STORED\r\n":
                        break
                for connection in (ours, theirs):
                    assert connection.ask(b"get x\r\n", b"END\r\n") == b"END\r\n"


FAILURE = b"CLIENT_ERROR authentication failure\r\n"
# In later versions than 1.6.18 the password is all that is behind the first blank: what both answer.
BLANKS = {
    b" user  pass ": (b"STORED\r\n", FAILURE),
    b"user pass more": (b"STORED\r\n", FAILURE),
    b"user pass\0": (b"STORED\r\n", FAILURE),
    b"user ": (b"CLIENT_ERROR bad authentication token format\r\n", FAILURE),
    b" ": (b"CLIENT_ERROR bad authentication token format\r\n", FAILURE),
    b"blank a b": (FAILURE, b"STORED\r\n"),
}


def test_a_password_may_have_blanks(users):
    users.write_bytes(USERS + b"blank:a b\n")
    with Server(EBBTIDE, "-Y", users) as ebbtide, Server(MEMCACHED, "-Y", users) as memcached:
        for value, answers in BLANKS.items():
            with memcached.connect() as theirs, ebbtide.connect() as ours:
                assert (theirs.ask(login(value)), ours.ask(login(value))) == answers, value


def test_a_length_that_is_no_number_closes(users):
    with Server(EBBTIDE, "-Y", users) as server:
        for length in (b"a", b"-1", b"4294967305"):
            with server.connect() as connection:
                connection.send(b"set x 0 0 " + length + b"\r\nuser pass\r\n")
                assert connection.read_until(b"<never>") == b"CLIENT_ERROR unauthenticated\r\n"


def test_users_are_read_again_on_a_signal(users):
    def says(server, value):
        with server.connect() as connection:
            return connection.ask(login(value))

    with Server(EBBTIDE, "-Y", users) as server, server.connect() as known:
        assert known.ask(login(b"user pass")) == b"STORED\r\n"
        for text, let_in in ((b"new:one\n", b"new one"), (b"a:b\nmalformed\n", b"new one"), (b"last:two", b"last two")):
            users.write_bytes(text)
            server.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while says(server, let_in) != b"STORED\r\n" or (b"malformed" in text and "Line 2" not in server.messages()):
                assert time.monotonic() < deadline, server.messages()
                time.sleep(0.02)
        assert says(server, b"user pass") == b"CLIENT_ERROR authentication failure\r\n"
        assert known.ask(b"get k\r\n") == b"END\r\n"
        assert "malformed entry" in server.messages() and "two" not in server.messages()


def test_strangers_hold_no_memory_and_nobody_up(users):
    with Server(EBBTIDE, "-m", "64", "-c", "2000", "-t", "2", "-Y", users) as server, server.connect() as known:
        assert known.ask(login(b"user pass")) == b"STORED\r\n"
        before = server.rss_bytes()
        strangers = [server.connect() for _ in range(500)]
        starts = [b"set x 0 0 8000\r\n" + b"u" * 7000, b"set x 0 0 1073741824\r\n", b"g" * 2000, b"set x 0 0 9\r\nuser"]
        for at, stranger in enumerate(strangers):
            stranger.send(starts[at % len(starts)])
        for at, stranger in enumerate(strangers[1::4]):
            # Who announces a gigabyte is not listened to.
            stranger.read_until(b"<never>")
            assert stranger.closed, at
        assert known.ask(b"set k 0 0 1\r\nv\r\n") == b"STORED\r\n"
        assert server.rss_bytes() - before < 32 << 20
        for stranger in strangers:
            stranger.close()


def test_strangers_who_do_not_read_hold_no_memory(users):
    with Server(EBBTIDE, "-m", "64", "-Y", users) as server:
        before = server.rss_bytes()
        strangers = []
        for _ in range(20):
            stranger = socket.socket()
            strangers.append(stranger)
            # Little space for answers, so that the server has to keep them soon.
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stranger.connect(("127.0.0.1", server.port))
            stranger.setblocking(False)
        # Until the server takes no more: each of these bytes is a line, and refused.
        while open_to_more := select.select([], strangers, [], 1)[1]:
            for stranger in open_to_more:
                stranger.send(b"\n" * (1 << 18))
        # What one read takes, and a few answers.
        assert server.rss_bytes() - before < len(strangers) * (100 << 10)
        for stranger in strangers:
            stranger.close()


@pytest.fixture
def sasl(request, tmp_path, monkeypatch):
    """A server with SASL and the users user:pass and other:word."""
    tmp_path.chmod(0o755)
    if request.param == "ebbtide":
        (tmp_path / "users").write_text(f"user@{HOST}:pass\nother@{HOST}:word:::\n")
        monkeypatch.setenv("MEMCACHED_SASL_PWDB", str(tmp_path / "users"))
        with Server(EBBTIDE, "-S") as server:
            yield server
        return
    database = tmp_path / "database"
    for user, password in (("user", "pass"), ("other", "word")):
        command = ["/usr/sbin/saslpasswd2", "-p", "-c", "-f", database, "-u", HOST, user]
        subprocess.run(command, input=password, text=True, check=True, timeout=PATIENCE_SECONDS)
    database.chmod(0o644)
    configuration = f"mech_list: plain\npwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {database}\n"
    (tmp_path / "memcached.conf").write_text(configuration)
    monkeypatch.setenv("SASL_CONF_PATH", str(tmp_path))
    with Server(MEMCACHED, "-S") as server:
        yield server


both = pytest.mark.parametrize("sasl", ["memcached", "ebbtide"], indirect=True)
REFUSED = (AUTH_ERROR, b"Auth failure.")
WELCOME = (OK, b"Authenticated")


def plain(data, opcode=SASL_AUTH, mechanism=b"PLAIN"):
    return request(opcode, mechanism, value=data)


# What is said on one connection, and the status and text that answer it; None is the end of the connection.
CONVERSATIONS = [
    [(request(NOOP), REFUSED), (request(NOOP), None)],
    [(request(GET, b"k"), REFUSED), (request(NOOP), None)],
    [(put(packets.SET, b"k", b"v"), REFUSED), (request(NOOP), None)],
    [(request(0x77), REFUSED), (request(NOOP), None)],
    [(request(packets.QUIT), REFUSED), (request(NOOP), None)],
    [(request(VERSION), (OK, b"1.6.45")), (request(SASL_LIST), (OK, b"PLAIN")), (request(NOOP), REFUSED)],
    [(plain(b"\0user\0pass"), WELCOME), (request(NOOP), (OK, b"")), (put(packets.SET, b"k", b"v"), (OK, b""))],
    [(plain(b"user\0user\0pass"), WELCOME)],
    [(plain(b"\0other\0word"), WELCOME), (request(SASL_LIST), (OK, b"PLAIN")), (request(NOOP), REFUSED)],
    [(plain(b"\0user\0word"), REFUSED), (plain(b"\0user\0pass"), WELCOME)],
    [(plain(b"\0user\0pass"), WELCOME), (plain(b"\0user\0bad"), REFUSED), (request(NOOP), REFUSED)],
    [(plain(b"other\0user\0pass"), REFUSED)],
    [(plain(b"\0user\0"), REFUSED), (plain(b"\0\0"), REFUSED), (plain(b"\0user"), REFUSED), (plain(b"user"), REFUSED)],
    [(plain(b"\0user\0pass\0"), REFUSED), (plain(b"\0user\0" + b"p" * 3000), REFUSED)],
    [(plain(b""), (0x21, b"")), (plain(b"\0user\0pass", SASL_STEP), WELCOME), (request(NOOP), (OK, b""))],
    [(plain(b""), (0x21, b"")), (plain(b"\0user\0bad", SASL_STEP), REFUSED), (plain(b"\0user\0pass", SASL_STEP), WELCOME)],
    [(plain(b""), (0x21, b"")), (plain(b"", SASL_STEP), REFUSED), (request(NOOP), REFUSED)],
    [(plain(b"\0user\0pass", SASL_STEP), REFUSED)],
    [(plain(b"\0user\0pass", mechanism=b"plain"), WELCOME), (request(NOOP), (OK, b""))],
    [(plain(b"\0user\0pass", mechanism=b"FROB"), REFUSED)],
    [(plain(b"\0user\0pass", mechanism=b"P" * 33), (4, b"Invalid arguments")), (request(VERSION), (OK, b"1.6.45"))],
    [(request(SASL_AUTH, b"PLAIN", b"abcd"), (4, b"Invalid arguments")), (request(NOOP), None)],
]


@both
def test_conversations(sasl):
    for conversation in CONVERSATIONS:
        with sasl.connect() as connection:
            reader = packets.Reader(connection)
            for at, (question, expected) in enumerate(conversation):
                answer = reader.ask(question)
                said = answer and (answer.status, answer.value)
                if said and answer.opcode == VERSION:
                    said = (said[0], b"1.6.45")
                assert said == expected, (conversation[: at + 1], answer)
    with sasl.connect() as connection:
        connection.send(b"version\r\n" + b" " * 24)
        assert connection.read_until(b"<never>") == b""


@both
def test_python_binary_memcached(sasl):
    where = f"127.0.0.1:{sasl.port}"
    client = bmemcached.Client(where, "user", "pass")
    assert client.set("k", "v") and client.get("k") == "v"
    assert client.set_multi({f"k{n}": n for n in range(100)}) == []
    assert client.get_multi([f"k{n}" for n in range(100)]) == {f"k{n}": n for n in range(100)}
    value, token = client.gets("k")
    assert client.cas("k", "w", token) and not client.cas("k", "x", token)
    assert client.incr("n", 5, default=7) == 7 and client.incr("n", 5) == 12 and client.decr("n", 2) == 10
    stats = client.stats()[where]
    assert int(stats["auth_cmds"]) >= 1
    client.disconnect_all()
    with pytest.raises(MemcachedException, match="Auth failure"):
        bmemcached.Client(where, "user", "bad").get("k")


def test_who_has_a_password_is_served_where_nobody_asks_for_one(either):
    client = bmemcached.Client(f"127.0.0.1:{either.port}", "user", "pass")
    assert client.set("k", "v") and client.get("k") == "v"
    client.disconnect_all()

"""TLS: the same handshakes, refusals and settings as Debian's memcached, and what an event loop can get wrong."""

import concurrent.futures
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile

import pytest
from pymemcache.client.base import Client

from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, USER, Connection, Server, free_port, open_to_others, wait_for
from tls import Authority, TlsConnection, flags, openssl

LARGE = bytes(n * 7 % 251 for n in range(1 << 20))


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    open_to_others(folder)
    return Authority(folder)


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.issue("server")


@pytest.fixture(scope="module")
def server(certificate):
    with Server(EBBTIDE, *flags(*certificate), "-I", "4m", "-t", "2") as server:
        yield server


@pytest.fixture
def secure(server, authority):
    return lambda **options: TlsConnection(("127.0.0.1", server.port), authority.context(), **options)


def store(key, value):
    return b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value)


def refused(where, context):
    """Whether a client is turned away; with TLS 1.3 it learns that only from its first answer."""
    try:
        with TlsConnection(where, context) as connection:
            return connection.ask(b"version\r\n") == b""
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(server, authority, version):
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    with TlsConnection(("127.0.0.1", server.port), context) as connection:
        assert connection.socket.version() == version.name.replace("_", ".")
        assert connection.ask(b"set k 0 0 1\r\nv\r\n") == b"STORED\r\n"
        assert connection.ask(b"get k\r\n", b"END\r\n") == b"VALUE k 0 1\r\nv\r\nEND\r\n"


def test_the_openssl_client_is_served(server, authority):
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-CAfile", str(authority.certificate)]
    done = subprocess.run(
        [*command, "-quiet", "-verify_return_error", "-ign_eof"],
        input=b"set k 0 0 1\r\nv\r\nget k\r\nquit\r\n",
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout == b"STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n", done.stderr


def test_pymemcache_is_served(server, authority):
    client = Client(("localhost", server.port), tls_context=authority.context(), timeout=PATIENCE_SECONDS, connect_timeout=PATIENCE_SECONDS)
    assert client.set(b"large", LARGE, noreply=False)
    assert client.get(b"large") == LARGE
    assert client.get_many([b"large", b"absent"]) == {b"large": LARGE}
    client.close()


def test_the_end_is_said(secure):
    with secure(suppress_ragged_eofs=False) as connection:
        connection.send(b"quit\r\n")
        # An end without a goodbye would be an error.
        assert connection.socket.recv(10) == b""


def test_large_values_and_long_pipelines(secure):
    with secure() as connection:
        assert connection.ask(store(b"large", LARGE)) == b"STORED\r\n"
        expected = b"VALUE large 0 %d\r\n%s\r\nEND\r\n" % (len(LARGE), LARGE)
        # More answers than any buffer holds, and nothing read before all is asked.
        connection.send(b"get large\r\n" * 20)
        for _ in range(20):
            assert connection.read_until(b"END\r\n") == expected
        connection.send(b"".join(b"set k%d 0 0 1 noreply\r\nv\r\n" % n for n in range(5000)))
        keys = b" ".join(b"k%d" % n for n in range(5000))
        assert connection.ask(b"get " + keys + b"\r\n", b"END\r\n").count(b"VALUE") == 5000


def test_a_record_that_holds_more_than_is_read_at_once(secure):
    # One record of 16 KiB with many commands: all of them are answered though no further byte ever arrives.
    with secure() as connection:
        commands = b"get absent\r\n" * 1300
        assert len(commands) < 16384
        connection.send(commands)
        for _ in range(1300):
            assert connection.read_until(b"END\r\n") == b"END\r\n"


def test_byte_by_byte(server, authority):
    # The TLS records themselves arrive in single bytes, those of the handshake too.
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with Connection(("127.0.0.1", server.port)) as raw:

        def drip():
            for byte in outgoing.read():
                raw.socket.sendall(bytes([byte]))

        def step(action):
            while True:
                try:
                    return action()
                except ssl.SSLWantReadError:
                    drip()
                    data = raw.socket.recv(1 << 16)
                    assert data, "closed"
                    incoming.write(data)

        step(tls.do_handshake)
        tls.write(store(b"slow", b"x" * 300) + b"get slow\r\n")
        drip()
        answer = b""
        while not answer.endswith(b"END\r\n"):
            answer += step(lambda: tls.read(1 << 16))
        assert answer == b"STORED\r\nVALUE slow 0 300\r\n" + b"x" * 300 + b"\r\nEND\r\n"


def test_plaintext_is_turned_away(server):
    for words in (b"version\r\n", b"get k\r\n" * 1000, b"\x80" * 24, b"GET / HTTP/1.1\r\n\r\n"):
        before = int(server_stat(server, "ssl_handshake_errors"))
        with Connection(("127.0.0.1", server.port)) as connection:
            connection.send(words)
            answer = connection.read_until(b"never")
            assert connection.closed
            assert b"VERSION" not in answer and b"END" not in answer
        wait_for(lambda: int(server_stat(server, "ssl_handshake_errors")) > before, "an error is counted")


def server_stat(server, name, of=b"stats"):
    with TlsConnection(("127.0.0.1", server.port), unverified()) as connection:
        answer = connection.ask(of + b"\r\n", b"END\r\n").decode()
    return next(line.split(" ", 2)[2] for line in answer.splitlines() if line.startswith(f"STAT {name} "))


def unverified():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_stalled_handshakes_hold_nobody_up(server, secure):
    hello, bio = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = unverified().wrap_bio(bio, hello)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    greeting = hello.read()
    # Nothing, half of a greeting, a whole one without what has to follow: each leaves the server waiting.
    stalled = [Connection(("127.0.0.1", server.port)) for _ in range(300)]
    try:
        for at, connection in enumerate(stalled):
            connection.send(greeting[: (0, len(greeting) // 2, len(greeting))[at % 3]])
        with secure() as connection:
            for n in range(100):
                assert connection.ask(store(b"n", b"%d" % n)) == b"STORED\r\n"
        assert int(server_stat(server, "curr_connections")) >= 300
    finally:
        for connection in stalled:
            connection.close()
    wait_for(lambda: int(server_stat(server, "curr_connections")) < 10, "the connections go")


def test_handshakes_count_as_connections_and_time_out(certificate, authority):
    with Server(EBBTIDE, *flags(*certificate), "-c", "5", "-o", "idle_timeout=1") as server:
        where = ("127.0.0.1", server.port)
        wait_for(lambda: not refused(where, authority.context()), "the client is taken")
        stalled = [Connection(where, timeout=PATIENCE_SECONDS) for _ in range(10)]
        answers = [connection.read_until(b"never") for connection in stalled]
        # Those over the limit are told so, the others are closed because nothing comes from them.
        assert all(connection.closed for connection in stalled)
        assert answers.count(b"ERROR Too many open connections\r\n") >= 5
        assert b"" in answers
        wait_for(lambda: not refused(where, authority.context()), "the client is taken")


def test_many_clients_at_once(server, secure):
    def talk(number):
        with secure() as connection:
            key = b"client%d" % number
            value = LARGE[: 1000 * number + 1]
            for _ in range(5):
                assert connection.ask(store(key, value)) == b"STORED\r\n"
                answer = connection.ask(b"get %s\r\n" % key, b"END\r\n")
                assert answer == b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(value), value)
        return True

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert all(pool.map(talk, range(40)))


def test_a_client_that_does_not_read_is_waited_for(server, secure):
    with secure() as slow, secure() as other:
        assert slow.ask(store(b"large", LARGE)) == b"STORED\r\n"
        slow.send(b"get large\r\n" * 50)
        before = server.rss_bytes()
        for _ in range(50):
            assert other.ask(b"get absent\r\n") == b"END\r\n"
        assert server.rss_bytes() - before < 16 << 20
        for _ in range(50):
            answer = slow.read_until(b"END\r\n")
            assert len(answer) == len(LARGE) + len(b"VALUE large 0 1048576\r\n\r\nEND\r\n")


def test_an_idle_connection_takes_little_memory(authority, certificate):
    with Server(EBBTIDE, *flags(*certificate), "-c", "2000") as server:
        connections = []
        context = authority.context()
        for at in range(700):
            if at == 200:
                before = server.rss_bytes()
            connections.append(TlsConnection(("127.0.0.1", server.port), context))
            assert connections[-1].ask(b"get k\r\n") == b"END\r\n"
        assert (server.rss_bytes() - before) / 500 < 12 << 10
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE], ids=["memcached", "ebbtide"])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_certificates_of_clients(binary, mode, authority, certificate):
    known, stranger = authority.issue("client"), Authority(authority.folder, "stranger").issue("unknown")
    more = flags(*certificate, f"ssl_ca_cert={authority.certificate}", f"ssl_verify_mode={mode}")
    with Server(binary, *more) as server:
        where = ("127.0.0.1", server.port)
        wait_for(lambda: not refused(where, authority.context(known)), "the client is taken")
        assert refused(where, authority.context()) == (mode >= 2)
        assert refused(where, authority.context(stranger)) == (mode >= 1)
        with TlsConnection(where, authority.context(known)) as connection:
            settings = connection.ask(b"stats settings\r\n", b"END\r\n").decode()
            assert f"STAT ssl_verify_mode {(0, 1, 3, 7)[mode]}\r\n" in settings
            assert f"STAT ssl_ca_cert {authority.certificate}\r\n" in settings


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE], ids=["memcached", "ebbtide"])
def test_new_certificates_for_new_connections(binary, authority, tmp_path):
    tmp_path.chmod(0o755)
    chain, key = tmp_path / "chain.pem", tmp_path / "chain.key"

    def install(files):
        for source, target in zip(files, (chain, key)):
            shutil.copy(source, target)

    first, second = authority.issue("first"), authority.issue("second")
    install(first)
    with Server(binary, *flags(chain, key)) as server:
        where = ("127.0.0.1", server.port)
        with TlsConnection(where, authority.context()) as old:
            assert old.shown() == "first"
            install(second)
            with TlsConnection(where, authority.context()) as connection:
                assert connection.shown() == "first"
            assert old.ask(b"refresh_certs\r\n") == b"OK\r\n"
            with TlsConnection(where, authority.context()) as connection:
                assert connection.shown() == "second"
            # A bad file is named, and the certificates in use stay.
            chain.write_text("junk")
            answer = old.ask(b"refresh_certs\r\n").decode()
            assert answer.startswith(f"Error loading the certificate chain: {chain} : ")
            install((second[0], first[1]))
            assert old.ask(b"refresh_certs\r\n").decode().startswith("Error ")
            key.unlink()
            answer = old.ask(b"refresh_certs\r\n").decode()
            assert answer.startswith(f"Error loading the key: {key} : ")
            with TlsConnection(where, authority.context()) as connection:
                assert connection.shown() == "second"
            assert old.ask(b"get absent\r\n") == b"END\r\n"


def test_a_hangup_brings_new_certificates(authority, tmp_path):
    tmp_path.chmod(0o755)
    chain, key = tmp_path / "chain.pem", tmp_path / "chain.key"
    for name in ("before", "after"):
        for source, target in zip(authority.issue(name), (tmp_path / f"{name}.pem", tmp_path / f"{name}.key")):
            shutil.copy(source, target)
    shutil.copy(tmp_path / "before.pem", chain)
    shutil.copy(tmp_path / "before.key", key)
    with Server(EBBTIDE, *flags(chain, key)) as server:

        def shown():
            with TlsConnection(("127.0.0.1", server.port), authority.context()) as connection:
                return connection.shown()

        assert shown() == "before"
        shutil.copy(tmp_path / "after.key", key)
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "SIGHUP" in server.messages(), "a line of the signal")
        assert shown() == "before"
        shutil.copy(tmp_path / "after.pem", chain)
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: shown() == "after", "the new certificate")


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE], ids=["memcached", "ebbtide"])
def test_a_plain_listener_beside(binary, authority, certificate):
    plain = free_port()
    with Server(binary, "-l", f"127.0.0.1,notls:127.0.0.1:{plain}", *flags(*certificate)) as server:
        with Connection(("127.0.0.1", plain)) as connection:
            assert connection.ask(store(b"k", b"v")) == b"STORED\r\n"
            assert connection.ask(b"refresh_certs\r\n") == b"OK\r\n"
        with TlsConnection(("127.0.0.1", server.port), authority.context()) as connection:
            assert connection.ask(b"get k\r\n", b"END\r\n") == b"VALUE k 0 1\r\nv\r\nEND\r\n"


def test_without_tls_there_is_nothing_to_refresh(either):
    with either.connect() as connection:
        assert connection.ask(b"refresh_certs\r\n") == b"Error TLS not enabled\r\n"
        assert b"STAT ssl_enabled no\r\n" in connection.ask(b"stats settings\r\n", b"END\r\n")
        assert b"ssl_" not in connection.ask(b"stats\r\n", b"END\r\n")


def test_settings_have_memcacheds_names(authority, certificate):
    more = flags(*certificate, "ssl_min_version=3", "ssl_wbuf_size=2", "ssl_session_cache")
    shown = []
    for binary in (MEMCACHED, EBBTIDE):
        with Server(binary, *more) as server, TlsConnection(("127.0.0.1", server.port), authority.context()) as connection:
            settings = connection.ask(b"stats settings\r\n", b"END\r\n").decode().splitlines()
            shown.append([line for line in settings if line.startswith("STAT ssl_")])
            stats = connection.ask(b"stats\r\n", b"END\r\n").decode()
            assert "STAT ssl_handshake_errors " in stats and "STAT time_since_server_cert_refresh " in stats
    assert shown[0] == shown[1]


def test_sessions_are_resumed_only_when_asked_for(authority, certificate):
    for more, expected in ([], False), (["ssl_session_cache"], True):
        with Server(EBBTIDE, *flags(*certificate, *more)) as server:
            context = authority.context()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            where = ("127.0.0.1", server.port)
            with TlsConnection(where, context) as connection:
                connection.ask(b"get k\r\n")
                session = connection.socket.session
            with TlsConnection(where, context, session=session) as connection:
                assert connection.socket.session_reused == expected


def test_cipher_lists_and_versions_are_kept_to(authority, certificate):
    rsa = authority.issue("rsa", rsa=True)
    with Server(EBBTIDE, *flags(*rsa, "ssl_ciphers=ECDHE-RSA-AES128-GCM-SHA256")) as server:
        where = ("127.0.0.1", server.port)
        context = authority.context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with TlsConnection(where, context) as connection:
            assert connection.socket.cipher()[0] == "ECDHE-RSA-AES128-GCM-SHA256"
        context.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384")
        assert refused(where, context)
    with Server(EBBTIDE, *flags(*certificate, "ssl_min_version=3")) as server:
        context = authority.context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert refused(("127.0.0.1", server.port), context)
        assert not refused(("127.0.0.1", server.port), authority.context())


def test_keys_in_other_places_and_forms(authority, certificate, tmp_path):
    tmp_path.chmod(0o755)
    chain, key = certificate
    both, der = tmp_path / "both.pem", tmp_path / "key.der"
    both.write_bytes(chain.read_bytes() + key.read_bytes())
    subprocess.run(["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", key, "-outform", "DER", "-out", der], check=True)
    for path in (both, der):
        path.chmod(0o644)
    for words in (["-Z", "-o", f"ssl_chain_cert={both}"], flags(chain, der, "ssl_keyformat=DER")):
        with Server(EBBTIDE, *words) as server:
            assert not refused(("127.0.0.1", server.port), authority.context())


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE], ids=["memcached", "ebbtide"])
def test_without_an_authority_clients_without_a_certificate_are_served(binary, authority, certificate):
    with Server(binary, *flags(*certificate, "ssl_verify_mode=1")) as server:
        assert not refused(("127.0.0.1", server.port), authority.context())
        with TlsConnection(("127.0.0.1", server.port), authority.context()) as connection:
            assert b"STAT ssl_verify_mode 1\r\n" in connection.ask(b"stats settings\r\n", b"END\r\n")
    if binary == EBBTIDE:
        warnings = [line for line in server.messages().splitlines() if "warning" in line and "ssl_" in line]
        assert len(warnings) == 1 and "ssl_ca_cert" in warnings[0]
        # A client that would show one is served without.
        with Server(binary, *flags(*certificate, "ssl_verify_mode=1")) as server:
            assert not refused(("127.0.0.1", server.port), authority.context(authority.issue("client")))


def version_1(authority, name, folder):
    """A certificate of X.509 version 1: without extensions, so without names of hosts."""
    key, request, certificate = (folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
    empty = folder / "empty.cnf"
    empty.write_text("")
    openssl(
        *["x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial"],
        *["-days", "2", "-extfile", empty, "-out", certificate],
    )
    text = subprocess.run(["openssl", "x509", "-in", certificate, "-noout", "-text"], capture_output=True, text=True)
    assert "Version: 1 " in text.stdout
    for path in (certificate, key):
        path.chmod(0o644)
    return certificate, key


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE], ids=["memcached", "ebbtide"])
def test_certificates_of_version_1_are_shown(binary, authority, tmp_path):
    tmp_path.chmod(0o755)
    certificate = version_1(authority, "old", tmp_path)
    context = authority.context()
    context.check_hostname = False
    with Server(binary, *flags(*certificate)) as server:
        with TlsConnection(("127.0.0.1", server.port), context) as connection:
            assert connection.ask(b"version\r\n").startswith(b"VERSION")


def test_a_key_that_does_not_fit_a_certificate_of_version_1_is_refused(authority, tmp_path):
    tmp_path.chmod(0o755)
    (certificate, _), (_, other) = version_1(authority, "old", tmp_path), authority.issue("rsa-other", rsa=True)
    for key in (other, authority.issue("ec-other")[1]):
        done = start_refused(certificate, key)
        assert done.returncode == 64 and str(key) in done.stderr and str(certificate) in done.stderr


def start_refused(chain, key, *more):
    return subprocess.run(
        [EBBTIDE, *USER, "-p", str(free_port()), "-l", "127.0.0.1", *map(str, flags(chain, key, *more))],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        stdin=subprocess.DEVNULL,
    )


def relabelled(key, label, target):
    lines = key.read_text().splitlines()
    assert lines[0] == "-----BEGIN PRIVATE KEY-----"
    target.write_text("\n".join([f"-----BEGIN {label}-----", *lines[1:-1], f"-----END {label}-----", ""]))
    target.chmod(0o644)
    return target


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE], ids=["memcached", "ebbtide"])
def test_keys_are_read_by_their_content(binary, authority, tmp_path):
    tmp_path.chmod(0o755)
    rsa, ec = authority.issue("rsa", rsa=True), authority.issue("ec")
    traditional = {}
    for name, (_, key) in (("rsa", rsa), ("ec", ec)):
        traditional[name] = tmp_path / f"{name}.traditional"
        openssl("pkey", "-in", key, "-traditional", "-out", traditional[name])
        traditional[name].chmod(0o644)
    parameters = tmp_path / "parameters.key"
    openssl("ecparam", "-name", "prime256v1", "-out", tmp_path / "parameters")
    parameters.write_bytes((tmp_path / "parameters").read_bytes() + traditional["ec"].read_bytes())
    parameters.chmod(0o644)
    for chain, key in (
        (rsa[0], relabelled(rsa[1], "RSA PRIVATE KEY", tmp_path / "a")),
        (ec[0], relabelled(ec[1], "EC PRIVATE KEY", tmp_path / "b")),
        (rsa[0], traditional["rsa"]),
        (ec[0], traditional["ec"]),
        (ec[0], parameters),
    ):
        with Server(binary, *flags(chain, key)) as server:
            assert not refused(("127.0.0.1", server.port), authority.context()), key


def test_keys_that_the_library_does_not_take_are_named_with_a_remedy(authority, certificate, tmp_path):
    tmp_path.chmod(0o755)
    chain, key = certificate
    for name, words, named in (
        ("p521", ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"], ["P-521", "PKCS#8", "openssl genpkey"]),
        ("p521-ec", ["ecparam", "-genkey", "-noout", "-name", "secp521r1"], ["P-521", "SEC1", "openssl genpkey"]),
        ("ed448", ["genpkey", "-algorithm", "ED448"], ["Ed448", "openssl genpkey"]),
        ("small", ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"], ["RSA", "2048 to 4096 bits"]),
        ("secret", ["pkey", "-in", key, "-aes128", "-passout", "pass:x"], ["encrypted", "openssl pkey -in"]),
        ("der", ["pkey", "-in", key, "-outform", "DER"], ["DER", "ssl_keyformat=DER"]),
    ):
        file = tmp_path / name
        openssl(*words, "-out", file)
        file.chmod(0o644)
        done = start_refused(chain, file)
        assert done.returncode == 64, done.stderr
        for part in [str(file), *named]:
            assert part in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) <= 2


@pytest.fixture
def open_folder():
    """A folder that other users may read: another run of pytest closes the one that its temporary folders share."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        yield folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_keys_of_root_are_read_before_root_is_given_up(authority, open_folder):
    chain, key = open_folder / "chain.pem", open_folder / "chain.key"
    first = authority.issue("first")
    shutil.copy(first[0], chain)
    shutil.copy(first[1], key)
    chain.chmod(0o644)
    key.chmod(0o600)
    check = [EBBTIDE, "-u", "nobody", "--check", "-p", str(free_port()), *flags(chain, key)]
    assert subprocess.run(check, capture_output=True, timeout=PATIENCE_SECONDS).returncode == 0
    with Server(EBBTIDE, "-u", "nobody", *flags(chain, key)) as server:
        where = ("127.0.0.1", server.port)

        def shown():
            with TlsConnection(where, authority.context()) as connection:
                return connection.shown()

        with TlsConnection(where, authority.context()) as connection:
            assert connection.shown() == "first"
            # A new certificate for the same key is taken, and that the key was not read is told.
            request = open_folder / "renewed.csr"
            openssl("req", "-new", "-key", key, "-subj", "/CN=renewed", "-out", request)
            openssl(
                *["x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key],
                *["-CAcreateserial", "-days", "2", "-extfile", authority.folder / "names", "-out", chain],
            )
            answer = connection.ask(b"refresh_certs\r\n").decode()
            assert answer.startswith(f"Error loading the key: {key} : Permission denied") and "stays in use" in answer
            assert shown() == "renewed"
            # Another key cannot be read, so a certificate for it changes nothing.
            second = authority.issue("second")
            shutil.copy(second[0], chain)
            shutil.copyfile(second[1], key)
            answer = connection.ask(b"refresh_certs\r\n").decode()
            assert answer.startswith("Error loading the key") and str(key) in answer
            assert shown() == "renewed"
            key.chmod(0o644)
            assert connection.ask(b"refresh_certs\r\n") == b"OK\r\n"
            assert shown() == "second"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_an_authority_of_root_is_read_before_root_is_given_up(authority, certificate, open_folder):
    # The file and the signers that it has: at first `authority`, then `other`.
    file, other = open_folder / "ca.pem", Authority(authority.folder, "other_authority")
    known, stranger = authority.issue("client"), other.issue("stranger")
    shutil.copy(authority.certificate, file)
    file.chmod(0o600)
    more = flags(*certificate, f"ssl_ca_cert={file}", "ssl_verify_mode=2")
    check = [EBBTIDE, "-u", "nobody", "--check", "-p", str(free_port()), *more]
    assert subprocess.run(check, capture_output=True, timeout=PATIENCE_SECONDS).returncode == 0
    with Server(EBBTIDE, "-u", "nobody", *more) as server:
        where = ("127.0.0.1", server.port)

        def served():
            return [not refused(where, authority.context(client)) for client in (known, stranger, None)]

        assert served() == [True, False, False]
        with TlsConnection(where, authority.context(known)) as connection:
            # It cannot be read any more: that is told, and the signers stay, also when the file changes.
            shutil.copyfile(other.certificate, file)
            answer = connection.ask(b"refresh_certs\r\n").decode()
            assert answer.startswith(f"Error loading the CA certificate: {file} : Permission denied"), answer
            assert "stays in use" in answer and served() == [True, False, False]
            file.chmod(0o644)
            assert connection.ask(b"refresh_certs\r\n") == b"OK\r\n"
            assert served() == [False, True, False]


def test_what_cannot_be_served_is_refused_at_the_start(authority, certificate, tmp_path):
    chain, key = map(str, certificate)
    other = str(authority.issue("other")[1])
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for words, code, named in (
        (["-Z"], 64, ["ssl_chain_cert", "no file is named"]),
        (flags("/nonexistent.pem", key), 64, ["/nonexistent.pem", "No such file"]),
        (flags(junk, key), 64, [str(junk), "no certificate"]),
        (flags(chain, junk), 64, [str(junk), "no private key"]),
        (flags(chain, other), 64, ["key", other]),
        (flags(chain, key, "ssl_verify_mode=2"), 64, ["ssl_ca_cert"]),
        (flags(chain, key, f"ssl_ca_cert={junk}"), 64, ["CA certificate", str(junk)]),
        (flags(chain, key, "ssl_verify_mode=4"), 1, ["ssl_verify_mode", "4"]),
        (flags(chain, key, "ssl_min_version=9"), 1, ["ssl_min_version", "9"]),
        (flags(chain, key, "ssl_keyformat=ENGINE"), 64, ["ssl_keyformat", "ENGINE"]),
        (flags(chain, key, "ssl_ciphers=FOO"), 64, ["FOO", "ECDHE-ECDSA-AES128-GCM-SHA256"]),
        (flags(chain, key, "ssl_wbuf_size=0"), 64, ["ssl_wbuf_size", "0"]),
    ):
        done = subprocess.run(
            [EBBTIDE, *USER, "-p", str(free_port()), "-l", "127.0.0.1", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, (words, done.stderr)
        for name in named:
            assert name in done.stderr, (words, done.stderr)
        assert len(done.stderr.strip().splitlines()) <= 2

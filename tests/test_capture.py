"""`ebbtide capture` and `ebbtide advise --live`: a load of known shape, captured from both servers, keeps its shape."""

import collections
import csv
import gzip
import json
import signal
import subprocess
import time

import pytest

from harness import EBBTIDE, MEMCACHED, Server, free_port, wait_for

HEADER = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n"
KEYS = 400


def run(*arguments):
    return subprocess.run([EBBTIDE, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def load_of_known_shape(gets=6000):
    """Keys, a few of them popular, each with its size: look-aside, so that every miss is followed by a set."""
    state, keys = 7, []
    for _ in range(gets):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        keys.append(int(KEYS * ((state >> 33) / 2**31) ** 2))
    return keys


def size_of(key):
    return 200 + key % 100 * 10


class Capture:
    """A capture in the background; `with` waits until it watches, `finish` until it ends by itself."""

    def __init__(self, server, *arguments, command="capture"):
        target = f"127.0.0.1:{server.port}"
        where = [target] if command == "capture" else ["--live", target]
        words = [EBBTIDE, command, *where, *map(str, arguments)]
        self.server = server
        # The server may not have noticed yet that the watcher before is gone.
        wait_for(lambda: server.stat("log_watchers") == "0", "nobody watches")
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        try:
            wait_for(lambda: self.server.stat("log_watchers") == "1", "it watches")
        except BaseException:
            self.__exit__()
            raise
        return self

    def finish(self):
        out, error = self.process.communicate(timeout=240)
        return self.process.returncode, out, error

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def drive(server, keys, ttl=600):
    """Look-aside: the requests that were made, as (operation, key)."""
    made = []
    with server.connect() as connection:
        for key in keys:
            made.append(("get", key))
            if connection.ask(b"get user:%d\r\n" % key, b"END\r\n") == b"END\r\n":
                data = b"x" * size_of(key)
                answer = connection.ask(b"set user:%d 0 %d %d\r\n%b\r\n" % (key, ttl, len(data), data))
                assert answer == b"STORED\r\n"
                made.append(("set", key))
        # A capture that ends with its last request must not end within a set, which is two lines of memcached.
        assert connection.ask(b"get user:%d\r\n" % keys[-1], b"END\r\n") != b"END\r\n"
        made.append(("get", keys[-1]))
    return made


def requests_of(keys):
    """How many requests `drive` makes of an empty server that is large enough."""
    return len(keys) + len(set(keys)) + 1


def write_trace(path, made):
    rows = (f"0,{key},{len(f'user:{key}')},{size_of(key)},{op},{600}" for op, key in made)
    path.write_text(HEADER + "\n".join(rows) + "\n")


def rows_of(path):
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
    with opened as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def curve(path):
    done = run("mrc", path, "--policy", "lru", "--exact", "--json", "--sizes", "5%,10%,20%,40%,80%")
    assert done.returncode == 0, done.stderr
    return [point["miss_ratio"] for point in json.loads(done.stdout)["curves"][0]["points"]]


def test_a_captured_load_has_the_shape_of_the_real_one(either, tmp_path):
    with either.connect() as connection:
        connection.ask(b"flush_all\r\n")
    keys, path = load_of_known_shape(), tmp_path / "captured.csv.gz"
    arguments = ["--output", path, "--sample", 1, "--seconds", 200, "--max-requests", requests_of(keys), "--json"]
    with Capture(either, *arguments) as capture:
        made = drive(either, keys)
        code, out, error = capture.finish()
    assert code == 0, error
    report, rows = json.loads(out), rows_of(path)
    assert report["skipped_lines"] == 0 and report["requests"] == len(made) == len(rows)
    assert collections.Counter(row["op"] for row in rows) == collections.Counter(op for op, _ in made)
    # Every request in its place, under another name of its key, with the size and the TTL that its key has.
    ids = {}
    for (op, key), row in zip(made, rows):
        assert ids.setdefault(key, row["key_id"]) == row["key_id"] and row["op"] == op
        assert (int(row["value_size"]), int(row["key_size"])) == (size_of(key), len(f"user:{key}"))
        assert row["ttl_s"] == "600"
    assert len(set(ids.values())) == len(ids)
    assert "user:" not in gzip.open(path, "rt").read()
    real = tmp_path / "real.csv"
    write_trace(real, made)
    assert curve(path) == pytest.approx(curve(real), abs=0.005)


def test_deletes_are_told_by_ebbtide_and_missed_in_an_old_memcached(either, tmp_path):
    path = tmp_path / "captured.csv"
    with either.connect() as connection:
        connection.ask(b"set counted 0 0 1\r\n1\r\nset gone 0 50 3\r\nabc\r\n", b"STORED\r\nSTORED\r\n")
        with Capture(either, "--output", path, "--seconds", 200, "--sample", 1, "--max-requests", 3) as capture:
            connection.ask(b"get gone\r\ndelete gone\r\nincr counted 2\r\n", b"3\r\n")
            code, out, _ = capture.finish()
    assert code == 0
    rows = [(row["op"], int(row["ttl_s"])) for row in rows_of(path)]
    if either.binary == MEMCACHED:
        assert rows == [("get", 0), ("get", 0), ("get", 0)]
        assert "deletes, touches, incr and decr count as gets" in out and "have no TTL" in out
    else:
        # The rest of the TTL of an object that was stored before.
        assert [op for op, _ in rows] == ["get", "delete", "incr"]
        assert 0 < rows[0][1] <= 50 and rows[2][1] == 0


def test_a_sample_is_scaled_to_the_whole_load(either, tmp_path):
    with either.connect() as connection:
        connection.ask(b"flush_all\r\n")
    keys, path = load_of_known_shape(), tmp_path / "captured.csv"
    with Capture(either, "--output", path, "--seconds", 200, "--sample", "1/4") as capture:
        made = drive(either, keys)
        # Every line is sent once this one is: its server answers in the order of its threads' buffers.
        wait_for(lambda: int(either.stat("log_watcher_sent")) > 0, "lines are sent")
        wait_for(lambda: sent_lines_stay(either), "all lines are sent")
        capture.process.send_signal(2)
        code, _, error = capture.finish()
    assert code == 0, error
    text = path.read_text()
    assert "sample=4 " in text.splitlines()[0]
    of_key = collections.Counter(row["key_id"] for row in rows_of(path))
    real = collections.Counter(key for _, key in made)
    assert len(real) / 8 < len(of_key) < len(real) / 2
    assert set(of_key.values()) <= set(real.values())
    found = json.loads(run("advise", path, "--json").stdout)
    footprint = sum(size_of(key) + len(f"user:{key}") for key in real)
    assert footprint / 2 < found["footprint_bytes"] < footprint * 2
    assert any("one key of 4" in caveat for caveat in found["caveats"])


def sent_lines_stay(server):
    before = server.stat("log_watcher_sent")
    time.sleep(0.3)
    return server.stat("log_watcher_sent") == before


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_a_server_that_goes_away_leaves_what_was_captured(binary, tmp_path):
    path = tmp_path / "captured.csv"
    with Server(binary) as server, Capture(server, "--output", path, "--seconds", 200, "--sample", 1) as capture:
        with server.connect() as connection:
            for key in range(100):
                connection.ask(b"get k%d\r\n" % key, b"END\r\n")
        wait_for(lambda: int(server.stat("log_watcher_sent")) >= 100, "all lines are sent")
        server.kill()
        code, out, error = capture.finish()
    assert code == 1 and "100 requests were captured until then" in error
    assert len(rows_of(path)) == 100 and "captured 100 requests" in out
    assert "100 gets have a size of 0" in path.read_text()


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_a_server_that_hangs_ends_the_capture(binary, tmp_path):
    path = tmp_path / "captured.csv"
    with Server(binary) as server, Capture(server, "--output", path, "--seconds", 200, "--sample", 1) as capture:
        with server.connect() as connection:
            for key in range(100):
                connection.ask(b"get k%d\r\n" % key, b"END\r\n")
        wait_for(lambda: int(server.stat("log_watcher_sent")) >= 100, "all lines are sent")
        server.stop_threads()
        try:
            code, out, error = capture.finish()
        finally:
            server.process.send_signal(signal.SIGCONT)
    assert code == 1 and "no answer within 3 s to stats" in error and "100 requests were captured until then" in error
    assert len(rows_of(path)) == 100 and "captured 100 requests" in out


def test_the_stated_load_is_the_one_that_the_server_counts(either, tmp_path):
    # One key has nine tenths of the load; a sample of one key of 4096 has next to none of it.
    path = tmp_path / "captured.csv"
    with Capture(either, "--output", path, "--seconds", 200, "--sample", 4096, "--json") as capture:
        with either.connect() as connection:
            before, requests = time.monotonic(), 0
            while requests < 20_000 or time.monotonic() - before < 3:
                batch = [b"get hot\r\n"] * 45 + [b"get cold%d\r\n" % (requests + number) for number in range(5)]
                connection.ask(b"".join(batch), b"END\r\n" * 50)
                requests += 50
            took = time.monotonic() - before
        capture.process.send_signal(signal.SIGINT)
        code, out, error = capture.finish()
    assert code == 0, error
    stated = json.loads(out)["requests_per_second"]
    # The capture lasts a little longer than the load.
    assert requests / took * 0.5 < stated < requests / took * 1.1
    assert f" requests_per_second={stated:.0f}" in path.read_text().splitlines()[0]


def test_a_signal_ends_a_capture_with_what_it_has(ebbtide, tmp_path):
    for number, name in (signal.SIGINT, "int.csv"), (signal.SIGTERM, "term.csv"):
        path = tmp_path / name
        with Capture(ebbtide, "--output", path, "--seconds", 200, "--sample", 1) as capture:
            sent = int(ebbtide.stat("log_watcher_sent"))
            with ebbtide.connect() as connection:
                for key in range(100):
                    connection.ask(b"get k%d\r\n" % key, b"END\r\n")
            wait_for(lambda: int(ebbtide.stat("log_watcher_sent")) >= sent + 100, "all lines are sent")
            capture.process.send_signal(number)
            code, out, error = capture.finish()
        assert code == 0, error
        assert len(rows_of(path)) == 100 and "captured" in out


def test_a_failed_capture_leaves_what_was_there(ebbtide, tmp_path):
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("precious")
    for target in (f"127.0.0.1:{free_port()}", f"127.0.0.1:{ebbtide.port}"):
        for path in (old, new):
            failed = run("capture", target, "--output", path, "--overwrite", "--seconds", 1, "--sample", 1)
            assert failed.returncode in (1, 74), failed
    assert old.read_text() == "precious" and list(tmp_path.iterdir()) == [old]


def test_advice_for_a_live_server_is_that_for_its_load(ebbtide, tmp_path):
    with ebbtide.connect() as connection:
        connection.ask(b"flush_all\r\n")
    keys, page = load_of_known_shape(), tmp_path / "report.html"
    wanted = ["--hit-ratio", "80%", "--gets-per-second", 1000, "--json"]
    arguments = ["--seconds", 200, "--sample", 1, "--max-requests", requests_of(keys), "--html", page, *wanted]
    with Capture(ebbtide, *arguments, command="advise") as capture:
        made = drive(ebbtide, keys)
        code, out, error = capture.finish()
    assert code == 0, error
    write_trace(tmp_path / "real.csv", made)
    live, real = json.loads(out), json.loads(run("advise", tmp_path / "real.csv", *wanted).stdout)
    assert live["footprint_bytes"] == real["footprint_bytes"] and live["gets"] == real["gets"]
    assert live["wanted"]["dram"]["dram_bytes"] == pytest.approx(real["wanted"]["dram"]["dram_bytes"], rel=0.05)
    assert "<svg" in page.read_text()


def fill(server, keys):
    """Sets objects without a get."""
    with server.connect() as connection:
        for key in keys:
            data = b"x" * size_of(key)
            assert connection.ask(b"set user:%d 0 0 %d\r\n%b\r\n" % (key, len(data), data)) == b"STORED\r\n"


def get_all(server, keys):
    with server.connect() as connection:
        for key in keys:
            assert connection.ask(b"get user:%d\r\n" % key, b"END\r\n") != b"END\r\n"


def once_each_and_some_again(keys=600):
    """Gets of which half are the first of their key."""
    return [*range(keys), *range(0, keys, 2), *range(0, keys, 2)]


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_advice_never_falls_below_a_warm_server(binary):
    gets = once_each_and_some_again()
    arguments = ["--seconds", 200, "--sample", 1, "--max-requests", len(gets), "--hit-ratio", "95%", "--budget", "0.002"]
    with Server(binary, "-m", "64") as server:
        fill(server, range(600))
        with Capture(server, *arguments, "--json", command="advise") as capture:
            get_all(server, gets)
            code, out, error = capture.finish()
        assert code == 0, error
        found = json.loads(out)
        held = int(server.stat("bytes"))
    text = " | ".join(found["verdict"])
    assert "cannot be reached" not in text and "hardly pays" not in text
    assert "the server itself hits 100.0 %" in text and "600 keys" in text and "longer capture needed" in text
    assert found["server_hit_ratio"] == 1.0 and found["first_hit_share"] == pytest.approx(0.5)
    assert found["wanted"]["longer_capture"] == "below_server" and found["wanted"]["dram"] is None
    assert found["smallest"] is None and found["slabs"] is None and found["budget"]["longer_capture"]
    # From the memory on that holds what the server holds, a first get is the hit that it was.
    assert held < found["server_memory_bytes"] < 64 << 20
    for plan in found["dram"]:
        assert (plan["hit_ratio"] > 0.9) == (plan["dram_bytes"] >= found["server_memory_bytes"])
        assert plan["max_hit_ratio"] >= plan["hit_ratio"]
    assert any(plan["hit_ratio"] > 0.99 for plan in found["dram"]) or found["wanted"]["reachable"] > 0.99


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_a_captured_trace_keeps_the_hits_of_a_warm_server(binary, tmp_path):
    gets, path = once_each_and_some_again(), tmp_path / "captured.csv"
    arguments = ["--output", path, "--seconds", 200, "--sample", 1, "--max-requests", len(gets), "--json"]
    with Server(binary, "-m", "64") as server:
        fill(server, range(600))
        with Capture(server, *arguments) as capture:
            get_all(server, gets)
            code, out, error = capture.finish()
    assert code == 0, error
    assert json.loads(out)["hit_ratio"] == 1.0
    assert {row["found"] for row in rows_of(path)} == {"1"}
    found = json.loads(run("advise", path, "--hit-ratio", "95%", "--json").stdout)
    assert found["wanted"]["longer_capture"] == "below_server" and found["first_hit_share"] == pytest.approx(0.5)
    # After the first get of each key the window tells all.
    warm = json.loads(run("advise", path, "--hit-ratio", "95%", "--warmup", "600", "--json").stdout)
    assert warm["first_hit_share"] == 0 and warm["wanted"]["longer_capture"] is None and warm["gets"] == 600
    assert warm["wanted"]["dram"]["hit_ratio"] >= 0.95 and not any("longer" in line for line in warm["verdict"])
    curves = [json.loads(run("mrc", path, "--policy", "lru", "--sizes", "100%", "--json", *flags).stdout)
              for flags in ([], ["--warmup", "50%"])]
    assert [report["curves"][0]["points"][0]["miss_ratio"] for report in curves] == [0.5, 0.0]
    assert any("the first of their key" in caveat for caveat in curves[0]["caveats"])
    # Where memory stops to earn hits is not concluded from misses that were hits.
    for flags, is_concluded in [([], False), (["--warmup", "50%"], True)]:
        text = run("mrc", path, "--policy", "lru", "--exact", "--sizes", "10%,50%,100%,120%", *flags).stdout
        assert ("hardly lowers that" in text) == is_concluded, text


def test_a_cold_memcached_is_advised_as_before(tmp_path):
    keys, path = load_of_known_shape(), tmp_path / "captured.csv"
    with Server(MEMCACHED, "-m", "64") as server:
        arguments = ["--output", path, "--seconds", 200, "--sample", 1, "--max-requests", requests_of(keys)]
        with Capture(server, *arguments) as capture:
            drive(server, keys)
            assert capture.finish()[0] == 0
    found = json.loads(run("advise", path, "--hit-ratio", "99.99%", "--json").stdout)
    assert found["first_hit_share"] == 0 and found["wanted"]["longer_capture"] is None
    assert found["verdict"][0].startswith("a hit ratio of 99.99 % cannot be reached")
    assert found["server_hit_ratio"] == pytest.approx(found["wanted"]["reachable"], abs=0.001)


@pytest.mark.parametrize("binary", [MEMCACHED, EBBTIDE])
def test_advice_for_a_server_that_goes_away_says_so(binary):
    with Server(binary) as server:
        fill(server, range(100))
        with Capture(server, "--seconds", 200, "--sample", 1, "--json", command="advise") as capture:
            get_all(server, range(100))
            wait_for(lambda: int(server.stat("log_watcher_sent")) >= 100, "all lines are sent")
            server.kill()
            code, out, error = capture.finish()
    assert code == 1 and "100 requests were captured until then" in error
    assert any("100 requests were captured until then" in caveat for caveat in json.loads(out)["caveats"])


def test_mistakes_are_named(ebbtide, tmp_path):
    path = tmp_path / "captured.csv"
    idle = run("capture", f"127.0.0.1:{ebbtide.port}", "--output", "-", "--seconds", 1, "--sample", 1)
    assert idle.returncode == 1 and "no request was seen within 1 s" in idle.stderr and idle.stdout == ""
    path.write_text("precious")
    there = run("capture", f"127.0.0.1:{ebbtide.port}", "--output", path)
    assert there.returncode == 73 and "--overwrite" in there.stderr and path.read_text() == "precious"
    nobody = run("capture", f"127.0.0.1:{free_port()}", "--output", "-")
    assert nobody.returncode == 74 and "refused" in nobody.stderr
    with Server(EBBTIDE, "-W") as server:
        forbidden = run("capture", f"127.0.0.1:{server.port}", "--output", "-", "--sample", 1)
    assert forbidden.returncode == 74 and "-W" in forbidden.stderr
    refused = run("advise")
    assert refused.returncode == 2 and "TRACE" in refused.stderr


@pytest.mark.parametrize(("by", "names"), [("pool", {"people", "default"}), ("prefix", {"user", "page"})])
def test_a_capture_names_pools_or_prefixes(by, names, tmp_path):
    path = tmp_path / "captured.csv"
    with Server(EBBTIDE, "-m", "64", "--pool", "people:prefix=user:,hit_value=3") as server:
        assert server.stat("people:prefixes", "stats pools") == "user%3A" and server.stat("people:hit_value", "stats pools") == "3"
        arguments = ["--output", path, "--sample", 1, "--seconds", 200, "--max-requests", 40, "--by", by]
        with Capture(server, *arguments) as capture, server.connect() as connection:
            for key in range(20):
                connection.ask(b"get user:%d\r\nget page:%d\r\n" % (key, key), b"END\r\nEND\r\n")
            code, _, error = capture.finish()
    assert code == 0, error
    rows = rows_of(path)
    assert {row["pool"] for row in rows} == names and len(rows) == 40
    found = json.loads(run("mrc", path, "--by", "pool", "--json", "--sizes", "1k").stdout)
    assert {curve["pool"] for curve in found["curves"]} == names


def test_a_server_without_pools_has_none_to_capture(tmp_path):
    with Server(EBBTIDE) as server:
        done = run("capture", f"127.0.0.1:{server.port}", "--output", tmp_path / "x.csv", "--by", "pool", "--sample", 1)
    assert done.returncode == 2 and "no pools with prefixes; give --by prefix" in done.stderr

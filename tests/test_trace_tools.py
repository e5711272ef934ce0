"""`ebbtide trace head|convert|filter|sample|merge`: what goes in comes out, in every format and compression."""

import json
import os
import signal
import struct
import subprocess

import pytest

from harness import EBBTIDE

HEADER = "timestamp_s,key_id,key_size,value_size,op,ttl_s"
ROWS = [(second, key, 16, 100 + key, op, ttl) for second, key, op, ttl in [
    (10, 1, "get", 0), (10, 2, "set", 60), (11, 1, "get", 0), (12, 3, "delete", 0), (13, 2, "gets", 60), (15, 1, "get", 0),
]]


def run(*arguments, stdin=None):
    words = [EBBTIDE, "trace", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, input=stdin, timeout=300)


def made(*arguments, stdin=None):
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_of(rows, header=HEADER):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(text_of(ROWS))
    return path


def shape(output):
    """The requests of a csv trace without the ids of the keys, and which of them are of one key."""
    rows = [line.split(",") for line in output.decode().splitlines() if not line.startswith("#")][1:]
    ids = {}
    return [(row[0], ids.setdefault(row[1], len(ids)), *row[2:]) for row in rows]


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("to", ["csv", "twitter", "kvcache"])
def test_every_format_comes_back(trace, tmp_path, to, compression):
    other = tmp_path / f"other{compression}"
    made("convert", trace, "--to", to, "--output", other)
    assert shape(made("convert", other)) == shape(trace.read_bytes())
    assert shape(made("convert", "-", stdin=other.read_bytes())) == shape(trace.read_bytes())
    if to == "csv":
        assert made("convert", other) == trace.read_bytes()


def test_oracle_general_has_the_next_access_and_no_deletes(trace, tmp_path):
    other = tmp_path / "other.oracleGeneral"
    made("convert", trace, "--to", "oracle-general", "--output", other)
    records = list(struct.iter_unpack("<IQIq", other.read_bytes()))
    kept = [row for row in ROWS if row[4] != "delete"]
    assert [(time, key, size) for time, key, size, _ in records] == [(row[0], row[1], row[2] + row[3]) for row in kept]
    assert [following for *_, following in records] == [2, 3, 4, -1, -1]
    assert len(shape(made("convert", other))) == len(kept)


def test_lcs_and_vscsi_of_libcachesim_are_read(tmp_path):
    lcs = tmp_path / "trace.lcs"
    header = struct.pack("<QQ", 0x123456789ABCDEF0, 3).ljust(8192, b"\0")
    records = [struct.pack("<IQqIIq", 5 + number, number % 2, 300, 3 if number == 1 else 1, 60, -1) for number in range(4)]
    lcs.write_bytes(header + b"".join(records))
    rows = shape(made("convert", lcs))
    assert [row[0] for row in rows] == ["5", "6", "7", "8"] and [row[1] for row in rows] == [0, 1, 0, 1]
    assert rows[1][4:] == ("set", "60") and int(rows[0][2]) + int(rows[0][3]) == 300
    vscsi = tmp_path / "trace.vscsi"
    vscsi.write_bytes(b"".join(
        struct.pack("<IIIHHQQ", number, 4096, 0, 0x2A if number else 0x28, 0x0100, 77, number * 1_000_000) for number in range(3)
    ))
    rows = shape(made("convert", vscsi))
    assert [(row[0], row[4]) for row in rows] == [("0", "get"), ("1", "set"), ("2", "set")]
    vscsi.write_bytes(b"".join(
        struct.pack("<HHIIIQQQ", 0x28, 0x0200, number, 512, 0, 70 + number, number * 1_000_000, 0) for number in range(3)
    ))
    rows = shape(made("convert", vscsi))
    assert [(row[0], row[1], int(row[2]) + int(row[3])) for row in rows] == [("0", 0, 512), ("1", 1, 512), ("2", 2, 512)]


def test_a_text_of_other_columns_is_read_by_their_positions(tmp_path):
    path = tmp_path / "trace.txt"
    path.write_text("when\tobject\tbytes\n1.5\tuser:1\t300\n2.5\tuser:2\t400\n3.0\tuser:1\t300\n")
    rows = shape(made("convert", path, "--columns", "time=1,key=2,size=3,delimiter=tab"))
    assert [row[:2] for row in rows] == [("1", 0), ("2", 1), ("3", 0)]
    assert [int(row[2]) + int(row[3]) for row in rows] == [300, 400, 300]
    refused = run("convert", path, "--columns", "time=1,frob=2")
    assert refused.returncode == 2 and b"frob" in refused.stderr


def test_head_shows_the_first_requests(trace):
    assert made("head", trace, "-n", 2) == text_of(ROWS[:2]).encode()


@pytest.mark.parametrize("arguments, kept", [
    (["--ops", "get,gets"], [0, 2, 4, 5]),
    (["--from", 1, "--until", 3], [2, 3]),
    (["--min-size", 118, "--max-size", 118], [1, 4]),
])
def test_filters_keep_what_they_say(trace, arguments, kept):
    assert made("filter", trace, *arguments) == text_of([ROWS[index] for index in kept]).encode()


def test_a_filter_that_keeps_nothing_is_an_error(trace, tmp_path):
    output = tmp_path / "none.csv"
    none = run("filter", trace, "--min-size", 5000, "--output", output)
    assert none.returncode == 66 and b"none of the 6 requests meets" in none.stderr, none
    assert not output.exists()


def test_prefixes_and_pools_are_filters(tmp_path):
    twitter = tmp_path / "twitter.csv"
    twitter.write_text("".join(f"{second},{key},6,10,1,get,0\n" for second, key in enumerate(["user:1", "item:1", "user:2"])))
    assert [row[0] for row in shape(made("filter", twitter, "--prefix", "user"))] == ["0", "2"]
    assert [row[0] for row in shape(made("filter", twitter, "--prefix", "user:"))] == ["0", "2"]
    pools = tmp_path / "pools.csv"
    pools.write_text(text_of([(*row, "ab"[index % 2]) for index, row in enumerate(ROWS)], HEADER + ",pool"))
    assert made("convert", pools) == pools.read_bytes()
    assert len(shape(made("filter", pools, "--pool", "a"))) == 3
    refused = run("filter", twitter, "--pool", "a")
    assert refused.returncode == 2 and b"--pool a" in refused.stderr


def test_a_sample_keeps_whole_keys_and_says_so(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(text_of([(number, number % 1000, 16, 100, "get", 0) for number in range(4000)]))
    half, quarter = tmp_path / "half.csv", tmp_path / "quarter.csv"
    made("sample", path, "--one-of", 2, "--output", half)
    made("sample", half, "--one-of", 2, "--seed", 2, "--output", quarter)
    keys = {row[1] for row in shape(half.read_bytes())}
    assert 420 < len(keys) < 580 and len(shape(half.read_bytes())) == 4 * len(keys)
    assert "sample=4" in quarter.read_text().splitlines()[0]
    # A sample of a sample has as many keys as its label says, with the same seed, too.
    eighth = tmp_path / "eighth.csv"
    made("sample", half, "--one-of", 4, "--output", eighth)
    assert 70 < len({row[1] for row in shape(eighth.read_bytes())}) < 180
    assert "sample=8" in eighth.read_text().splitlines()[0]
    found = json.loads(subprocess.run([EBBTIDE, "mrc", quarter, "--json", "--policy", "lru"], capture_output=True).stdout)
    assert any("one key of 4" in caveat for caveat in found["caveats"])


def test_traces_are_merged_by_time(trace, tmp_path):
    other = tmp_path / "feed.v2.csv"
    other.write_text(text_of([(100, 1, 16, 101, "get", 0), (102, 1, 16, 101, "get", 0)]))
    rows = shape(made("merge", trace, other, "--align", "--pools"))
    assert [(row[0], row[6]) for row in rows] == [
        ("0", "trace"), ("0", "trace"), ("0", "feed"), ("1", "trace"), ("2", "trace"), ("2", "feed"), ("3", "trace"), ("5", "trace"),
    ]
    assert len({row[1] for row in rows}) == 4
    assert len({row[1] for row in shape(made("merge", trace, other, "--same-keys"))}) == 3


def test_a_reader_that_goes_ends_a_trace_quietly():
    # More than a pipe holds.
    command = [EBBTIDE, "generate", "--preset", "zipf", "--requests", "500k", "--keys", "1k", "--output", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout.readline().startswith(b"timestamp_s")
        child.stdout.close()
        assert child.wait(60) == 0 and child.stderr.read() == b""


def test_nothing_is_replaced_unasked(trace, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("precious")
    refused = run("convert", trace, "--output", other)
    assert refused.returncode == 73 and b"--overwrite" in refused.stderr and other.read_text() == "precious"
    made("convert", trace, "--output", other, "--overwrite")
    assert other.read_bytes() == trace.read_bytes()


WRITERS = [
    ("trace", "filter", "{in}", "--ops", "get", "--overwrite", "--output", "{out}"),
    ("trace", "convert", "{in}", "--overwrite", "--output", "{out}"),
    ("trace", "sample", "{in}", "--one-of", "2", "--overwrite", "--output", "{out}"),
    ("trace", "head", "{in}", "--overwrite", "--output", "{out}"),
    ("trace", "merge", "{other}", "{in}", "--overwrite", "--output", "{out}"),
    ("replay", "{in}", "--memory", "1m", "--csv", "{out}"),
    ("replay", "{in}", "--memory", "1m", "--overwrite", "--segments", "{out}"),
    ("mrc", "{in}", "--csv", "{out}"),
    ("mrc", "{in}", "--svg", "{out}"),
    ("advise", "{in}", "--html", "{out}"),
    ("bench", "--trace", "{in}", "--requests", "10", "--csv", "{out}"),
    ("bench", "--trace", "{in}", "--requests", "10", "--overwrite", "--hdr", "{out}"),
]


@pytest.mark.parametrize("words", WRITERS, ids=lambda words: " ".join(word for word in words if "{" not in word))
@pytest.mark.parametrize("name", ["trace.csv", "link.csv"])
def test_a_trace_is_no_output_of_itself(trace, tmp_path, words, name):
    other, link = tmp_path / "other.csv", tmp_path / "link.csv"
    other.write_bytes(trace.read_bytes())
    link.symlink_to(trace)
    places = {"in": trace, "out": tmp_path / name, "other": other}
    refused = subprocess.run([EBBTIDE, *(word.format(**places) for word in words)], capture_output=True, timeout=60)
    assert refused.returncode == 2 and refused.stdout == b"", refused
    assert f" {places['out']}: ".encode() in refused.stderr and f" {trace},".encode() in refused.stderr, refused.stderr
    assert trace.read_text() == text_of(ROWS) and sorted(tmp_path.iterdir()) == [link, other, trace]


def test_a_failure_leaves_the_old_file_and_no_new_one(trace, tmp_path):
    broken, old = tmp_path / "broken.csv", tmp_path / "old.csv"
    broken.write_text(text_of(ROWS) + "not a request\n")
    old.write_text("precious")
    for output in (old, tmp_path / "new.csv"):
        failed = run("convert", broken, "--strict", "--overwrite", "--output", output)
        assert failed.returncode == 66, failed
    assert old.read_text() == "precious" and sorted(tmp_path.iterdir()) == [broken, old, trace]


def test_a_signal_leaves_the_old_file(tmp_path):
    old = tmp_path / "old.csv"
    old.write_text("precious")
    words = [EBBTIDE, "trace", "convert", "-", "--overwrite", "--output", str(old)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        # More than all buffers hold, so that a part is written.
        child.stdin.write(text_of(ROWS * 100_000).encode())
        child.stdin.flush()
        child.terminate()
        child.wait(60)
    assert child.returncode == -signal.SIGTERM and old.read_text() == "precious"


def test_a_reader_that_has_seen_enough_is_no_error(trace):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ended = subprocess.run([EBBTIDE, "trace", "convert", trace], stdout=closed, stderr=subprocess.PIPE, timeout=60)
    assert (ended.stderr, ended.returncode) == (b"", 0)

"""`ebbtide mrc`: curves of small traces, whose misses are known exactly, as a user reads them."""

import csv
import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import xml.etree.ElementTree

import harness
import pytest

HEADER = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n"
REFERENCES = "fifo,lru,clock,sieve,slru,2q,s3fifo,arc,lirs,w-tinylfu,lhd,gdsf,belady"


def mrc(path, *flags):
    command = [harness.EBBTIDE, "mrc", str(path), *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def curves(path, *flags):
    """By policy, or by group where there is one: the points by their memory."""
    result = mrc(path, "--json", *flags)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    of = {}
    for curve in report["curves"]:
        groups = [curve[by] for by in ("class", "prefix", "pool") if by in curve]
        name = groups[0] if groups else curve["policy"]
        of[name] = {point["memory_bytes"]: point["miss_ratio"] for point in curve["points"]}
    return report, of


@pytest.fixture
def loop(tmp_path):
    """Ten rounds over ten objects of 100 bytes, then one object that is asked for once."""
    rows = [f"{round},{key},20,80,get,0" for round in range(10) for key in range(10)]
    path = tmp_path / "loop.csv"
    path.write_text(HEADER + "\n".join([*rows, "10,99,20,80,get,0"]) + "\n")
    return path


def test_a_loop_has_a_cliff_under_lru_and_none_under_belady(loop):
    report, of = curves(loop, "--policy", "lru,fifo,belady", "--sizes", "100,500,900,1000,1100")
    assert (report["requests"], report["gets"], report["objects"], report["footprint_bytes"]) == (101, 101, 11, 1100)
    misses = [11 / 101 if size >= 1000 else 1 for size in (100, 500, 900, 1000, 1100)]
    for policy in ("lru", "fifo"):
        assert list(of[policy].values()) == pytest.approx(misses)
    # Belady keeps what comes back first: of ten objects in a loop, four of nine that it has space for beside the new one.
    assert of["belady"][500] < 0.7 < of["lru"][500]
    cliff = report["curves"][0]["cliffs"][0]
    assert (cliff["from_bytes"], cliff["to_bytes"]) == (100, 1000)


def test_lives_and_deletes_count(tmp_path):
    rows = ["0,1,20,80,get,10", "5,1,20,80,get,10", "11,1,20,80,get,10", "12,1,20,80,delete,0", "13,1,20,80,get,0"]
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    _, of = curves(path, "--policy", REFERENCES, "--sizes", "10k")
    # One hit: at 11 it has expired, at 13 it was deleted.
    assert {policy: points[10240] for policy, points in of.items()} == dict.fromkeys(REFERENCES.split(","), 0.75)


def test_the_engine_has_its_names_and_references_theirs(loop):
    _, of = curves(loop, "--policy", "ebbtide,ebbtide:lru,lru", "--sizes", "500,1m")
    assert set(of) == {"ebbtide", "ebbtide:lru", "lru"}
    assert list(of["ebbtide"]) == [1 << 20], "it cannot be as small as 500 bytes"
    assert of["ebbtide"][1 << 20] == pytest.approx(11 / 101)
    table = mrc(loop, "--policy", "ebbtide,lru", "--sizes", "500,1m").stdout
    assert "ebbtide: no engine of 500" in table and "0.1089" in table
    for name in ("merge", "ebbtide:arc", "best"):
        result = mrc(loop, "--policy", name)
        assert result.returncode == 2 and ("w-tinylfu" in result.stderr or "merge-sketch" in result.stderr), result.stderr


def test_every_size_class_has_a_curve(tmp_path):
    rows = [f"{n},{n % 7},20,{44 if n % 7 < 4 else 380},get,0" for n in range(700)]
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    report, of = curves(path, "--by", "class", "--sizes", "100,300,10k")
    assert list(of) == ["64-127 B", "256-511 B"]
    assert of["64-127 B"][300] == pytest.approx(4 / 400)
    assert 0.0 <= report["miss_entropy"] <= 1.0


def test_buckets_know_ten_thousand_objects(tmp_path):
    """Rounds over 9,000 objects of 100 bytes: a bucket of 100 objects is half of itself away from the exact distance."""
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n".join(f"{n // 1000},{n % 9000},20,80,get,0" for n in range(45000)) + "\n")
    _, of = curves(path, "--policy", "lru,lru-buckets", "--sizes", "500k,870k,910k,2m", "--exact")
    assert list(of["lru"].values()) == pytest.approx([1, 1, 0.2, 0.2])
    assert list(of["lru-buckets"].values()) == pytest.approx([1, 1, 0.2, 0.2], abs=0.01)
    path.write_text(HEADER + "\n".join(f"{n // 1000},{n % 11000},20,80,get,0" for n in range(44000)) + "\n")
    _, of = curves(path, "--policy", "lru,lru-buckets", "--sizes", "2m")
    assert of["lru-buckets"][2 << 20] == 1 and of["lru"][2 << 20] == pytest.approx(0.25, abs=0.01)


def test_entropy_of_groups_that_hold_nothing_is_said_to_mislead(tmp_path):
    rows = [f"{n // 100},{n % 2000 if n % 2 else 5000 + n % 2000},20,{80 if n % 2 else 900000},get,0" for n in range(8000)]
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    report, _ = curves(path, "--by", "class", "--sizes", "1m,20m")
    assert any("the entropy says little: 20 MiB hold fewer than 100 objects of 512 KiB-1 MiB" in c for c in report["caveats"])
    report, _ = curves(path, "--by", "class", "--sizes", "1g")
    assert not any("entropy" in caveat for caveat in report["caveats"])


def test_pools_of_the_trace_have_a_curve_each(tmp_path):
    rows = [f"{n},{n % 7},20,80,get,0,{'users' if n % 7 < 4 else 'posts'}" for n in range(700)]
    path = tmp_path / "trace.csv"
    path.write_text(HEADER.strip() + ",pool\n" + "\n".join(rows) + "\n")
    files = tmp_path / "points.csv", tmp_path / "curves.svg"
    flags = ("--by", "pool", "--policy", "lru,fifo", "--sizes", "300,400,1k", "--csv", files[0], "--svg", files[1])
    report, _ = curves(path, *flags)
    found = {(curve["pool"], curve["policy"]): curve["points"] for curve in report["curves"]}
    assert set(found) == {(pool, policy) for pool in ("users", "posts") for policy in ("lru", "fifo")}
    ratios = {key: [point["miss_ratio"] for point in points] for key, points in found.items()}
    assert ratios["users", "lru"] == pytest.approx([1, 4 / 400, 4 / 400]), "each pool has a cache of its own"
    assert ratios["posts", "fifo"] == pytest.approx([3 / 300] * 3)
    with files[0].open() as lines:
        assert {(row["group"], row["policy"]) for row in csv.DictReader(lines)} == set(found)
    assert "posts fifo" in " ".join(xml.etree.ElementTree.parse(files[1]).getroot().itertext())
    assert curves(path, "--policy", "lru", "--sizes", "700")[1]["lru"][700] == pytest.approx(7 / 700)


def test_prefixes_of_text_keys_have_a_curve_each(tmp_path):
    rows = [f"{n},{'user:' if n % 5 < 3 else 'post/'}{n % 5},20,80,1,get,0" for n in range(500)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(rows) + "\n")
    _, of = curves(path, "--by", "prefix", "--sizes", "200,1k")
    assert of == {"user": {200: 1, 1024: pytest.approx(3 / 300)}, "(none)": {200: 2 / 200, 1024: 2 / 200}}
    _, of = curves(path, "--by", "prefix", "--delimiter", "/", "--sizes", "1k")
    assert set(of) == {"(none)", "post"}


def test_the_twenty_largest_groups_have_a_curve_and_the_others_one(tmp_path):
    rows = [f"0,p{group}:{n},20,80,1,get,0" for group in range(25) for n in [*range(40 - group)] * 2]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(rows) + "\n")
    picture = tmp_path / "curves.svg"
    report, of = curves(path, "--by", "prefix", "--sizes", "1k,10k", "--svg", picture)
    assert list(of) == [*(f"p{group}" for group in range(20)), "5 others"]
    assert of["5 others"][10 << 10] == 0.5
    strokes = [line.get("stroke") for line in xml.etree.ElementTree.parse(picture).getroot().findall(".//{*}polyline")]
    # The second and third curve of a colour are dashed, and each dash is a line.
    assert min(strokes.count(colour) for colour in ("#0072B2", "#D55E00", "#009E73")) > 12
    table = mrc(path, "--by", "prefix", "--sizes", "1k,10k")
    assert max(len(line) for line in table.stdout.splitlines() if "trace.csv" not in line) <= 80


@pytest.mark.parametrize("by, reason", [("pool", "no column `pool`"), ("prefix", "are numbers")])
def test_a_trace_without_the_groups_asked_for_is_refused(loop, by, reason):
    result = mrc(loop, "--by", by)
    assert result.returncode == 2 and f"--by {by}" in result.stderr and reason in result.stderr, result.stderr


def test_numbers_have_no_more_digits_than_they_mean(loop):
    report, _ = curves(loop, "--policy", "lru,arc", "--sizes", "300,500,1000")
    numbers = [point[name] for curve in report["curves"] for point in curve["points"] for name in ("miss_ratio", "high")]
    assert 0.10891089 in numbers and all(number == round(number, 8) for number in numbers)


def test_caveats_say_what_makes_the_result_less_than_it_seems(loop, tmp_path):
    report, _ = curves(loop, "--policy", "lru", "--sizes", "1000")
    assert any("11 objects are too few" in caveat for caveat in report["caveats"])
    rows = [f"{n // 2},{n % 200},20,{80 if n % 200 else 500000000},get,0" for n in range(1000)]
    rows[7] = "0,7,20,0,get,0"
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    report, of = curves(path, "--policy", "lru", "--sizes", "20k,1g")
    caveats = " ".join(report["caveats"])
    assert "1 gets have a value of 0 bytes" in caveats and "100 % of all bytes" in caveats and "1 request is earlier than one before" in caveats
    assert of["lru"][20 << 10] == pytest.approx((199 + 5) / 1000), "the large object is refused, the small ones are kept"
    assert "note: " in mrc(path, "--policy", "lru").stdout


def test_csv_and_picture_have_the_numbers_of_the_json(loop, tmp_path):
    files = tmp_path / "points.csv", tmp_path / "curves.svg"
    report, of = curves(loop, "--policy", "lru,arc", "--sizes", "300,1000", "--csv", files[0], "--svg", files[1])
    with files[0].open() as rows:
        points = {(row["policy"], int(row["memory_bytes"])): float(row["miss_ratio"]) for row in csv.DictReader(rows)}
    expected = {(policy, size): ratio for policy, line in of.items() for size, ratio in line.items()}
    assert points == pytest.approx(expected, abs=1e-6)
    picture = xml.etree.ElementTree.parse(files[1]).getroot()
    texts = " ".join(picture.itertext())
    assert "lru" in texts and "arc" in texts and "miss ratio" in texts and "101 gets" in texts
    assert len(picture.findall(".//{*}polyline")) >= 2


def test_a_sample_says_how_far_it_may_be_off(tmp_path):
    trace = tmp_path / "trace.csv"
    command = [harness.EBBTIDE, "generate", "--preset", "zipf", "--keys", "300k", "--requests", "400k"]
    subprocess.run([*command, "--output", str(trace)], check=True, capture_output=True, timeout=120)
    sampled, _ = curves(trace, "--policy", "lru,fifo", "--sizes", "1%,10%,50%")
    exact, _ = curves(trace, "--policy", "lru,fifo", "--sizes", "1%,10%,50%", "--exact")
    for near, true in zip(sampled["curves"], exact["curves"]):
        for point, is_so in zip(near["points"], true["points"]):
            assert is_so["low"] == is_so["miss_ratio"] == is_so["high"]
            assert point["low"] <= point["miss_ratio"] <= point["high"]
            assert point["low"] - 0.01 <= is_so["miss_ratio"] <= point["high"] + 0.01, (point, is_so)
        largest = near["points"][-1]
        assert largest["low"] < largest["high"], near["policy"]


def test_the_default_is_a_table_and_a_plot(loop):
    result = mrc(loop, "--policy", "lru")
    assert result.returncode == 0, result.stderr
    assert "101 requests" in result.stdout and "1.1 KiB" in result.stdout and "* lru" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if "loop.csv" not in line) <= 80


@pytest.mark.parametrize(
    "text, reason",
    [
        (HEADER, "not one request"),
        (HEADER + "0,1,20,80,set,0\n", "none of the 1 requests is a get"),
        ("", "it is empty"),
    ],
)
def test_a_trace_without_gets_is_an_error(tmp_path, text, reason):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    result = mrc(path)
    assert result.returncode == 66 and reason in result.stderr


def test_sizes_that_cannot_be_are_refused(loop):
    for sizes in ("0", "0%", "-5", "many", "0.001%"):
        result = mrc(loop, f"--sizes={sizes}")
        assert result.returncode != 0 and "--sizes" in result.stderr, result.stderr


def test_standard_input_is_a_trace(loop):
    result = subprocess.run(
        [harness.EBBTIDE, "mrc", "-", "--policy", "lru", "--json", "--sizes", "1000"],
        input=loop.read_bytes(),
        capture_output=True,
        timeout=60,
    )
    assert json.loads(result.stdout)["curves"][0]["points"][0]["miss_ratio"] == pytest.approx(11 / 101)


def test_a_policy_that_is_named_twice_has_one_curve(loop):
    report, _ = curves(loop, "--policy", "lru,ebbtide,arc,lru,ebbtide:s3fifo", "--sizes", "500,1m")
    assert [curve["policy"] for curve in report["curves"]] == ["lru", "ebbtide", "arc"]


def test_sizes_at_which_no_curve_has_a_point_are_an_error(loop):
    result = mrc(loop, "--policy", "ebbtide", "--sizes", "500,1k")
    assert result.returncode == 2 and result.stdout == "" and "--sizes 1 KiB" in result.stderr, result.stderr
    assert "at least 262144 bytes" in result.stderr
    large = mrc(loop, "--policy", "ebbtide", "--sizes", "100t")
    assert large.returncode == 2 and "4 TiB" in large.stderr and "larger" not in large.stderr, large.stderr
    both, _ = curves(loop, "--policy", "ebbtide", "--sizes", "1k,1m,100t")
    note = both["curves"][0]["note"]
    assert "no engine of 1 KiB or less" in note and "no engine of 102400 GiB or more" in note


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("not a trace\n")
    for option in ("--csv", "--svg"):
        result = mrc(path, option, tmp_path / "nowhere" / "file")
        assert result.returncode == 73 and "nowhere" in result.stderr, result


def test_an_object_larger_than_the_cache_is_refused_by_lru_too(tmp_path):
    """Ten objects of 100 bytes that all fit, and beside them one that no size but the last has space for."""
    rows = [f"{n},{n % 11},20,{80 if n % 11 else 100000},get,0" for n in range(1100)]
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    report, of = curves(path, "--policy", "lru,fifo", "--sizes", "50,1000,10k,1m")
    assert of["lru"] == pytest.approx({50: 1, 1000: 110 / 1100, 10240: 110 / 1100, 1 << 20: 11 / 1100})
    assert of["lru"] == pytest.approx(of["fifo"])
    bytes_missed = {point["memory_bytes"]: point["byte_miss_ratio"] for point in report["curves"][0]["points"]}
    assert bytes_missed[1000] == pytest.approx((100 * 100020 + 10 * 100) / (100 * 100020 + 1000 * 100))


def test_the_model_of_the_engine_is_near_a_replay(tmp_path):
    state, rows = 3, []
    for number in range(30_000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        key = int(6000 * ((state >> 33) / 2**31) ** 2)
        rows.append(f"{number // 50},{key},16,{200 + key % 300},get,{0 if key % 3 else 100}")
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp_s,key_id,key_size,value_size,op,ttl_s\n" + "\n".join(rows) + "\n")
    arguments = ["--policy", "ebbtide,ebbtide:merge", "--sizes", "256k,700k,1500k"]
    (report, modelled), (_, replayed) = curves(trace, *arguments), curves(trace, *arguments, "--exact")
    for policy, points in replayed.items():
        assert modelled[policy] == pytest.approx(points, abs=0.015), policy
    notes = [curve["note"] for curve in report["curves"]]
    assert all("2 of 3 points by a model of segments" in note for note in notes), notes


def test_the_plot_fits_a_narrow_terminal_without_utf8(loop):
    for columns in (20, 40):
        shown, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "NO_COLOR": "1", "LC_ALL": "C"}
        command = [harness.EBBTIDE, "mrc", str(loop), "--policy", "lru"]
        with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
            os.close(terminal)
            text = b""
            while True:
                try:
                    piece = os.read(shown, 65536)
                except OSError:  # The terminal of a process that has exited.
                    break
                if not piece:
                    break
                text += piece
        os.close(shown)
        assert process.returncode == 0 and text.isascii() and b"\x1b" not in text, text
        plot = text.decode().replace("\r", "").split("\n\n")[-1].splitlines()
        assert any("|" in row for row in plot) and any("+---" in row for row in plot), plot
        assert max(map(len, plot)) <= columns, plot


@pytest.mark.parametrize("policy", ["ebbtide", "lru", "lru-buckets", "clock", "belady"])
def test_a_warmup_fills_and_does_not_count(policy, tmp_path):
    path = tmp_path / "rounds.csv"
    rounds = [f"{number},{number % 300},8,992,get,0" for number in range(900)]
    path.write_text(HEADER + "\n".join(rounds) + "\n")
    for warmup, misses in [(None, 1 / 3), ("300", 0), ("150", 150 / 750), ("50%", 0), ("300s", 0), ("150s", 150 / 750)]:
        flags = ["--warmup", warmup] if warmup else []
        _, of = curves(path, "--policy", policy, "--sizes", "2m", "--exact", *flags)
        assert list(of[policy].values()) == pytest.approx([misses], abs=1e-4), warmup
    _, of = curves(path, "--policy", policy, "--sizes", "2m", "--by", "class", "--warmup", "300")
    assert [list(points.values()) for points in of.values()] == [[0]]
    for refused in ("900", "1m", "9000s"):
        result = mrc(path, "--warmup", refused)
        assert result.returncode == 2 and "no get is left to count" in result.stderr

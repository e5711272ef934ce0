"""`ebbtide trace info`: the portrait gives back what a workload was generated with, and says what it cannot tell."""

import json
import subprocess
import xml.etree.ElementTree

import harness
import pytest

HEADER = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n"


def info(path, *flags):
    command = [harness.EBBTIDE, "trace", "info", str(path), *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def portrait(path, *flags):
    result = info(path, "--json", *flags)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def generated(tmp_path, *flags):
    path = tmp_path / "trace.csv"
    command = [harness.EBBTIDE, "generate", "--preset", "zipf", "--output", str(path), *map(str, flags)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return path


@pytest.mark.parametrize("alpha, head", [(0.55, 0), (0.7, 0), (0.85, 0), (1.0, 0), (0.9, 500)])
def test_the_law_of_popularity_comes_back(tmp_path, alpha, head):
    flags = ["--alpha", alpha, "--keys", "100k", "--requests", "2m", "--span", 36000]
    found = portrait(generated(tmp_path, *flags, *(["--flat-head", head] if head else [])))["popularity"]
    assert found["alpha"] == pytest.approx(alpha, rel=0.05) and found["r_squared"] > 0.98
    assert found["flat_head"] == pytest.approx(head, rel=0.05, abs=5)


@pytest.mark.parametrize("an_hour", [0, 0.1, 0.35, 0.7])
def test_churn_comes_back(tmp_path, an_hour):
    flags = ["--alpha", 0.8, "--keys", "20k", "--requests", "2m", "--span", 8 * 3600, "--churn", 24 * an_hour]
    found = portrait(generated(tmp_path, *flags))
    churn = found["churn"]
    assert churn["replaced_per_hour"] == pytest.approx(an_hour, rel=0.05, abs=0.005)
    assert found["popularity"]["alpha"] == pytest.approx(0.8, rel=0.05)
    still = churn["still_popular_after_hours"]
    assert still[0] == 1 and len(still) == 8 and still[1] < 1.02 - an_hour


@pytest.mark.parametrize("dispersion", [1, 5, 40])
def test_bursts_come_back(tmp_path, dispersion):
    flags = ["--keys", "10k", "--requests", "1m", "--span", 20000, "--dispersion", dispersion]
    assert portrait(generated(tmp_path, *flags))["arrivals"]["dispersion"] == pytest.approx(dispersion, rel=0.05)


def test_objects_lives_and_hours_are_counted(tmp_path):
    rows = [f"{3600 * n},{n % 5},20,{80 if n % 5 else 1980},get,{60 if n % 2 else 0}" for n in range(48)]
    rows += ["172800,7,20,0,get,0", "172801,0,20,0,delete,0", "172802,1,20,80,set,3600"]
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    found = portrait(path)
    assert (found["requests"], found["gets"], found["writes"], found["deletes"]) == (51, 49, 1, 1)
    assert (found["objects"], found["footprint_bytes"], found["span_seconds"]) == (6, 4 * 100 + 2000 + 20, 172802)
    assert found["absent_share"] == pytest.approx(1 / 6) and found["one_hit_share"] == pytest.approx(1 / 6)
    classes = {row["from_bytes"]: row for row in found["sizes"]["classes"]}
    assert set(classes) == {16, 64, 1024}
    assert classes[64]["objects_share"] == pytest.approx(4 / 6) and classes[1024]["gets_share"] == pytest.approx(10 / 49)
    assert found["ttl"]["requests"] == 50 and found["ttl"]["endless_share"] == 0.5
    assert found["ttl"]["most_frequent"][0] == {"seconds": 60, "share": 0.48}
    assert found["arrivals"]["hours_of_day"][:2] == pytest.approx([3 / 51 + 2 / 51, 2 / 51], abs=0.02)
    assert any("6 objects are too few" in caveat for caveat in found["caveats"])


@pytest.mark.parametrize(
    "row, line",
    [
        ("get,0", "TTL          100.0 % without\n"),
        ("set,60", "TTL          0.0 % without; the others p50 60 s, max 60 s\n"),
        ("delete,0", "TTL          no request stores an object\n"),
    ],
)
def test_quantiles_of_ttls_need_ttls(tmp_path, row, line):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(f"{n},{n % 5},20,80,{row}\n" for n in range(100)))
    assert line in info(path).stdout
    assert (portrait(path)["ttl"]["p50_seconds"] is None) == ("60" not in row)


def test_pictures_are_drawn_and_the_table_names_what_they_show(tmp_path):
    path = generated(tmp_path, "--alpha", 0.8, "--keys", "5k", "--requests", "200k", "--span", 8 * 3600, "--churn", 6)
    result = info(path, "--svg", tmp_path / "figures")
    assert result.returncode == 0, result.stderr
    for word in ("popularity   alpha 0.", "churn", "arrivals", "TTL          100.0 % without", "size from"):
        assert word in result.stdout, result.stdout
    figures = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert figures == ["arrivals.svg", "churn.svg", "popularity.svg", "sizes.svg"]
    for name in figures:
        assert len(xml.etree.ElementTree.parse(tmp_path / "figures" / name).getroot()) > 10
    # A trace of a minute has neither hours nor two minutes.
    short = generated(tmp_path, "--keys", 100, "--requests", 1000, "--span", 50)
    assert info(short, "--svg", tmp_path / "short").returncode == 0
    assert sorted(file.name for file in (tmp_path / "short").iterdir()) == ["popularity.svg", "sizes.svg"]


@pytest.mark.parametrize("text, reason", [("", "it is empty"), (HEADER, "not one request"), ("x\n", "--format")])
def test_what_is_no_trace_is_refused(tmp_path, text, reason):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    result = info(path)
    assert result.returncode == 66 and reason in result.stderr, result.stderr


def test_tiny_and_odd_traces_have_a_result_with_caveats(tmp_path):
    path = tmp_path / "trace.csv"
    odd = {
        "one request": ["0,1,20,80,get,0"],
        "one key": [f"{n},1,20,80,get,0" for n in range(500)],
        "no gets": [f"{n},{n},20,80,set,0" for n in range(10)],
        "falling time": ["5000,1,20,80,get,0", "4000,2,20,80,get,0", "6000,1,20,80,get,0"],
        "far times": ["0,1,20,80,get,0", "4000000000,2,20,80,get,0", "4000000001,2,20,80,get,0"],
        "a large object": [f"{n},{n % 150},20,{80 if n % 150 else 500000000},get,0" for n in range(900)],
    }
    caveats = {}
    for name, rows in odd.items():
        path.write_text(HEADER + "\n".join(rows) + "\n")
        caveats[name] = " ".join(portrait(path, "--svg", tmp_path / name)["caveats"])
    assert all("too few" in text for text in caveats.values()), caveats
    assert "1 request is earlier than one before" in caveats["falling time"]
    assert "one object of 476.8 MiB has 100 % of all bytes" in caveats["a large object"]

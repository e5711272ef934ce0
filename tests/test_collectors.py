"""What monitoring tools make of the statistics: the rules by which each reads them, and the names that it asks for.

The rules were read from the sources of prometheus/memcached_exporter, Telegraf's input memcached, Datadog's check mcache
and collectd's plugin memcached. Everything that holds here for Ebbtide holds for memcached as well.
"""

import pathlib
import re

import pytest

from harness import ROOT, Server, EBBTIDE

TOPICS = ["", "items", "slabs", "settings", "conns"]
COMMANDS = (
    b"set a 0 0 1\r\n1\r\nset b 0 100 3\r\nabc\r\nget a b c\r\nincr a 1\r\ndecr a 1\r\nincr c 1\r\ndecr c 1\r\n"
    b"delete b\r\ndelete b\r\ntouch a 0\r\ntouch b 0\r\ncas c 0 0 1 1\r\nx\r\nadd a 0 0 1\r\n1\r\nmn\r\n"
)


def raw(server, topic=""):
    """The bytes of one answer, of a server that has done a bit of everything."""
    with server.connect() as connection:
        connection.send(COMMANDS)
        connection.send(f"stats {topic}".strip().encode() + b"\r\n")
        while b"STAT " not in connection.received or not connection.received.endswith(b"END\r\n"):
            connection.take()
        answer = connection.read_all()
    return answer[answer.index(b"STAT ") :]


def pairs(server, topic=""):
    """Name and value of each line, which must be three words and no more."""
    lines = raw(server, topic).decode().removesuffix("END\r\n").split("\r\n")[:-1]
    split = [line.split(" ") for line in lines]
    assert all(len(words) == 3 and words[0] == "STAT" for words in split), lines
    named = {name: value for _, name, value in split}
    assert len(named) == len(split), "a name is there twice"
    return named


def last_part(name):
    return name.rsplit(":", 1)[-1]


# --- collectd: one buffer, words split at blanks, numbers by atoll and atof, which read what is in front.

COLLECTD_BUFFER = 4096
COLLECTD = """rusage_user rusage_system threads curr_items bytes limit_maxbytes curr_connections listen_disabled_num
cmd_get cmd_set cmd_flush cmd_touch incr_misses incr_hits decr_misses decr_hits get_hits get_misses evictions delete_hits
delete_misses bytes_read bytes_written""".split()


def test_collectd(either):
    stats = pairs(either)
    for name in COLLECTD:
        assert re.match(r"\d+", stats[name]), name
    # Every command count becomes a metric of its own.
    assert all(value.isdigit() for name, value in stats.items() if name.startswith("cmd_"))
    assert float(stats["bytes"]) <= float(stats["limit_maxbytes"])
    assert float(stats["get_hits"]) <= float(stats["cmd_get"])


def test_stats_fit_collectds_buffer_with_the_largest_numbers(ebbtide):
    longest = re.sub(rb"(?<= )\d+(?=\r\n)", b"9" * 20, raw(ebbtide))
    longest = re.sub(rb"(?<= )\d+(?=\.\d{6}\r\n)", b"9" * 20, longest)
    assert longest.count(b"9" * 20) > 40
    # It stops reading when the buffer is full, before it has looked whether the end is in it.
    assert len(longest) < COLLECTD_BUFFER


# --- Telegraf: three words per line, whole numbers where they are, else text.

TELEGRAF = """accepting_conns auth_cmds auth_errors bytes bytes_read bytes_written cas_badval cas_hits cas_misses cmd_flush
cmd_get cmd_set cmd_touch conn_yields connection_structures curr_connections curr_items decr_hits decr_misses delete_hits
delete_misses evictions get_expired get_flushed get_hits get_misses hash_bytes hash_power_level incr_hits incr_misses
limit_maxbytes listen_disabled_num max_connections reclaimed rejected_connections store_no_memory store_too_large threads
total_connections total_items touch_hits touch_misses uptime""".split()


def test_telegraf(either):
    stats = pairs(either)
    for name in TELEGRAF:
        assert 0 <= int(stats[name]) < 2**63, name


# --- Datadog: floats; items by two colons, slabs by one or none; an empty answer is a bad one.

DATADOG_GAUGES = """total_items curr_items limit_maxbytes uptime bytes curr_connections max_connections
connection_structures threads pointer_size""".split()
DATADOG_RATES = """rusage_user rusage_system cmd_get cmd_set cmd_flush get_hits get_misses delete_misses delete_hits
evictions bytes_read bytes_written cas_misses cas_hits cas_badval total_connections listen_disabled_num""".split()
DATADOG_ITEMS = "number age evicted outofmemory reclaimed".split()
DATADOG_SLABS = """get_hits cmd_set delete_hits incr_hits decr_hits cas_hits cas_badval touch_hits used_chunks chunk_size
chunks_per_page total_pages total_chunks free_chunks free_chunks_end""".split()


def test_datadog(either):
    stats = pairs(either)
    for name in DATADOG_GAUGES + DATADOG_RATES:
        float(stats[name])
    assert float(stats["cmd_get"]) != 0 and float(stats["curr_items"]) != 0
    assert re.fullmatch(r"\d+\.\d+\.\d+", stats["version"])
    items = pairs(either, "items")
    for name, value in items.items():
        kind, slab, metric = name.split(":")
        assert kind == "items" and slab.isdigit() and metric
        float(value)
    assert set(DATADOG_ITEMS) <= {name.split(":")[2] for name in items}
    slabs = pairs(either, "slabs")
    for name, value in slabs.items():
        parts = name.split(":")
        assert len(parts) == 1 or len(parts) == 2 and parts[0].isdigit()
        float(value)
    assert set(DATADOG_SLABS) <= {name.split(":")[1] for name in slabs if ":" in name}
    assert {"active_slabs", "total_malloced"} <= set(slabs)


# --- memcached_exporter: what it does not find it leaves out, what it finds must be a float; sets are counted without cas.

EXPORTER = """uptime time version cas_badval cmd_flush cmd_set bytes limit_maxbytes curr_items total_items bytes_read
bytes_written curr_connections total_connections rejected_connections conn_yields listen_disabled_num evictions reclaimed
store_too_large store_no_memory accepting_conns rusage_user rusage_system""".split()
EXPORTER += [f"{op}_{end}" for op in ["get", "delete", "incr", "decr", "cas", "touch"] for end in ["hits", "misses"]]
EXPORTER_SLABS = """cas_badval cmd_set chunk_size chunks_per_page total_pages total_chunks used_chunks free_chunks
free_chunks_end""".split() + [f"{op}_hits" for op in ["get", "delete", "incr", "decr", "cas", "touch"]]


def timeval(value):
    """Two numbers around a point, the second in microseconds."""
    seconds, microseconds = value.split(".")
    assert len(microseconds) == 6
    return int(seconds) + int(microseconds) / 1e6


def test_memcached_exporter(either):
    stats = pairs(either)
    assert set(EXPORTER) <= set(stats)
    for name, value in stats.items():
        if name.startswith("rusage"):
            timeval(value)
        elif name not in ("version", "libevent"):
            float(value)
    cas = sum(float(stats[name]) for name in ["cas_misses", "cas_hits", "cas_badval"])
    assert cas >= 1 and float(stats["cmd_set"]) - cas >= 1, "memcached counts cas among the sets"
    items = pairs(either, "items")
    for name, value in items.items():
        prefix, slab, _ = name.split(":")
        assert prefix == "items" and int(slab) > 0
        float(value)
    assert any(last_part(name) == "number" for name in items)
    by_slab = {}
    for name, value in pairs(either, "slabs").items():
        if ":" in name:
            slab, metric = name.split(":")
            by_slab.setdefault(int(slab), {})[metric] = float(value)
    assert by_slab and all(set(EXPORTER_SLABS) <= set(found) for found in by_slab.values())
    assert all(found["cmd_set"] >= found["cas_hits"] + found["cas_badval"] for found in by_slab.values())
    settings = pairs(either, "settings")
    float(settings["maxconns"])
    if settings.get("lru_crawler") == "yes":
        assert {"lru_crawler_sleep", "lru_crawler_tocrawl", "lru_maintainer_thread", "hot_lru_pct"} <= set(settings)


# --- The table of names.


def table():
    """(topic, name) -> what the documentation says of it."""
    found = {}
    rows = re.findall(r"^\| `(stats[^`]*)` \| (.*?) \| (\w+) \| (.*?) \|$", page(), re.MULTILINE)
    for topic, names, here, why in rows:
        assert here in ("same", "mapped", "zero", "absent") and why
        for name in re.findall(r"`(\w+)`", names):
            key = (topic.removeprefix("stats").strip(), name)
            assert key not in found, f"{key} is there twice"
            found[key] = here
    return found


def page():
    return pathlib.Path(ROOT / "docs/compatibility.md").read_text()


@pytest.mark.parametrize("topic", TOPICS)
def test_names_are_memcacheds_or_documented(memcached, ebbtide, topic):
    theirs = {last_part(name) for name in pairs(memcached, topic)}
    ours = {last_part(name): value for name, value in pairs(ebbtide, topic).items()}
    said = {name: here for (of, name), here in table().items() if of == topic}
    # Of versions after Debian's.
    later = {"client_flags_size"} if topic == "settings" else set()
    # What memcached has nothing like is beside its settings, as the documentation says.
    own = {"policy", "segment_size", "pools"} if topic == "settings" else set()
    assert own <= set(ours) and all(f"`{name}`" in page() for name in own)
    assert set(ours) <= theirs | later | own, "no other names of our own"
    assert theirs - set(ours) == {name for name, here in said.items() if here == "absent"}
    for name, here in said.items():
        assert name in theirs, f"memcached has no {name}"
        if here == "zero":
            assert ours[name] == "0", name


def test_dead_objects_that_are_found_are_told():
    with Server(EBBTIDE, "-m", "64") as server, server.connect() as connection:
        # Maintenance takes flushed objects away as soon as it wakes: ask in the same packet, and again if it was faster.
        for _ in range(1000):
            connection.ask(b"set a 0 0 1\r\n1\r\n")
            assert connection.ask(b"flush_all\r\nget a\r\n", end=b"END\r\n") == b"OK\r\nEND\r\n"
            if int(server.stat("get_flushed")) > 0:
                break
        assert 0 < int(server.stat("get_flushed")) <= int(server.stat("get_misses"))

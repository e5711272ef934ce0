"""Pools: keys to pools by their longest prefix, over every protocol, and memory that no other tenant takes."""

import json
import os
import re
import signal
import subprocess
import threading

import packets
import pytest
from harness import EBBTIDE, PATIENCE_SECONDS, PATIENT_FLASH, USER, Server, free_port, wait_for
from packets import Reader, request
from prometheus_client.parser import text_string_to_metric_families
from pymemcache.client.base import Client
from test_udp import Datagrams

MEMCACHED_TOOL = "/usr/share/memcached/scripts/memcached-tool"
TENANTS = [f"t{number}:" for number in range(8)]
RULES = [flag for tenant in TENANTS for flag in ("--pool", f"{tenant[:-1]}:prefix={tenant}")]


def connect(server):
    return Client(("127.0.0.1", server.port), timeout=60, default_noreply=False)


@pytest.fixture(scope="module")
def server():
    udp_port = free_port()
    with Server(EBBTIDE, "-m", "64", "-U", udp_port, *RULES, "--pool", "nested:prefix=t1:deep/") as server:
        server.udp_port = udp_port
        yield server


@pytest.fixture()
def client(server):
    client = connect(server)
    client.flush_all()
    # Flushed entries count as items until the maintenance has come to their pool.
    wait_for(lambda: not items(server), "pools without entries")
    yield client
    client.close()


def pool_stats(server, topic="pools"):
    """The numbers of `stats pools` by pool, or of `stats slabs` by class."""
    with server.connect() as connection:
        lines = connection.ask(f"stats {topic}\r\n".encode(), b"END\r\n").decode().splitlines()
    pools = {}
    for line in lines[:-1]:
        _, name, value = line.split(" ", 2)
        *_, pool, field = (":" + name).split(":")
        pools.setdefault(pool, {})[field] = int(value) if value.isdigit() else value
    return pools


def items(server):
    return {name: pool["items"] for name, pool in pool_stats(server).items() if pool["items"]}


def test_the_longest_prefix_decides(server, client):
    for key in ("t1:a", "t1:deep/a", "t1:deep", "other", "t1"):
        assert client.set(key, key.encode())
    assert items(server) == {"t1": 2, "nested": 1, "default": 2}
    for key in ("t1:a", "t1:deep/a", "t1:deep", "other", "t1"):
        assert client.get(key) == key.encode()
    assert client.stats()[b"curr_items"] == 5, "plain stats has the sum"


def test_every_command_goes_to_the_pool_of_its_key(server, client):
    assert client.set("t3:n", "7") and client.add("t3:a", "x") and not client.add("t3:a", "y")
    assert client.incr("t3:n", 5) == 12 and client.decr("t3:n", 2) == 10
    assert client.append("t3:a", "y") and client.prepend("t3:a", "z") and client.replace("t3:n", "3")
    value, token = client.gets("t3:a")
    assert value == b"zxy" and client.cas("t3:a", "w", token) and not client.cas("t3:a", "v", token)
    assert client.touch("t3:a", 1000)
    with server.connect() as connection:
        answer = connection.ask(b"gat 1000 t3:a\r\n", b"END\r\n")
    assert answer == b"VALUE t3:a 0 1\r\nw\r\nEND\r\n"
    long = b"v" * 900_000
    assert client.set("t3:long", long) and client.get("t3:long") == long
    assert items(server) == {"t3": 3}
    assert client.delete("t3:n") and not client.delete("t3:n")
    assert client.set("x", "1") and items(server) == {"t3": 2, "default": 1}
    client.flush_all()
    assert client.get_many(["t3:a", "x"]) == {}


def test_meta_commands_go_to_the_pool_of_their_key(server, client):
    with server.connect() as connection:
        assert connection.ask(b"ms t4:k 1 T90\r\n1\r\n") == b"HD\r\n"
        assert connection.ask(b"ms dDQ6Yg== 1 b\r\n2\r\n") == b"HD\r\n", "the key is t4:b"
        assert connection.ask(b"ma t4:k v\r\n", b"2\r\n") == b"VA 1\r\n2\r\n"
        assert connection.ask(b"mg t4:b v\r\n", b"2\r\n") == b"VA 1\r\n2\r\n"
        assert b" cls=6 " in connection.ask(b"me t4:k\r\n")
        assert items(server) == {"t4": 2}
        assert connection.ask(b"md t4:k\r\n") == b"HD\r\n" and connection.ask(b"mg t4:k\r\n") == b"EN\r\n"
        # A stale item is won by one client, in the middle of a run over several pools.
        connection.ask(b"ms t5:s 1\r\n5\r\n")
        connection.ask(b"md t5:s I T60\r\n")
        run = b"mg t4:b v\r\nmg t5:s v\r\nmg t5:s v\r\nmg t6:none v\r\nmn\r\n"
        assert connection.ask(run, b"MN\r\n") == b"VA 1\r\n2\r\nVA 1 X W\r\n5\r\nVA 1 Z X\r\n5\r\nEN\r\nMN\r\n"


def test_binary_packets_go_to_the_pool_of_their_key(server, client):
    with server.connect() as connection:
        reader = Reader(connection)
        for tenant in TENANTS:
            key = f"{tenant}k".encode()
            assert reader.ask(request(packets.SET, key, bytes(8), tenant.encode())).status == packets.OK
        assert items(server) == {tenant[:-1]: 1 for tenant in TENANTS}
        keys = [f"{tenant}k".encode() for tenant in TENANTS * 10]
        quiet = b"".join(
            request(packets.QUIET[packets.GETK], key, opaque=number) for number, key in enumerate(keys)
        )
        connection.send(quiet + request(packets.NOOP))
        for number, key in enumerate(keys):
            answer = reader.answer()
            assert (answer.opaque, answer.key, answer.value) == (number, key, key[:-1])
        assert reader.answer().opcode == packets.NOOP
        assert reader.ask(request(packets.DELETE, b"t2:k")).status == packets.OK
        assert reader.ask(request(packets.FLUSH)).status == packets.OK
        assert reader.ask(request(packets.GET, b"t3:k")).status == 1
    assert client.get("t3:k") is None


def test_datagrams_go_to_the_pool_of_their_key(server, client):
    with Datagrams(server.udp_port) as datagrams:
        assert datagrams.ask(b"set t6:u 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert datagrams.ask(b"get t5:u t6:u u\r\n", b"END\r\n") == b"VALUE t6:u 0 1\r\nx\r\nEND\r\n"
    assert items(server) == {"t6": 1} and client.get("t6:u") == b"x"


def test_multigets_over_pools_answer_in_the_order_of_the_keys(server, client):
    # More keys than a batch has, each present one in three; tenants alternate.
    keys = [f"{TENANTS[number * 5 % 8]}{number}" for number in range(300)]
    present = [key for number, key in enumerate(keys) if number % 3]
    for key in present:
        client.set(key, key * 20, noreply=True)
    assert client.get(present[-1]) is not None
    before = pool_stats(server)
    with server.connect() as connection:
        answer = connection.ask(b"get " + " ".join(keys).encode() + b"\r\n", b"END\r\n")
    expected = "".join(f"VALUE {key} 0 {len(key) * 20}\r\n{key * 20}\r\n" for key in present) + "END\r\n"
    assert answer == expected.encode()
    after = pool_stats(server)
    for tenant in TENANTS:
        of_tenant = [key for key in keys if key.startswith(tenant)]
        hits = sum(key in present for key in of_tenant)
        grown = {field: after[tenant[:-1]][field] - before[tenant[:-1]][field] for field in ("hits", "misses")}
        assert grown == {"hits": hits, "misses": len(of_tenant) - hits}
    assert after["default"]["hits"] == before["default"]["hits"]
    # Long values, so that the output is full in the middle of a batch.
    for tenant in TENANTS:
        client.set(f"{tenant}long", tenant * 100_000)
    wanted = [f"{tenant}long" for tenant in TENANTS * 8]
    with server.connect() as connection:
        answer = connection.ask(b"get " + " ".join(wanted).encode() + b"\r\n", b"\r\nEND\r\n")
    assert [line.split()[1].decode() for line in answer.split(b"\r\n") if line.startswith(b"VALUE ")] == wanted


def test_a_memory_file_brings_all_pools_back(tmp_path):
    with Server(EBBTIDE, "-m", "64", "-e", tmp_path / "memory", "--pool", "a:prefix=a:", "--pool", "b:prefix=b:") as server:
        client = connect(server)
        for key in ("a:1", "b:1", "x"):
            client.set(key, key)
        server.process.terminate()
        assert server.process.wait(60) == 0
        server.bring_back()
        assert connect(server).get_many(["a:1", "b:1", "x"]) == {"a:1": b"a:1", "b:1": b"b:1", "x": b"x"}
        assert items(server) == {"a": 1, "b": 1, "default": 1}


@pytest.mark.parametrize("kept", ["memory", "flash"])
def test_prefixes_that_change_back_over_restarts_bring_nothing_old_back(tmp_path, kept):
    flags = ["-m", "32", *(["-e", tmp_path / "memory"] if kept == "memory" else ["--flash", f"{tmp_path}/flash:64m"])]
    with Server(EBBTIDE, *flags) as server:
        client = connect(server)
        for key in ("u:written", "u:deleted", "other"):
            client.set(key, b"old")
    with Server(EBBTIDE, *flags, "--pool", "u:prefix=u:") as server:
        assert "pools: the prefixes have changed since the last run" in server.messages()
        client = connect(server)
        assert client.get_many(["u:written", "u:deleted", "other"]) == {"other": b"old"}
        client.set("u:written", b"new")
        assert not client.delete("u:deleted")
        if kept == "memory":
            wait_for(lambda: items(server) == {"default": 1, "u": 1}, "entries that belong to the other pool")
    with Server(EBBTIDE, *flags) as server:
        found = connect(server).get_many(["u:written", "u:deleted", "other"])
        assert found in ([{"other": b"old"}] if kept == "memory" else [{"other": b"old"}, {}])


def test_a_flooded_tenant_takes_nothing_from_another(client):
    flags = ["-m", "64", "--pool", "quiet:prefix=q:,min=16m", "--pool", "loud:prefix=l:"]
    with Server(EBBTIDE, *flags) as server:
        client = connect(server)
        for number in range(5000):
            client.set(f"q:{number}", b"q" * 1000, noreply=True)
        for number in range(1500):
            client.set(f"l:{number}", b"l" * 100_000, noreply=True)
        assert client.get("l:1499") is not None
        quiet = [f"q:{number}" for number in range(5000)]
        assert sum(len(client.get_many(quiet[start : start + 100])) for start in range(0, 5000, 100)) == 5000
        pools = pool_stats(server)
        assert pools["quiet"]["evictions"] == 0 and pools["loud"]["evictions"] > 0
        assert pools["quiet"]["min_bytes"] == 16 << 20
        assert sum(pool["limit_bytes"] for pool in pools.values()) <= 64 << 20


def test_dumps_list_all_pools_and_each_class_one(server, client):
    for key in ("t1:a", "t2:b", "c"):
        client.set(key, "1")
    with server.connect() as connection:
        keys = connection.ask(b"lru_crawler mgdump all\r\n", b"EN\r\n")
        assert sorted(keys.split(b"\r\n")[1:-2]) == [b"mg c", b"mg t1:a", b"mg t2:b"]
        lines = connection.ask(b"lru_crawler metadump 3,1\r\n", b"END\r\n").split(b"\n")[1:-2]
        assert sorted((line.split()[0], line.split()[5]) for line in lines) == [
            (b"key=c", b"cls=1"),
            (b"key=t1%3Aa", b"cls=3"),
        ]
        assert connection.ask(b"stats cachedump 4 0\r\n", b"END\r\n").startswith(b"ITEM t2:b [1 b; 0 s]")
        assert connection.ask(b"stats cachedump 5 0\r\n", b"END\r\n") == b"END\r\n"
        assert connection.ask(b"stats cachedump 64 0\r\n") == b"CLIENT_ERROR Illegal slab id\r\n"


def test_pools_are_slab_classes(server, client):
    for key in ("t1:a", "t1:b", "t2:b", "c"):
        client.set(key, "1")
    client.get("t1:a")
    slabs = pool_stats(server, "slabs")
    # The last two lines have no class.
    assert slabs[""]["active_slabs"] == 10 and slabs["3"]["chunks_per_page"] == 1
    of_items = pool_stats(server, "items")
    assert {name: numbers["number"] for name, numbers in of_items.items()} == {"1": 1, "3": 2, "4": 1}
    assert slabs["3"]["get_hits"] == pool_stats(server)["t1"]["hits"] > 0


def test_clients_read_the_classes_of_many_pools():
    """memcached has classes up to 63; a pool has any class up to 1024."""
    names = [f"p{number}" for number in range(99)]
    rules = [flag for name in names for flag in ("--pool", f"{name}:prefix={name}:")]
    with Server(EBBTIDE, "-m", "256", "-I", "64k", *rules) as server:
        client = connect(server)
        assert client.set_many({f"{name}:key": b"x" * 100 for name in names}) == []
        classes = {str(number) for number in range(2, 101)}

        def numbers(lines, pattern):
            found = (re.fullmatch(pattern, line.strip()) for line in lines)
            return {match[1]: int(match[2]) for match in found if match}

        def ask(*command):
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done
            return done.stdout.splitlines()

        # libmemcached, memcached's Perl script, and pymemcache.
        for argument, pattern in (("items", r"items:(\d+):number: (\d+)"), ("slabs", r"(\d+):cmd_set: (\d+)")):
            found = numbers(ask("memcstat", f"--servers=127.0.0.1:{server.port}", f"--args={argument}"), pattern)
            assert {name: count for name, count in found.items() if count} == dict.fromkeys(classes, 1), argument
        lines = ask(MEMCACHED_TOOL, f"127.0.0.1:{server.port}", "display")
        rows = [line.split() for line in lines[1:]]
        # Class, bytes of an item, age, pages, and the number of items.
        assert {row[0]: int(row[4]) for row in rows if row[4] != "0"} == dict.fromkeys(classes, 1), lines
        items = client.stats("items")
        assert {name: items[f"items:{name}:number".encode()] for name in classes} == dict.fromkeys(classes, 1)


def test_a_reset_begins_the_counts_of_all_pools_anew(server, client):
    client.set("t7:a", "1")
    client.get_many(["t7:a", "t7:b", "t6:a", "none"])
    assert pool_stats(server)["t7"]["hits"] > 0
    with server.connect() as connection:
        assert connection.ask(b"stats reset\r\n") == b"RESET\r\n"
    assert all(pool["hits"] == pool["misses"] == 0 for pool in pool_stats(server).values())
    client.get_many(["t7:a", "none"])
    pools = pool_stats(server)
    assert (pools["t7"]["hits"], pools["default"]["hits"], pools["default"]["misses"]) == (1, 0, 1)


def reload(server, config, text):
    """Has the server read its file again."""
    config.write_text(text)
    server.process.send_signal(signal.SIGHUP)


def table(name, prefix, *more):
    return "\n".join(["[[pool]]", f'name = "{name}"', f"prefix = {prefix!r}", *more, ""])


def test_a_reload_adds_resizes_and_removes_pools(tmp_path):
    config = tmp_path / "ebbtide.toml"
    config.write_text(table("a", "a:") + table("b", "b:"))
    with Server(EBBTIDE, "-m", "64", "--config", config, "-U", free_port()) as server:
        client = connect(server)
        for key in ("a:1", "b:1", "c:1", "x"):
            client.set(key, "old")
        client.get_many(["a:1", "b:1", "x", "y"])
        before = pool_stats(server)
        assert pool_stats(server)["b"]["policy"] == "s3fifo"
        changed = table("b", "b:", 'min = "20m"', "weight = 3", 'policy = "lru"', 'target_hit_ratio = "95%"')
        reload(server, config, changed + table("c", "c:", 'max = "8m"'))
        wait_for(lambda: set(pool_stats(server)) == {"default", "b", "c"}, "the pools of the file")
        wait_for(lambda: pool_stats(server)["c"]["limit_bytes"] == 8 << 20, "the memory of the new pool")
        pools = pool_stats(server)
        assert (pools["b"]["min_bytes"], pools["b"]["weight"], pools["c"]["max_bytes"]) == (20 << 20, 3, 8 << 20)
        assert (pools["b"]["policy"], pools["b"]["target_hit_ratio"], pools["c"]["policy"]) == ("lru", "0.95", "s3fifo")
        # Kept entries and counts stay, those of the removed pool are gone; a class that is free is given again.
        assert client.get("b:1") == b"old" and client.get("x") == b"old" and client.get("a:1") is None
        assert (before["b"]["class"], pools["b"]["class"], pools["c"]["class"]) == (3, 3, 2)
        assert pools["default"]["hits"] == before["default"]["hits"] == 1
        # The entry of the pool default is not the key's any more, and does not come back with the key.
        assert client.get("c:1") is None
        wait_for(lambda: items(server) == {"b": 1, "default": 1}, "the end of entries that belong to another pool")
        client.set("c:1", "new")
        assert items(server) == {"b": 1, "c": 1, "default": 1}
        assert "SIGHUP" not in server.messages()

        def has_one_pool():
            # Refused while the reload before still deletes entries.
            reload(server, config, "threads = 4\n")
            return set(pool_stats(server)) == {"default"}

        wait_for(has_one_pool, "the one pool")
        assert client.get("c:1") is None and client.get("b:1") is None and client.get("x") == b"old"
        wait_for(lambda: pool_stats(server)["default"]["limit_bytes"] > 60 << 20, "the memory of all pools")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (table("a", "a:") + table("b", "a:"), ["`a:`", "`a`", "`b`"]),
        (table("a", "a:", 'min = "100m"'), ["104857600", "67108864"]),
        (table("a", "a:", 'objective = "bytes"'), ["`a`", "objective", "restart"]),
        (table("a", "a:", "size = 1"), ["ebbtide.toml:1", "size is unknown"]),
        ("[[pool]\n", ["ebbtide.toml:1"]),
    ],
)
def test_a_refused_reload_changes_nothing(tmp_path, text, parts):
    config = tmp_path / "ebbtide.toml"
    config.write_text(table("a", "a:") + table("c", "c:"))
    with Server(EBBTIDE, "-m", "64", "--config", config) as server:
        client = connect(server)
        client.set("a:1", "x")
        client.set("c:1", "y")
        before = pool_stats(server)
        reload(server, config, text)
        wait_for(lambda: "SIGHUP: what is refused stays as it was" in server.messages(), "the refusal")
        assert all(part in server.messages() for part in parts), server.messages()
        assert client.get("a:1") == b"x" and client.get("c:1") == b"y"
        same = ("limit_bytes", "items", "min_bytes", "max_bytes", "class", "policy", "evictions")
        after = pool_stats(server)
        assert {name: [pool[field] for field in same] for name, pool in after.items()} == {
            name: [pool[field] for field in same] for name, pool in before.items()
        }


def test_a_reload_says_which_pools_it_changed(tmp_path):
    config = tmp_path / "ebbtide.toml"
    config.write_text(table("a", "a:") + table("b", "b:") + table("c", "c:"))
    with Server(EBBTIDE, "-m", "64", "--config", config) as server:
        # What an editor leaves that is cut short after the first table.
        reload(server, config, table("b", "b:", "weight = 3") + table("d", "d:"))
        told = "ebbtide: reload: pools removed with their entries: a, c; added: d; changed: b\n"
        wait_for(lambda: told in server.messages(), "what the reload changed")
        told = "pools removed with their entries: d; changed: b\n"

        def is_told():
            # Refused while the reload before still deletes entries; one that changes nothing says nothing.
            reload(server, config, table("b", "b:"))
            return told in server.messages()

        wait_for(is_told, "the second reload")
        assert server.messages().count("ebbtide: reload:") == 2


@pytest.mark.parametrize("flag", ["--config", "--flags-file", "-Y"])
def test_a_reload_leaves_pipes_alone(tmp_path, flag):
    """A pipe is empty after the start, and one without a writer would hold up the stop, too."""
    file = tmp_path / "settings"
    file.write_text({"-Y": "user:password\n", "--config": table("a", "a:")}.get(flag, "--pool a:prefix=a:\n"))
    with Server(EBBTIDE, "-m", "64", flag, file) as server:
        file.unlink()
        os.mkfifo(file)
        server.process.send_signal(signal.SIGHUP)
        refused = "it is a pipe, which is read once, at the start: name a file there, or restart"
        wait_for(lambda: refused in server.messages() and str(file) in server.messages(), "the refusal")
        if flag != "-Y":
            assert set(pool_stats(server)) == {"default", "a"}
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_SECONDS) == 0


def test_a_share_of_flash_without_flash_is_warned_of():
    warning = "flash=... of --pool a changes nothing without flash"
    assert warning in check("--pool", "a:prefix=a:,flash=20%").stdout
    assert warning not in check("--pool", "a:prefix=a:").stdout


def test_clients_see_no_error_while_pools_are_reloaded(tmp_path):
    config = tmp_path / "ebbtide.toml"
    texts = [table("a", "a:") + table("b", "b:"), table("b", "b:") + table("c", "a:1"), ""]
    config.write_text(texts[0])
    with Server(EBBTIDE, "-m", "64", "--config", config) as server:
        done, failures = threading.Event(), []

        def work(number):
            client = connect(server)
            count = 0
            try:
                while not done.is_set():
                    count += 1
                    key = f"{'abx'[count % 3]}:{number}{count % 100}"
                    assert client.set(key, str(count))
                    # A reload in between makes it a miss; an older value is an error.
                    assert client.get(key) in (None, str(count).encode())
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        names = [{"default", "a", "b"}, {"default", "b", "c"}, {"default"}]
        for step in range(1, 7):
            # A reload is refused while the one before still deletes entries.
            def is_reloaded():
                reload(server, config, texts[step % 3])
                return set(pool_stats(server)) == names[step % 3]

            wait_for(is_reloaded, "the pools of the file")
        done.set()
        for thread in threads:
            thread.join()
        assert not failures


def test_pools_are_in_json_and_metrics():
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin, "--pool", "users:prefix=u:,min=8m,max=16m,weight=3") as server:
        client = connect(server)
        client.set("u:1", "x")
        client.get_many(["u:1", "u:2", "y"])
        pools = {pool["name"]: pool for pool in json.loads(server.fetch("/api/pools"))["pools"]}
        users = pools["users"]
        assert set(pools) == {"default", "users"} and users["prefixes"] == ["u:"] and users["policy"] == "s3fifo"
        assert (users["min_bytes"], users["max_bytes"], users["weight"], users["class"]) == (8 << 20, 16 << 20, 3, 2)
        assert (users["items"], users["hits"], users["misses"], users["stored"]) == (1, 1, 1, 1)
        assert pools["default"]["max_bytes"] is None and pools["default"]["misses"] == 1
        overview = json.loads(server.fetch("/api/overview"))
        assert [pool["name"] for pool in overview["pools"]] == ["default", "users"]
        families = {family.name: family for family in text_string_to_metric_families(server.fetch("/metrics"))}
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for name, family in families.items()
            if name.startswith("ebbtide_pool_")
            for sample in family.samples
        }
        assert samples["ebbtide_pool_gets_total", "users", "hit"] == samples["ebbtide_pool_items", "users"] == 1
        assert samples["ebbtide_pool_gets_total", "default", "miss"] == 1
        assert samples["ebbtide_pool_memory_limit_bytes", "users"] == 16 << 20
        top = subprocess.run(
            [EBBTIDE, "top", f"127.0.0.1:{server.port}", "--json", "--once"], capture_output=True, text=True, timeout=60
        )
        assert [pool["name"] for pool in json.loads(top.stdout)["pools"]] == ["default", "users"], top


def check(*flags):
    return subprocess.run([EBBTIDE, *USER, "--check", *flags], capture_output=True, text=True, timeout=60)


def test_the_check_says_what_each_pool_gets(tmp_path):
    config = tmp_path / "ebbtide.toml"
    config.write_text(
        'memory-limit = 100\n[[pool]]\nname = "users"\nprefix = ["users:", "sess/"]\nmin = "30m"\nmax = "40m"\nweight = 9\n'
    )
    result = check("--config", config)
    assert result.returncode == 0, result.stderr
    assert "users: 40 MiB for users: sess/" in result.stdout


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--pool", "a:prefix=x", "--pool", "b:prefix=x"], ["`x`", "`a`", "`b`"]),
        (["--pool", "a:prefix=x", "--pool", "a:prefix=y"], ["`a`", "two pools"]),
        (["--pool", "a:prefix=x,size=1m"], ["size is unknown", "min=SIZE"]),
        (["--pool", "a b:prefix=x"], ["`a b`", "blank"]),
        (["--pool", "a\x07:prefix=x"], ["cannot be printed"]),
        (["--pool", "a:prefix=x", "--pool", "b c:prefix=y"], ["--pool b c:", "blank"]),
        (["--pool", "a:min=1m"], ["no key belongs to it"]),
        (["-m", "64", "--pool", "a:prefix=x,min=60m", "--pool", "b:prefix=y,min=6m"], ["67108864", "a 62914560", "b 6291456"]),
        (["-m", "64", "--pool", "a:prefix=x,min=8m,max=4m"], ["8388608", "4194304"]),
        (["-m", "64", "--pool", "a:prefix=x,max=1m"], ["1048576", "2097152", "-I"]),
        (["-m", "4", "--pool", "a:prefix=x", "--pool", "b:prefix=y"], ["4194304", "6291456", "-I"]),
        ([flag for number in range(1024) for flag in ("--pool", f"{number}:prefix={number}:")], ["1025 pools", "1024"]),
    ],
)
def test_pools_that_cannot_be_are_refused(flags, parts):
    result = check(*flags)
    assert result.returncode == 64 and all(part in result.stderr for part in parts), result.stderr[:2000]


COMPACT = ["--pool", "absent:prefix=no:,kind=compact,key=16,value=0,max=8m"]
COUNTERS = ["--pool", "tiny:prefix=c:,kind=compact,key=10,value=4,ttl=on,max=8m"]


def compact_key(number):
    return f"no:{number:013}"


@pytest.fixture(scope="module")
def compact_server():
    udp_port = free_port()
    with Server(EBBTIDE, "-m", "64", "-U", udp_port, *COMPACT, *COUNTERS) as server:
        server.udp_port = udp_port
        yield server


@pytest.fixture()
def compact_client(compact_server):
    client = connect(compact_server)
    client.flush_all()
    yield client
    client.close()


def test_compact_pools_keep_negative_results(compact_server, compact_client):
    client = compact_client
    before = pool_stats(compact_server)["absent"]
    keys = [compact_key(number) for number in range(200)]
    for key in keys[::2]:
        assert client.set(key, b"")
    # Keys of other pools in the same run.
    assert client.set("other", b"value")
    assert client.get_many([*keys, "other"]) == {**{key: b"" for key in keys[::2]}, "other": b"value"}
    absent = pool_stats(compact_server)["absent"]
    assert (absent["kind"], absent["key_bytes"], absent["value_bytes"]) == ("compact", 16, 0)
    assert (absent["items"], absent["negatives"], absent["limit_bytes"]) == (100, 100, 8 << 20)
    assert (absent["hits"] - before["hits"], absent["misses"] - before["misses"]) == (100, 100)
    assert absent["capacity"] * 16 * 115 >= (8 << 20) * 100, "few bytes beside the keys"
    assert not client.add(keys[0], b"") and client.add(keys[1], b"") and client.replace(keys[0], b"")
    assert client.delete(keys[0]) and not client.delete(keys[0]) and client.get(keys[0]) is None
    assert client.stats()[b"curr_items"] == 101, "plain stats has the sum"
    client.flush_all()
    assert client.get_many(keys) == {}


def test_one_get_spans_compact_and_other_pools(compact_server):
    keys = [key for number in range(50) for key in (f"plain{number}", compact_key(5000 + number), f"c:9{number:07}")]
    values = {key: b"" if key.startswith("no:") else b"%04d" % place for place, key in enumerate(keys) if place % 4}
    with compact_server.connect() as connection:
        for key, value in values.items():
            assert connection.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value)) == b"STORED\r\n"
        before = pool_stats(compact_server)
        found = [b"VALUE %s 0 %d\r\n%s\r\n" % (key.encode(), len(values[key]), values[key])
                 for key in keys if key in values]
        answer = b"".join([*found, b"END\r\n"])
        line = b"get %s\r\n" % " ".join(keys).encode()
        assert connection.ask(line, b"END\r\n") == answer, "in the order of the keys, more than one run of them"
        after = pool_stats(compact_server)
        for pool, start in (("default", "plain"), ("absent", "no:"), ("tiny", "c:")):
            hits = sum(key in values for key in keys if key.startswith(start))
            assert int(after[pool]["hits"]) - int(before[pool]["hits"]) == hits
            assert int(after[pool]["misses"]) - int(before[pool]["misses"]) == 50 - hits


def test_compact_pools_refuse_other_lengths_with_the_numbers(compact_server, compact_client):
    with compact_server.connect() as connection:
        for command, answer in [
            (b"set no:1 0 0 0\r\n\r\n", b"CLIENT_ERROR compact pool absent: the key has 4 bytes; those of this compact pool have 16\r\n"),
            (b"set no:0000000000001 0 0 2\r\nxx\r\n", b"CLIENT_ERROR compact pool absent: the value has 2 bytes; those of this compact pool have 0\r\n"),
            (b"ms c:00000001 3\r\nxxx\r\n", b"CLIENT_ERROR compact pool tiny: the value has 3 bytes; those of this compact pool have 4\r\n"),
            (b"delete no:1\r\n", b"CLIENT_ERROR compact pool absent: the key has 4 bytes; those of this compact pool have 16\r\n"),
            (b"get no:1\r\n", b"END\r\n"),
        ]:
            assert connection.ask(command) == answer
        # A value that arrives in pieces.
        for head, rest, answer in [
            (b"set c:00000001 0 0 4\r\nab", b"cd\r\n", b"STORED\r\n"),
            (b"ms c:00000002 4 k\r\nab", b"cd\r\n", b"HD kc:00000002\r\n"),
        ]:
            connection.send(head)
            # Another connection is answered in between.
            assert compact_client.get("c:00000009") is None
            assert connection.ask(rest) == answer
        assert connection.ask(b"set c:00000001 0 0 500000\r\n" + b"x" * 500_000 + b"\r\n").startswith(b"CLIENT_ERROR ")
        assert connection.ask(b"get c:00000001 c:00000002\r\n", b"END\r\n") == b"VALUE c:00000002 0 4\r\nabcd\r\nEND\r\n"


def test_compact_pools_refuse_what_they_do_not_keep(compact_server, compact_client):
    key = b"c:00000001"
    with compact_server.connect() as connection:
        assert connection.ask(b"set %s 0 0 4\r\n0001\r\n" % key) == b"STORED\r\n"
        for command in [
            b"set %s 7 0 4\r\n0002\r\n",
            b"append %s 0 0 4\r\n0002\r\n",
            b"prepend %s 0 0 0\r\n\r\n",
            b"incr %s 1\r\n",
            b"ma %s\r\n",
            b"me %s\r\n",
            b"mg %s N30 v\r\n",
            b"md %s I\r\n",
        ]:
            answer = connection.ask(command % key)
            assert answer.startswith(b"CLIENT_ERROR compact pool tiny: "), (command, answer)
        assert connection.ask(b"cas %s 0 0 4 1\r\n0002\r\n" % key).startswith(b"CLIENT_ERROR ")
        assert connection.ask(b"mg %s v\r\n" % key) == b"EN\r\n", "a refused set removes the value"
        absent = compact_key(1).encode()
        assert connection.ask(b"set %s 0 60 0\r\n\r\n" % absent).startswith(b"CLIENT_ERROR compact pool absent: this compact")
        assert connection.ask(b"set %s 0 -1 0\r\n\r\n" % absent) == b"STORED\r\n"
        assert connection.ask(b"get %s\r\n" % absent) == b"END\r\n"


def test_compact_pools_answer_meta_and_touch(compact_server, compact_client):
    key = b"c:00000001"
    with compact_server.connect() as connection:
        assert connection.ask(b"ms %s 4 T90 c s\r\nabcd\r\n" % key) == b"HD c0 s4\r\n"
        assert connection.ask(b"ms %s 4 ME\r\nefgh\r\n" % key) == b"NS\r\n"
        assert connection.ask(b"mg %s v k s f c h O9\r\n" % key, b"abcd\r\n") == b"VA 4 kc:00000001 s4 f0 c0 h0 O9\r\nabcd\r\n"
        assert connection.ask(b"touch %s 100\r\n" % key) == b"TOUCHED\r\n"
        assert connection.ask(b"touch c:00000002 100\r\n") == b"NOT_FOUND\r\n"
        assert connection.ask(b"gat 100 %s\r\n" % key, b"END\r\n") == b"VALUE %s 0 4\r\nabcd\r\nEND\r\n" % key
        assert connection.ask(b"gats 0 %s\r\n" % key, b"END\r\n") == b"VALUE %s 0 4 0\r\nabcd\r\nEND\r\n" % key
        run = b"mg %s v\r\nmg c:00000007\r\nmg %s q\r\nmn\r\n" % (key, key)
        assert connection.ask(run, b"MN\r\n") == b"VA 4\r\nabcd\r\nEN\r\nHD\r\nMN\r\n"
        assert connection.ask(b"gat -1 %s\r\n" % key, b"END\r\n") == b"VALUE %s 0 4\r\nabcd\r\nEND\r\n" % key
        assert connection.ask(b"md %s O1\r\n" % key) == b"NF O1\r\n"
        assert connection.ask(b"ms YzowMDAwMDAwMQ== 4 b\r\nijkl\r\n") == b"HD\r\n"
        answer = connection.ask(b"mg YzowMDAwMDAwMQ== b k v\r\n", b"ijkl\r\n")
        assert answer == b"VA 4 kYzowMDAwMDAwMQ== b\r\nijkl\r\n"


def test_compact_pools_answer_binary_packets_and_datagrams(compact_server, compact_client):
    key, absent = b"c:00000001", compact_key(7).encode()
    with compact_server.connect() as connection:
        reader = Reader(connection)
        assert reader.ask(request(packets.SET, key, bytes(8), b"abcd")).status == packets.OK
        assert reader.ask(request(packets.SET, absent, bytes(8), b"")).status == packets.OK
        assert reader.ask(request(packets.GET, key)).value == b"abcd"
        assert reader.ask(request(packets.GET, absent)).status == packets.OK
        assert reader.ask(request(packets.SET, key, bytes(8), b"abc")).status == 4
        assert reader.ask(request(packets.GET, key)).status == 1
        assert reader.ask(request(packets.DELETE, absent)).status == packets.OK
        assert reader.ask(request(packets.DELETE, absent)).status == 1
    with Datagrams(compact_server.udp_port) as datagrams:
        assert datagrams.ask(b"set %s 0 0 4\r\nwxyz\r\n" % key) == b"STORED\r\n"
    assert compact_client.get(key.decode()) == b"wxyz"


def test_watchers_and_dumps_stay_beside_compact_pools(compact_server, compact_client):
    key = b"c:00000001"
    with compact_server.connect() as watcher, compact_server.connect() as connection:
        assert watcher.ask(b"watch fetchers mutations deletions\r\n") == b"OK\r\n"
        assert connection.ask(b"set %s 0 0 4\r\nabcd\r\n" % key) == b"STORED\r\n"
        assert connection.ask(b"touch %s 100\r\n" % key) == b"TOUCHED\r\n"
        assert connection.ask(b"delete %s\r\n" % key) == b"DELETED\r\n"
        seen = watcher.read_until(b" cmd=delete clsid=1 size=4\n")
        assert seen.count(b"key=c%3A00000001 ") == 4, seen
        assert connection.ask(b"set %s 0 0 4\r\nabcd\r\n" % key) == b"STORED\r\n"
        assert key not in connection.ask(b"lru_crawler metadump all\r\n", b"END\r\n")
        assert connection.ask(b"stats items\r\n", b"END\r\n") and connection.ask(b"stats slabs\r\n", b"END\r\n")


def test_compact_pools_are_checked_reloaded_and_in_json(tmp_path):
    config = tmp_path / "ebbtide.toml"
    text = '[[pool]]\nname = "absent"\nprefix = "no:"\nkind = "compact"\nkey = 16\nvalue = 0\nmax = "4m"\n'
    config.write_text(text)
    result = check("--config", config)
    assert result.returncode == 0 and "absent: 4 MiB for no:, compact, " in result.stdout, result
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin, "--config", config) as server:
        client = connect(server)
        assert client.set(compact_key(1), b"")
        pools = {pool["name"]: pool for pool in json.loads(server.fetch("/api/pools"))["pools"]}
        assert pools["absent"]["kind"] == "compact" and pools["absent"]["negatives"] == 1
        assert pools["default"]["kind"] == "store" and pools["default"]["negatives"] is None
        assert 'ebbtide_pool_negatives{pool="absent"} 1' in server.fetch("/metrics")
        # Another size keeps the entries, another prefix does not.
        reload(server, config, text.replace("4m", "8m"))
        wait_for(lambda: pool_stats(server)["absent"]["limit_bytes"] == 8 << 20, "the larger pool")
        assert client.get(compact_key(1)) == b""

        def is_routed_anew():
            reload(server, config, text.replace('"no:"', '["no:", "nil"]'))
            assert client.set("nil0000000000000", b"")
            return client.get(compact_key(1)) is None and pool_stats(server)["absent"]["negatives"] == 1

        wait_for(is_routed_anew, "the other prefixes")
        reload(server, config, "")
        wait_for(lambda: set(pool_stats(server)) == {"default"}, "the pool default alone")
        assert client.set(compact_key(1), b"a longer value now") and client.get(compact_key(1)) == b"a longer value now"


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        ("kind=compact", ["key=NUM"]),
        ("key=16", ["kind=compact"]),
        ("kind=compact,key=200", ["key=200", "128 at most"]),
        ("kind=compact,key=100,value=100", ["key 100, value 100", "128 at most"]),
        ("kind=compact,key=1", ["keys have 1 byte", "`x:`"]),
        ("kind=compact,key=16,max=1k", ["1024", "262144"]),
        ("kind=small", ["kind=small", "store or compact"]),
    ],
)
def test_compact_pools_that_cannot_be_are_refused(option, parts):
    result = check("--pool", f"a:prefix=x:,{option}")
    assert result.returncode == 64 and all(part in result.stderr for part in parts), result.stderr
ON_FLASH = 3000
VALUE_BYTES = 6000


def on_flash(path, *flags):
    return Server(EBBTIDE, "-m", "32", "--flash", f"{path}:160m", *PATIENT_FLASH, "--flash-promotion", "always", *flags)


def value(prefix, version, number):
    return (f"{prefix}{version}.{number}." * (VALUE_BYTES // 4))[:VALUE_BYTES].encode()


def fill(client, prefix, version):
    """More than the memory of the pool."""
    for first in range(0, ON_FLASH, 100):
        keys = range(first, first + 100)
        assert client.set_many({f"{prefix}{number}": value(prefix, version, number) for number in keys}) == []


def found(client, prefix, version):
    """How many keys there are; each must have the value of this version."""
    count = 0
    for first in range(0, ON_FLASH, 100):
        answers = client.get_many([f"{prefix}{number}" for number in range(first, first + 100)])
        assert all(bytes == value(prefix, version, int(key[len(prefix) :])) for key, bytes in answers.items())
        count += len(answers)
    return count


def test_pools_on_flash_survive_a_kill_and_a_stop(tmp_path):
    rules = ["--pool", "a:prefix=a:,flash=30%", "--pool", "b:prefix=b:"]
    with on_flash(tmp_path / "flash", *rules) as server:
        client = connect(server)
        for prefix in ("a:", "b:", "x"):
            fill(client, prefix, 1)
        for prefix in ("a:", "b:", "x"):
            assert found(client, prefix, 1) > ON_FLASH * 9 // 10
        pools = pool_stats(server)
        assert all(pools[name]["flash_hits"] > 500 and pools[name]["flash_bytes"] > 4 << 20 for name in ("a", "b", "default"))
        # Written, deleted and read again through the pool of the key.
        assert client.delete("a:7") and client.get("a:7") is None and client.get("b:7") == value("b:", 1, 7)
        client.set("a:7", value("a:", 1, 7))
        server.kill()
        server.bring_back()
        client = connect(server)
        counts = {prefix: found(client, prefix, 1) for prefix in ("a:", "b:", "x")}
        assert all(count > ON_FLASH // 4 for count in counts.values()), counts
        fill(client, "a:", 2)
        server.process.terminate()
        assert server.process.wait(120) == 0
        server.bring_back()
        client = connect(server)
        assert found(client, "a:", 2) > ON_FLASH * 9 // 10, "memory of all pools went to flash"
        assert found(client, "b:", 1) >= counts["b:"] * 9 // 10
        client.flush_all()
        assert [found(client, prefix, 3) for prefix in ("a:", "b:", "x")] == [0, 0, 0]
        server.kill()
        server.bring_back()
        client = connect(server)
        assert [found(client, prefix, 3) for prefix in ("a:", "b:", "x")] == [0, 0, 0], "flushed before the kill"


def test_a_pool_removed_by_a_reload_leaves_nothing_on_flash(tmp_path):
    config = tmp_path / "ebbtide.toml"
    config.write_text(table("a", "a:") + table("b", "b:"))
    with on_flash(tmp_path / "flash", "--config", config) as server:
        client = connect(server)
        fill(client, "a:", 1)
        fill(client, "b:", 1)
        reload(server, config, table("b", "b:"))
        wait_for(lambda: set(pool_stats(server)) == {"default", "b"}, "the end of the pool")
        assert found(client, "a:", 2) == 0

        def has_both():
            # Refused while the reload before still deletes entries.
            reload(server, config, table("a", "a:") + table("b", "b:"))
            return set(pool_stats(server)) == {"default", "a", "b"}

        wait_for(has_both, "both pools")
        assert found(client, "a:", 2) == 0, "nothing of the removed pool"
        server.kill()
        server.bring_back()
        client = connect(server)
        assert found(client, "a:", 2) == 0, "nor after a kill"
        assert found(client, "b:", 1) > ON_FLASH // 4


def test_stops_and_starts_with_flash_tell_what_pools_lose(tmp_path):
    flash = ["--flash", f"{tmp_path / 'flash'}:64m", "-m", "64", *PATIENT_FLASH]
    absent = ["--pool", "absent:prefix=no:,kind=compact,key=10,value=0"]
    with Server(EBBTIDE, *flash, "--pool", "a:prefix=a:", *absent) as server:
        client = connect(server)
        for number in range(300):
            client.set(f"a:{number}", bytes(10_000))
            client.set(f"b:{number}", bytes(10_000))
            client.set(f"no:{number:07}", b"")
        server.stop()
        lost = "600 objects and 5.7 MiB went from memory to flash"
        assert lost in server.messages(), server.messages()
        assert "; 300 are lost: compact pools are never on flash\n" in server.messages(), server.messages()
    with Server(EBBTIDE, *flash, *absent) as server:
        dropped = re.search(
            r"flash: dropped, as no pool of their names is configured: ([0-9.]+) MiB of pools of the last run, 1 in number\n",
            server.messages(),
        )
        assert dropped and 2.8 < float(dropped[1]) < 3.3, server.messages()
        assert connect(server).get("a:1") is None and connect(server).get("b:1") == bytes(10_000)
    with Server(EBBTIDE, *flash, *absent) as server:
        assert "dropped" not in server.messages()

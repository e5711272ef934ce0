"""The client of all comparisons, `ebbtide bench`, with what a run cost the server."""
import json
import subprocess

from servers import EBBTIDE, pinned

KEY_BYTES = 20


def bench(server, *arguments, cores=None, key_bytes=KEY_BYTES):
    """The report of one run, with `server_us_per_op` (processor time of the server) and `server_busy` (cores)."""
    command = [*pinned(cores), EBBTIDE, "bench", "--target", f"127.0.0.1:{server.port}", "--protocol", server.protocol,
               "--key-size", key_bytes, "--json", *arguments]
    before = server.processor_seconds()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
    used = server.processor_seconds() - before
    report = json.loads(done.stdout)
    # Redis and memcached refuse a set now and then when their eviction falls behind.
    if report["errors"] > report["requests"] / 100:
        raise SystemExit(f"{' '.join(map(str, command))}: {report['errors']} refused, {report['first_error']}")
    prefill = report["keys"] if "--prefill" in arguments else 0
    report["server_us_per_op"] = used / max(report["requests"] + prefill, 1) * 1e6
    report["server_busy"] = used / report["seconds"]
    return report


def fill(server, keys, value_bytes, *arguments, cores=None):
    """Sets this number of keys once, in the order of their numbers."""
    return bench(server, "--popularity", "scan", "--keys", keys, "--requests", keys, "--get-ratio", 0, "--value-size",
                 value_bytes, "--pipeline", 64, *arguments, cores=cores)

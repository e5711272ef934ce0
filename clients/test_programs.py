"""Clients of other languages: each has a program that runs it against the server at HOST:PORT and fails with a message.

Building them is the business of the Makefile beside this file.
"""

import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILT = HERE.parent / "target/clients"
JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{BUILT}/java/classes:{BUILT}/java/jars/*"]
TIMEOUT_SECONDS = 500

# The words of a program stand before and after HOST:PORT.
PROGRAMS = {
    "gomemcache": ([f"{BUILT}/gomemcache"], []),
    "spymemcached": ([*JAVA, "Spymemcached"], ["TEXT"]),
    "spymemcached binary": ([*JAVA, "Spymemcached"], ["BINARY"]),
    "xmemcached": ([*JAVA, "Xmemcached"], ["TEXT"]),
    "xmemcached binary": ([*JAVA, "Xmemcached"], ["BINARY"]),
    "npm memcached": (["node", f"{BUILT}/node/memcached.js"], []),
    "npm memjs": (["node", f"{BUILT}/node/memjs.js"], []),
    "php": (["php", f"{HERE}/php/memcached.php"], ["text"]),
    "php binary": (["php", f"{HERE}/php/memcached.php"], ["binary"]),
    "perl": (["perl", f"{HERE}/perl/cache_memcached_fast.pl"], []),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(server, name):
    before, after = PROGRAMS[name]
    result = subprocess.run(
        [*before, f"127.0.0.1:{server.port}", *after],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_SECONDS,
        text=True,
        errors="replace",
    )
    assert result.returncode == 0, result.stdout[-4000:]

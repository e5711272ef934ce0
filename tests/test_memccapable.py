"""libmemcached's conformance tool."""

import re
import subprocess

import pytest

# They want an error for `delete a b c d e`: memcached has none from 1.6.40 on, as words behind the arguments are ignored.
OF_OLD_VERSIONS = {"ascii delete", "ascii delete noreply"}


@pytest.mark.parametrize("server, accepted", [("memcached", set()), ("ebbtide", OF_OLD_VERSIONS)])
@pytest.mark.parametrize("protocol, count", [("ascii", 20), ("binary", 25)])
def test_every_case_passes(request, server, accepted, protocol, count):
    port = request.getfixturevalue(server).port
    result = subprocess.run(
        ["memccapable", "-h", "127.0.0.1", "-p", str(port), f"-{protocol[0]}", "-t", "10"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    # What fails is said on stderr, so its line has no end.
    cases = dict(re.findall(rf"({protocol} [a-z ]+?) {{2,}}(\[pass\])?", result.stdout))
    assert len(cases) > count, result.stdout + result.stderr
    failed = {case for case, verdict in cases.items() if not verdict}
    assert failed == {case for case in accepted if case.startswith(protocol)}, result.stdout + result.stderr

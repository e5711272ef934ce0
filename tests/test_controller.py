"""`--controller`: which mode the server runs, and what it refuses."""

import json
import subprocess
import time
import urllib.request

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, USER, Server, free_port


@pytest.mark.parametrize("flags, mode", [((), "dry-run"), (("--controller", "off"), "off"), (("--controller", "auto"), "auto")])
def test_the_mode_is_told_and_one_pool_has_no_division(flags, mode):
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin, *flags) as server:
        with urllib.request.urlopen(f"http://{admin}/api/decisions", timeout=PATIENCE_SECONDS) as answer:
            assert json.load(answer) == {
                "controller": mode,
                "state": None,
                "policies": None,
                "decisions": [],
                "targets": [],
            }
        with pytest.raises(KeyError):
            server.stat("pool_division", "stats ebbtide")


def test_the_state_of_policies_is_told():
    admin = f"127.0.0.1:{free_port()}"
    flags = ("--controller-policies", "lru,2q", "--pool", "a:prefix=a:")
    with Server(EBBTIDE, "-m", "64", "--admin", admin, *flags) as server:

        def told():
            with urllib.request.urlopen(f"http://{admin}/api/decisions", timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)["policies"]

        deadline = time.monotonic() + PATIENCE_SECONDS
        while (text := told()) is None:
            assert time.monotonic() < deadline, "the state of policies"
            time.sleep(0.1)
        assert text == "default: the models of policies have seen too few gets"
        assert server.stat("pool_policies", "stats ebbtide") == text


@pytest.mark.parametrize(
    "flags, advice",
    [
        (("--controller", "on"), "give auto, dry-run or off"),
        (("--controller-policies", "lru,best"), "--controller-policies lru,best: "),
        (("--controller", "off", "--controller-policies", "lru"), "give --controller auto, or leave the policies out"),
        (("--controller", "auto", "--admin", "off"), "give --admin 127.0.0.1:11212, or --controller off"),
    ],
)
def test_what_cannot_work_is_refused_with_advice(flags, advice):
    command = [EBBTIDE, *USER, "-p", str(free_port()), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode != 0 and advice in done.stderr

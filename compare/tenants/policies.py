#!/usr/bin/env python3
"""The policy that the controller chooses, beside each policy alone, on traces.

    policies.py --ebbtide BINARY --traces FOLDER [--names a,b] [--memory 1%,10%] [--policies s3fifo,lru]

Each trace (`<name>.csv.zst`) is replayed at each memory under each policy alone, and with the default policy and
`--controller-policies`. Printed is a Markdown table of miss ratios: the default, the best policy of the row, the
controller, and the changes of policy that it made. The last lines compare over all rows: the geometric mean of the miss
ratios relative to the default, of each policy alone and of the controller.
"""
import argparse
import collections
import json
import math
import pathlib
import subprocess
import sys

POLICIES = "s3fifo,merge,lru,2q,merge-sketch"
NAMES = (
    "arc_oltp,cloudphysics_w106,hyb_oltp_c29ttl,lirs_2_pools,lirs_loop,lirs_multi3,orm_busy,web12,web_1999_usertrace,"
    "youtube_umass_2007"
)


def replay(given, name, *flags):
    command = [given.ebbtide, "replay", given.traces / f"{name}.csv.zst", "--memory", given.memory, *flags, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def changes(report):
    """The changes of policy, without those that are one of many in a row."""
    steps = [("undo " if one["is_undo"] else "") + one["policy"]["to"] for one in report["decisions"] if one.get("policy")]
    return ", ".join(steps) if len(steps) <= 4 else f"{', '.join(steps[:3])} and {len(steps) - 3} more"


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebbtide", type=pathlib.Path, required=True)
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--names", type=lambda text: text.split(","), default=NAMES.split(","))
    parser.add_argument("--memory", default="auto")
    parser.add_argument("--policies", type=lambda text: text.split(","), default=POLICIES.split(","))
    given = parser.parse_args()
    default, listed = given.policies[0], ",".join(given.policies)
    relative = collections.defaultdict(list)
    worst = (0.0, "")
    print("| trace, memory | default | best | controller | beside the best | beside the default | changes |")
    print("|---|---|---|---|---|---|---|")
    for name in given.names:
        alone = collections.defaultdict(dict)
        for report in replay(given, name, "--policy", listed):
            alone[report["memory_limit_bytes"]][report["policy"]] = report["miss_ratio"]
        for report in replay(given, name, "--policy", default, "--controller-policies", listed):
            memory, chosen = report["memory_limit_bytes"], report["miss_ratio"]
            ratios = alone[memory]
            best = min(ratios, key=ratios.get)
            base = max(ratios[default], 1e-9)
            for policy, ratio in ratios.items():
                relative[policy].append(max(ratio, 1e-9) / base)
            relative["controller"].append(max(chosen, 1e-9) / base)
            worst = max(worst, (chosen / base, f"{name}, {memory / (1 << 20):.1f} MiB"))
            print(
                f"| {name}, {memory / (1 << 20):.1f} MiB | {ratios[default]:.4f} | {ratios[best]:.4f} {best} "
                f"| {chosen:.4f} | {chosen / max(ratios[best], 1e-9) - 1:+.1%} | {chosen / base - 1:+.1%} "
                f"| {changes(report)} |",
                flush=True,
            )
    print(f"\nGeometric means of the miss ratios, relative to {default}:")
    for policy, ratios in relative.items():
        print(f"- {policy}: {geometric_mean(ratios):.4f}")
    best = min(geometric_mean(ratios) for policy, ratios in relative.items() if policy != "controller")
    print(f"- the controller beside the best policy for all: {geometric_mean(relative['controller']) / best - 1:+.2%}")
    print(f"- its worst row beside {default}: {worst[0] - 1:+.2%}, {worst[1]}")


if __name__ == "__main__":
    main()

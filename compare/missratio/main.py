#!/usr/bin/env python3
"""Miss ratios of ebbtide beside those of its peers, at equal all-in memory.

    main.py traces TRACES     every system on the traces of a directory (`<name>.csv.zst`)
    main.py presets           the generated workloads of the Segcache paper: memory for the same miss ratio, ablations
    main.py twitter TRACES    the same from Twitter's published traces, in a directory (`cluster52.sort.zst` and the like)
    main.py report            results.csv, the plots and the Markdown tables of all that is known
    main.py check TRACES      the pipeline against the directory's reference-miss-ratios.csv

Results of peers are kept (`--folder`), those of ebbtide as long as the binary is the same.
"""
import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["traces", "presets", "twitter", "report", "check"])
    parser.add_argument("traces", nargs="?", type=pathlib.Path, help="directory of traces")
    parser.add_argument("--ebbtide", type=pathlib.Path, default=ROOT / "target/release/ebbtide")
    parser.add_argument("--peers", type=pathlib.Path, default=ROOT / "compare/target/release/peer-replay")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "compare/target/missratio")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "compare/results/missratio")
    parser.add_argument("--only", action="append", help="only these traces or presets")
    parser.add_argument("--one-of", type=int, default=1, help="twitter: replay one key of this many, chosen by hash")
    parser.add_argument("--jobs", type=int, help="replays of ebbtide at a time; default: the cores")
    parsed = parser.parse_args()
    if parsed.stage in ("traces", "twitter", "check") and parsed.traces is None:
        parser.error(f"{parsed.stage} needs the directory of the traces")
    if parsed.one_of < 1:
        parser.error(f"--one-of is {parsed.one_of}: give the keys of which one is replayed, 1 for all")
    return parsed


def main():
    given = arguments()
    # After the arguments, as the libraries take a while to load.
    import check
    import presets
    import report
    import twitter
    from evaluate import TRACE_SHARES, Evaluation

    if given.stage == "check":
        sys.exit(check.run(given.traces, given.folder, given.only))
    for binary, package in ((given.ebbtide, "-p ebbtide-cli"), (given.peers, "-p ebbtide-peer-replay, in compare")):
        if not binary.exists():
            sys.exit(f"{binary} is not there: build it (cargo build --release {package}) or name another one")
    evaluation = Evaluation(given.folder, given.ebbtide, given.peers, given.jobs)
    if given.stage == "traces":
        paths = sorted(given.traces.glob("*.csv.zst"))
        for path in paths:
            if not given.only or path.name.removesuffix(".csv.zst") in given.only:
                evaluation.run_policies(path, evaluation.run(path, TRACE_SHARES))
    elif given.stage == "presets":
        presets.run(evaluation, given.only)
    elif given.stage == "twitter":
        twitter.run(evaluation, given.traces, given.only, given.one_of)
    else:
        report.write(evaluation, given.out)


if __name__ == "__main__":
    main()

"""Resident memory against the limit with flash below it: filled with more than memory has, and read from flash. The file is in compare/results, or in
the folder that FLASH_FOLDER names."""
import os
import pathlib
import tempfile

import client
import results
import servers

MEMORY_MIB, FLASH_MIB = 64, 1024
DATA_BYTES = 600_000_000
VALUE_BYTES = [300, 4000, 100_000, 900_000]
READ_BYTES, READS_MOST = 1_500_000_000, 100_000
FLAGS = {"ebbtide": lambda path: ["--flash", f"{path}:{FLASH_MIB}m"], "memcached": lambda path: ["-o", f"ext_path={path}:{FLASH_MIB}M"]}


def measure(rounds, quick):
    rows = results.Rows("costs", "resident_flash", ["round", "server", "bytes", "filled", "read"])
    mebibytes = lambda server: server.resident_bytes() / (1 << 20)
    folder = pathlib.Path(os.environ.get("FLASH_FOLDER", results.OUTPUT))
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1 if quick else rounds):
        for value_bytes in VALUE_BYTES:
            for name, flags in FLAGS.items():
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    # Both open it as nobody.
                    os.chmod(place, 0o777)
                    with servers.running(servers.ALL[name], MEMORY_MIB, threads=4, flags=flags(f"{place}/file")) as server:
                        keys = DATA_BYTES // value_bytes
                        common = ["--keys", keys, "--value-size", value_bytes, "--connections", 8]
                        client.bench(server, "--popularity", "scan", "--get-ratio", 0, "--requests", keys, *common)
                        filled = mebibytes(server)
                        reads = min(READ_BYTES // value_bytes, READS_MOST)
                        client.bench(server, "--popularity", "uniform", "--get-ratio", 1, "--requests", reads, *common)
                        rows.add(round=number, server=name, bytes=value_bytes, filled=filled, read=mebibytes(server))
    table = [[value_bytes, server, *(rows.spread(column, server=server, bytes=value_bytes) for column in ("filled", "read"))]
             for value_bytes in VALUE_BYTES for server in FLAGS]
    results.markdown(["value bytes", "server", "VmRSS filled, MiB (min to max)", "and read"], table)

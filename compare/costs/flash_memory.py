"""DRAM that flash takes of `-m`, by the length of the values: empty, and full. 1 GiB of memory and 20 GiB of flash.

Keys of 20 bytes are set once each, in order, until 1.3 times the capacity of flash was written. Bytes are those of the
metrics: the server's own count. The file is in compare/results, or in the folder that FLASH_FOLDER names. It needs that
much disk, and the server writes that many bytes for each length. What a busy device cannot take is dropped, so flash
may not become full: the table has the share of it that objects have.
"""
import os
import pathlib
import tempfile
import urllib.request

import client
import results
import servers

MEMORY_MIB, FLASH_MIB = 1024, 20 << 10
# Both are divided by this, or by FLASH_SCALE: small objects fill flash slowly.
QUICK_SCALE = 8
# Lengths to measure, others by FLASH_VALUES=300,4000.
VALUE_BYTES = "100,300,1000,4096,16384,65536"
FILLED = 1.3
COLUMNS = ["bytes", "empty", "limit_empty", "used", "limit", "index", "large", "small", "on_flash", "dropped",
           "resident"]


def metrics(address):
    """The sum of each family over its labels, and each labelled value by its line."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        lines = [line for line in page.read().decode().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def total(found, family):
    return sum(value for name, value in found.items() if name.split("{")[0] == family)


def measure_length(rows, folder, value_bytes, memory_mib, flash_mib):
    address = f"127.0.0.1:{servers.free_port()}"
    with tempfile.TemporaryDirectory(dir=folder) as place:
        # The server opens it as nobody.
        os.chmod(place, 0o777)
        flags = ["--flash", f"{place}/file:{flash_mib}m", "--admin", address]
        with servers.running(servers.ebbtide, memory_mib, threads=2, flags=flags) as server:
            empty = metrics(address)
            keys = int(FILLED * flash_mib * (1 << 20) / (value_bytes + client.KEY_BYTES))
            client.fill(server, keys, value_bytes, "--connections", 8, "--threads", 1)
            full = metrics(address)
            rows.add(bytes=value_bytes,
                     empty=int(total(empty, "ebbtide_flash_memory_bytes")),
                     limit_empty=int(total(empty, "ebbtide_flash_memory_limit_bytes")),
                     used=int(total(full, "ebbtide_flash_memory_bytes")),
                     limit=int(total(full, "ebbtide_flash_memory_limit_bytes")),
                     index=int(total(full, "ebbtide_flash_index_bytes")),
                     large=int(full['ebbtide_flash_objects{store="large"}']),
                     small=int(full['ebbtide_flash_objects{store="small"}']),
                     on_flash=int(total(full, "ebbtide_flash_used_bytes")),
                     dropped=int(total(full, "ebbtide_flash_drops_total")),
                     resident=server.resident_bytes())


def measure(_rounds, quick):
    rows = results.Rows("costs", "flash_memory", COLUMNS)
    folder = pathlib.Path(os.environ.get("FLASH_FOLDER", results.OUTPUT))
    folder.mkdir(parents=True, exist_ok=True)
    scale = int(os.environ.get("FLASH_SCALE", QUICK_SCALE if quick else 1))
    memory_mib, flash_mib = MEMORY_MIB // scale, FLASH_MIB // scale
    for value_bytes in map(int, os.environ.get("FLASH_VALUES", VALUE_BYTES).split(",")):
        measure_length(rows, folder, value_bytes, memory_mib, flash_mib)
    mebibytes = lambda count: f"{count / (1 << 20):.1f}"
    share = lambda count: f"{count / (flash_mib << 20):.2%}"
    print(f"{memory_mib} MiB of memory, {flash_mib} MiB of flash\n")
    results.markdown(
        ["value bytes", "empty: used, of, MiB", "objects on flash: large, small", "their bytes, of flash",
         "full: used, of, MiB", "of flash", "index, MiB", "index bytes per object", "dropped", "VmRSS, MiB"],
        [[row["bytes"], f"{mebibytes(row['empty'])}, {mebibytes(row['limit_empty'])}",
          f"{row['large']}, {row['small']}", f"{row['on_flash'] / (flash_mib << 20):.0%}",
          f"{mebibytes(row['used'])}, {mebibytes(row['limit'])}", share(row["used"]), mebibytes(row["index"]),
          f"{row['index'] / max(row['large'] + row['small'], 1):.2f}", row["dropped"], mebibytes(row["resident"])]
         for row in rows.rows])

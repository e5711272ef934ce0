"""The caching proxies that are compared, each with one worker and the same memory for objects."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request

from servers import ROOT, free_port, pinned, program

MEMORY_MIB = 512
EXAMPLE = ROOT / "target/release/examples/http_proxy"

NGINX = """
daemon off;
{user}
worker_processes 1;
error_log {folder}/error.log;
pid {folder}/pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000000;
    open_file_cache max=100000 inactive=1h;
    proxy_cache_path {folder}/cache levels=1:2 keys_zone=objects:64m max_size={memory}m inactive=1h use_temp_path=off;
    proxy_temp_path {folder}/temporary;
    client_body_temp_path {folder}/bodies;
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache objects;
            proxy_cache_lock on;
        }}
    }}
}}
"""

TRAFFIC_SERVER = """
CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.cache.ram_cache.size INT {memory}M
CONFIG proxy.config.cache.ram_cache_cutoff INT 4M
CONFIG proxy.config.cache.min_average_object_size INT 4000
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.http.keep_alive_no_activity_timeout_in INT 600
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.diags.output.error STRING E
"""

TRAFFIC_SERVER_FOLDERS = """
prefix: .
exec_prefix: .
bindir: /usr/bin
sbindir: /usr/sbin
sysconfdir: ./etc
datadir: ./data
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: ./var
runtimedir: ./run
logdir: ./log
cachedir: ./cache
"""


def ebbtide(folder, port, origin):
    """Objects in memory; what memory evicts goes to a file."""
    return [EXAMPLE, "--origin", f"http://127.0.0.1:{origin}", "--listen", f"127.0.0.1:{port}",
            "--memory", f"{MEMORY_MIB}m"]


def nginx(folder, port, origin):
    """Objects in files, which the page cache holds."""
    user = "user root;" if os.geteuid() == 0 else ""
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, port=port, origin=origin, memory=MEMORY_MIB, user=user))
    return [program("nginx"), "-c", file, "-p", folder]


def traffic_server(folder, port, origin):
    """Objects in its memory cache, over a cache file of the same size."""
    shutil.copytree("/etc/trafficserver", folder / "etc")
    for name in ("run", "log", "cache", "data", "var"):
        (folder / name).mkdir()
    (folder / "runroot.yaml").write_text(TRAFFIC_SERVER_FOLDERS)
    settings = folder / "etc"
    (settings / "records.config").write_text(TRAFFIC_SERVER.format(port=port, memory=MEMORY_MIB))
    (settings / "remap.config").write_text(f"map / http://127.0.0.1:{origin}/\n")
    (settings / "storage.config").write_text(f"{folder}/cache {MEMORY_MIB}M\n")
    return [program("traffic_server"), f"--run-root={folder}"]


ALL = {"ebbtide": ebbtide, "nginx": nginx, "traffic server": traffic_server}


@contextlib.contextmanager
def running(name, origin, core):
    """The port of a proxy before this origin, on one core."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="proxy"))
    port = free_port()
    command = [*pinned([core]), *map(str, ALL[name](folder, port, origin.port))]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/1/start", timeout=10).read()
                break
            if process.poll() is not None:
                raise SystemExit(f"ended: {' '.join(command)}")
            time.sleep(0.05)
        else:
            raise SystemExit(f"does not answer: {' '.join(command)}")
        yield port
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

//! Memory of idle connections. Alone in its file, because it measures the memory of the process.

mod common;

use std::io::Write;

use common::{TestServer, options, read_exactly, set};
use ebbtide_server::ServerOptions;

#[test]
fn idle_connections_cost_little() {
    let count = 4_000;
    let server = TestServer::with(ServerOptions {
        // This process has both ends open.
        max_connections: 2 * count + 100,
        ..options()
    });
    let mut streams = Vec::new();
    let warm_up = 100;
    let mut before = 0;
    for n in 0..count {
        if n == warm_up {
            before = resident_bytes();
        }
        let mut stream = server.connect();
        stream.write_all(&set("k", &[b'x'; 1000])).expect("a write");
        stream.write_all(b"get k\r\n").expect("a write");
        read_exactly(&mut stream, 8 + 18 + 1000 + 2);
        streams.push(stream);
    }
    let each = resident_bytes().saturating_sub(before) / (count - warm_up);
    assert!(each < 2048, "{each} bytes for each idle connection");
    assert_eq!(server.stat("curr_connections"), count as u64 + 1);
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kib: usize = line.split_whitespace().nth(1).expect("a field").parse().expect("a number");
    kib << 10
}

//! Stopping by a command.

use std::io::{Read, Write};

use crate::common::{PATIENCE, TestServer, assert_bytes, hit, options, read_to_end, set, value};
use ebbtide_server::ServerOptions;

fn server() -> TestServer {
    TestServer::with(ServerOptions { allow_shutdown: true, stop_timeout: PATIENCE, threads: 1, ..options() })
}

#[test]
fn what_was_read_is_answered_before_the_end() {
    for command in [&b"shutdown\r\n"[..], b"shutdown graceful\r\n"] {
        let mut server = server();
        let value = value(100_000);
        server.talk(&set("k", &value));
        let count = 300;
        let mut slow = server.connect();
        slow.write_all(&b"get k\r\n".repeat(count)).expect("a write");
        let mut answer = vec![0];
        slow.read_exact(&mut answer).expect("the first byte");
        // The rest of the answers does not fit the buffers of the sockets: most gets wait.
        assert_bytes(&server.talk(&[b"get none\r\n", command, b"get k\r\n"].concat()), b"END\r\n");
        answer.extend(read_to_end(&mut slow));
        let each = [&hit("k", &value)[..], b"END\r\n"].concat();
        assert_bytes(&answer, &each.repeat(count));
        server.running().join().expect("a clean end");
    }
}

#[test]
fn other_words_do_not_stop_it() {
    let server = server();
    let refusal = b"CLIENT_ERROR invalid shutdown mode\r\n";
    assert_bytes(&server.talk(b"shutdown now\r\nshutdown graceful x\r\n"), &[&refusal[..], refusal].concat());
    assert_bytes(&server.talk(b"shutdown noreply\r\nmn\r\n"), b"MN\r\n");
    assert_bytes(&TestServer::new().talk(b"shutdown noreply\r\nmn\r\n"), b"MN\r\n");
}

//! Statistics by key prefix.

use crate::common::{TestServer, assert_bytes, options, set};
use ebbtide_server::ServerOptions;

#[test]
fn prefixes_are_counted_while_detail_is_on() {
    let server = TestServer::new();
    server.talk(b"get off:1\r\n");
    assert_bytes(&server.talk(b"stats detail dump\r\nstats detail on\r\n"), b"END\r\nOK\r\n");
    server.talk(&set("a:1", b"5"));
    server.talk(b"get a:1 a:2 b:1 plain\r\ngat 100 a:1\r\nincr a:1 1\r\ntouch a:1 1\r\ndelete a:1\r\ndelete a:1\r\n");
    server.talk(b"append a:1 0 0 1\r\nx\r\n");
    let expected: &[u8] = b"PREFIX a get 3 hit 2 set 2 del 2\r\nPREFIX b get 1 hit 0 set 0 del 0\r\nEND\r\n";
    assert_bytes(&server.talk(b"stats detail dump\r\n"), expected);
    assert!(String::from_utf8_lossy(&server.talk(b"stats settings\r\n")).contains("STAT detail_enabled yes\r\n"));
    server.talk(b"ms c:1 1\r\n5\r\nmg c:1\r\nmd c:1 C1\r\nmd c:1 I\r\nmd c:1\r\nmg c:1 N9\r\n");
    let with_meta = [&expected[..expected.len() - 5], b"PREFIX c get 2 hit 1 set 1 del 2\r\nEND\r\n"].concat();
    assert_bytes(&server.talk(b"stats detail dump\r\n"), &with_meta);
    server.talk(b"stats detail off\r\nget a:1\r\n");
    assert_bytes(&server.talk(b"stats detail dump\r\n"), &with_meta);
    server.talk(b"stats reset\r\n");
    assert_bytes(&server.talk(b"stats detail dump\r\n"), b"END\r\n");
}

#[test]
fn options_enable_detail_with_another_delimiter() {
    let server = TestServer::with(ServerOptions { prefix_delimiter: b'#', count_prefixes: true, ..options() });
    server.talk(b"get a#b:c\r\n");
    assert_bytes(&server.talk(b"stats detail dump\r\n"), b"PREFIX a get 1 hit 0 set 0 del 0\r\nEND\r\n");
    assert!(String::from_utf8_lossy(&server.talk(b"stats settings\r\n")).contains("STAT stat_key_prefix #\r\n"));
}

#[test]
fn other_words_are_refused() {
    let server = TestServer::new();
    let usage = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
    assert_bytes(&server.talk(b"stats detail\r\nstats detail frob\r\n"), &[&usage[..], usage].concat());
}

#[test]
fn a_binary_prefix_does_not_forge_lines() {
    let server = TestServer::with(ServerOptions { count_prefixes: true, ..options() });
    // The key is "a\r\nEND\r\nb:c".
    server.talk(b"ms YQ0KRU5EDQpiOmM= 1 b\r\nx\r\n");
    let expected = b"PREFIX a%0D%0AEND%0D%0Ab get 0 hit 0 set 1 del 0\r\nEND\r\n";
    assert_bytes(&server.talk(b"stats detail dump\r\n"), expected);
}

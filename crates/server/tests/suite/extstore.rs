//! The limits of flash under memcached's names.

use crate::common::flash_server::FlashServer;
use crate::common::{TestServer, assert_bytes};
use ebbtide::memcached::FlashLimits;

#[test]
fn extstore_changes_what_goes_to_flash() {
    let flash_objects = FlashServer::new(&[]);
    let server = &flash_objects.server;
    let settings = |size: u32, age: u32, ttl: u32| {
        let text = String::from_utf8(server.talk(b"stats settings\r\n")).expect("text");
        let expected = format!("STAT ext_item_size {size}\r\nSTAT ext_item_age {age}\r\nSTAT ext_low_ttl {ttl}\r\n");
        assert!(text.contains(&expected), "{text}");
    };
    settings(0, u32::MAX, 10);
    assert_bytes(
        &server.talk(b"extstore item_size 512\r\nextstore item_age 300 noreply\r\nextstore low_ttl 60\r\n"),
        b"OK\r\nOK\r\n",
    );
    settings(512, 300, 60);
    let limits = FlashLimits { min_value_bytes: 512, min_ttl_seconds: 60, max_idle_seconds: Some(300) };
    assert_eq!(server.cache.flash_limits(), Some(limits));
    assert_bytes(&server.talk(b"extstore item_age 4294967295\r\n"), b"OK\r\n");
    settings(512, u32::MAX, 60);
    let unchanged = "extstore recache_rate 5\r\nextstore compact_under 1\r\nextstore drop_under 1\r\n\
                     extstore max_sleep 9\r\nextstore max_frag 0.5\r\nextstore drop_unread 1\r\nextstore free_memchunks 1 2\r\n";
    assert_bytes(&server.talk(unchanged.as_bytes()), &b"OK\r\n".repeat(7));
    let bad: &[u8] = b"extstore\r\nextstore item_size\r\nextstore item_size x\r\nextstore item_size -1\r\n\
                       extstore frob 1\r\nextstore max_frag x\r\nextstore free_memchunks 1\r\n";
    assert_bytes(&server.talk(bad), &b"CLIENT_ERROR bad command line format\r\n".repeat(7));
    settings(512, u32::MAX, 60);
}

#[test]
fn without_flash_extstore_changes_nothing() {
    let server = TestServer::new();
    assert_bytes(&server.talk(b"extstore item_size 512\r\n"), b"OK\r\n");
    assert!(!String::from_utf8(server.talk(b"stats settings\r\n")).expect("text").contains("ext_item_size"));
}

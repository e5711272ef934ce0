//! The limits of flash under memcached's names.

use crate::common::flash_server::{FlashServer, objects};
use crate::common::{TestServer, assert_bytes, hit};
use ebbtide::memcached::{FlashLimits, FlashPromotion};

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
    let unchanged = "extstore compact_under 1\r\nextstore drop_under 1\r\nextstore max_sleep 9\r\n\
                     extstore max_frag 0.5\r\nextstore drop_unread 1\r\nextstore free_memchunks 1 2\r\n";
    assert_bytes(&server.talk(unchanged.as_bytes()), &b"OK\r\n".repeat(6));
    let bad: &[u8] = b"extstore\r\nextstore item_size\r\nextstore item_size x\r\nextstore item_size -1\r\n\
                       extstore frob 1\r\nextstore max_frag x\r\nextstore free_memchunks 1\r\n";
    assert_bytes(&server.talk(bad), &b"CLIENT_ERROR bad command line format\r\n".repeat(7));
    settings(512, u32::MAX, 60);
}

#[test]
fn extstore_changes_which_hits_come_back() {
    let (first, second) = (objects("first", 20, 3000), objects("second", 20, 3000));
    let all = [&first[..], &second].concat();
    let FlashServer { server, folder: _folder } = FlashServer::with_promotion(&all, FlashPromotion::Never);
    let set_rate = |rate: u32| {
        assert_bytes(&server.talk(format!("extstore recache_rate {rate}\r\n").as_bytes()), b"OK\r\n");
        let settings = String::from_utf8(server.talk(b"stats settings\r\n")).expect("text");
        assert!(settings.contains(&format!("STAT ext_recache_rate {rate}\r\n")), "{settings}");
    };
    let get_twice = |objects: &[(String, Vec<u8>)]| {
        for (key, value) in objects.iter().flat_map(|object| [object; 2]) {
            let expected = [hit(key, value), b"END\r\n".to_vec()].concat();
            assert_bytes(&server.talk(format!("get {key}\r\n").as_bytes()), &expected);
        }
        objects.iter().filter(|(key, _)| server.cache.peek(key.as_bytes()).is_hit()).count()
    };
    assert_eq!(get_twice(&first), 0, "none comes back at the start");
    set_rate(1);
    // While the device is behind, hits are answered and stay on flash.
    server.wait_for("their return to memory", || get_twice(&first) == first.len());
    set_rate(0);
    assert_eq!(get_twice(&second), 0);
    set_rate(4_000_000_000);
    assert!(get_twice(&second) <= 1, "the first second hit");
}

#[test]
fn without_flash_extstore_changes_nothing() {
    let server = TestServer::new();
    assert_bytes(&server.talk(b"extstore item_size 512\r\nextstore recache_rate 5\r\n"), b"OK\r\nOK\r\n");
    assert!(!String::from_utf8(server.talk(b"stats settings\r\n")).expect("text").contains("ext_item_size"));
}

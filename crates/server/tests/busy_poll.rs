//! Workers that ask for news instead of sleeping: when they do, and that they miss nothing.

mod common;

use common::below::{Below, objects};
use common::{PATIENCE, TestServer, assert_bytes, hit, options, read_exactly};
use ebbtide::FlashPromotion;
use ebbtide_server::{Admin, BusyPoll, ServerOptions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

const ASKED: &str = "ebbtide_busy_poll_seconds_total";

fn polling(busy_poll: BusyPoll) -> ServerOptions {
    let admin = Admin { address: (Ipv4Addr::LOCALHOST, 0).into(), required: true };
    ServerOptions { busy_poll, admin: Some(admin), threads: 1, ..options() }
}

/// Gets of these by as many clients, each of which waits for its answer before it asks for the next; `rounds` of all.
fn get_all(server: &TestServer, objects: &[(String, Vec<u8>)], clients: usize, rounds: usize) {
    thread::scope(|scope| {
        for client in 0..clients {
            let mut stream = server.connect();
            scope.spawn(move || {
                for number in 0..rounds * objects.len() / clients {
                    let (key, value) = &objects[(client + number * 7) % objects.len()];
                    stream.write_all(format!("get {key}\r\n").as_bytes()).expect("a write");
                    let expected = [hit(key, value), b"END\r\n".to_vec()].concat();
                    assert_bytes(&read_exactly(&mut stream, expected.len()), &expected);
                }
            });
        }
    });
}

#[test]
fn reads_of_many_clients_are_answered() {
    let below = objects("key", 300, 4000);
    let Below { server, folder: _folder } = Below::with(&below, FlashPromotion::Never, polling(BusyPoll::Always));
    for clients in [16, 2, 1, 5] {
        get_all(&server, &below, clients, 20);
    }
    let flash = server.cache.flash_stats().expect("flash");
    assert_eq!(flash.served, 4 * 20 * 300);
}

#[test]
fn auto_asks_while_it_reads_flash() {
    let below = objects("key", 50, 4000);
    let Below { server, folder: _folder } = Below::with(&below, FlashPromotion::Never, polling(BusyPoll::Auto));
    let deadline = Instant::now() + 2 * PATIENCE;
    while server.metric(ASKED) == 0.0 {
        assert!(Instant::now() < deadline, "it does not ask");
        get_all(&server, &below, 1, 10);
    }
    // One who has nothing to do sleeps.
    thread::sleep(Duration::from_millis(50));
    let before = server.metric(ASKED);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(server.metric(ASKED), before);
}

#[test]
fn requests_for_memory_are_asked_for_only_if_told() {
    for (busy_poll, asks) in [(BusyPoll::Auto, false), (BusyPoll::Never, false), (BusyPoll::Always, true)] {
        let server = TestServer::with(polling(busy_poll));
        let near = objects("near", 10, 100);
        for (key, value) in &near {
            server.cache.insert(key.as_bytes(), value).apply().expect("stored");
        }
        let deadline = Instant::now() + 2 * PATIENCE;
        get_all(&server, &near, 1, 200);
        while asks && server.metric(ASKED) == 0.0 {
            assert!(Instant::now() < deadline, "it does not ask");
            get_all(&server, &near, 1, 200);
        }
        assert_eq!(server.metric(ASKED) > 0.0, asks, "{busy_poll:?}");
    }
}

#[test]
fn more_workers_than_processors_sleep() {
    let processors = thread::available_parallelism().expect("a count").get();
    let server = TestServer::with(ServerOptions { threads: processors + 1, ..polling(BusyPoll::Always) });
    let near = objects("near", 10, 100);
    for (key, value) in &near {
        server.cache.insert(key.as_bytes(), value).apply().expect("stored");
    }
    get_all(&server, &near, 1, 200);
    assert_eq!(server.metric(ASKED), 0.0);
}

//! A server with objects on flash.

use super::{PATIENCE, TestServer, options, value};
use ebbtide::memcached::{ByteSize, Cache, FlashOptions, FlashPromotion, FlashReads, Policy};
use ebbtide_server::{Listen, ServerOptions};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Pause after every few writes, so that every device keeps up.
const PACE: Duration = Duration::from_millis(5);

pub struct FlashServer {
    pub server: TestServer,
    /// Gone after the server.
    pub folder: tempfile::TempDir,
}

impl FlashServer {
    /// A server that has these on flash only. It also listens on `socket` in the folder.
    pub fn new(objects: &[(String, Vec<u8>)]) -> Self {
        Self::with_promotion(objects, FlashPromotion::Always)
    }

    pub fn with_promotion(objects: &[(String, Vec<u8>)], promotion: FlashPromotion) -> Self {
        Self::with(objects, promotion, options())
    }

    /// The server has one worker.
    pub fn with(objects: &[(String, Vec<u8>)], promotion: FlashPromotion, options: ServerOptions) -> Self {
        Self::of_size(ByteSize::mib(8), objects, promotion, options)
    }

    /// With sixteen times as much flash as memory.
    pub fn of_size(
        memory: ByteSize,
        objects: &[(String, Vec<u8>)],
        promotion: FlashPromotion,
        options: ServerOptions,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // No object is dropped for being alone in its page.
        let flash_options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
        // Objects are evicted in the order in which they were stored.
        let builder = Cache::builder().memory(memory).max_value(ByteSize::mib(1)).policy(Policy::Fifo);
        let builder = builder
            .flash(folder.path().join("flash"), ByteSize::bytes(16 * memory.as_bytes()))
            .flash_options(flash_options);
        // A slow device delays evicted objects, and loses none.
        let builder = builder.flash_promotion(promotion).flash_demotion_wait(PATIENCE);
        let cache = builder.build().expect("a cache");
        // They fill memory twice.
        let fillers = memory.as_bytes() / 2000;
        put_on_flash(&cache, objects, fillers as u32);
        let socket = Listen::Unix { path: folder.path().join("socket"), mode: 0o600 };
        let listeners = options.listeners.into_iter().chain([socket]).collect();
        let server = TestServer::around(cache, ServerOptions { threads: 1, listeners, ..options });
        Self { server, folder }
    }
}

/// Stores the objects, and fillers until memory has none of them; repeats it for objects that flash dropped.
fn put_on_flash(cache: &Cache, objects: &[(String, Vec<u8>)], fillers: u32) {
    let deadline = Instant::now() + 2 * PATIENCE;
    for round in 0.. {
        let missing: Vec<_> = objects.iter().filter(|(key, _)| !is_on_flash_only(cache, key)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{} do not get to flash: {:?}", missing.len(), cache.flash_stats());
        for (key, value) in missing {
            cache.delete(key.as_bytes());
            cache.insert(key.as_bytes(), value).apply().expect("stored");
        }
        for number in 0..fillers {
            cache.insert(format!("filler{round} {number}").as_bytes(), &[1; 4000]).apply().expect("stored");
            if number.is_multiple_of(20) {
                std::thread::sleep(PACE);
            }
        }
    }
}

/// Reads the first of these keys from flash, and of the keys behind as many as there are permits for.
pub fn read(cache: &Cache, keys: &[&[u8]]) -> FlashReads {
    let mut reads = FlashReads::default();
    if let Some(probe) = cache.probe_flash(&reads, keys[0]) {
        let (sender, receiver) = channel();
        cache.prefetch(&mut reads, probe, keys, Box::new(move || _ = sender.send(())));
        while !reads.collect() {
            receiver.recv().expect("the reads end");
        }
    }
    reads
}

/// Whether flash has it, and memory has not.
pub fn is_on_flash_only(cache: &Cache, key: &str) -> bool {
    !cache.peek(key.as_bytes()).is_hit() && read(cache, &[key.as_bytes()]).found() == 1
}

pub fn objects(name: &str, count: usize, bytes: usize) -> Vec<(String, Vec<u8>)> {
    (0..count).map(|number| (format!("{name}{number}"), value(bytes + number))).collect()
}

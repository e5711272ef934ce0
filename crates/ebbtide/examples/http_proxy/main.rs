//! A caching HTTP proxy before one origin, on memory and flash.
//!
//! `cargo run --release --example http_proxy -- --origin http://127.0.0.1:8000 --listen 127.0.0.1:8080 --memory 1g
//! --flash /var/cache/proxy:64g --memory-file /dev/shm/proxy.cache`
//!
//! The TTL of an object is the `max-age` of its response. `docs/http-proxy.md` says what is cached, and how.

mod proxy;

use ebbtide::{ByteSize, Cache};
use proxy::{Proxy, Stop};
use std::error::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The arguments of the command line.
struct Flags {
    listen: String,
    origin: String,
    memory: ByteSize,
    flash: Option<(String, ByteSize)>,
    memory_file: Option<String>,
}

const USAGE: &str =
    "http_proxy --origin URL [--listen HOST:PORT] [--memory SIZE] [--flash PATH:SIZE] [--memory-file PATH]";

impl Flags {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut flags = Self {
            listen: "127.0.0.1:8080".to_owned(),
            origin: String::new(),
            memory: ByteSize::mib(256),
            flash: None,
            memory_file: None,
        };
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} has no value: {USAGE}"))?;
            match flag.as_str() {
                "--listen" => flags.listen = value,
                "--origin" => flags.origin = value,
                "--memory" => flags.memory = value.parse()?,
                "--memory-file" => flags.memory_file = Some(value),
                "--flash" => {
                    let (path, size) = value.rsplit_once(':').ok_or("--flash is PATH:SIZE, as in /var/cache/f:64g")?;
                    flags.flash = Some((path.to_owned(), size.parse()?));
                }
                _ => return Err(format!("{flag} is unknown: {USAGE}").into()),
            }
        }
        if flags.origin.is_empty() {
            return Err(format!("--origin is missing: {USAGE}").into());
        }
        Ok(flags)
    }

    fn cache(&self) -> Result<Cache, ebbtide::Error> {
        let mut builder = Cache::builder().memory(self.memory);
        if let Some((path, size)) = &self.flash {
            builder = builder.flash(path, *size);
        }
        if let Some(path) = &self.memory_file {
            builder = builder.memory_file(path);
        }
        builder.build()
    }

    /// An object may take an eighth of the cache: a longer one would evict too much.
    fn max_object_bytes(&self) -> u64 {
        (self.memory.as_bytes() + self.flash.as_ref().map_or(0, |(_, size)| size.as_bytes())) / 8
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse(std::env::args().skip(1))?;
    let cache = flags.cache()?;
    let proxy = Proxy::new(cache.clone(), &flags.origin, flags.max_object_bytes())?;
    let listener = TcpListener::bind(&flags.listen).await?;
    println!("http_proxy: {} caches {}", listener.local_addr()?, flags.origin);
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = Stop::default();
    let serving = tokio::spawn(proxy.serve(listener, stop.clone()));
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    stop.stop();
    serving.await?;
    println!("{}", cache.stats());
    // The next start finds the objects on flash and in the memory file.
    tokio::task::spawn_blocking(move || cache.close()).await??;
    Ok(())
}

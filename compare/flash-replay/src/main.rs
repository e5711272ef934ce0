//! Replays a trace through peers that put flash below their memory, as `ebbtide replay` does through ebbtide: a get
//! that misses is followed by a set, a set stores without counting, a delete deletes. TTLs are left out: foyer has
//! none, and the time of a running memcached is the clock's. Prints gets, misses and, where the peer is in this
//! process, the bytes that it wrote to its device.
//!
//! Requests run one after the other. Peers drop objects that arrive faster than their device writes, which is not a
//! property of the trace, so the replay waits for each: it empties foyer's queue every few MiB, and limits memcached's
//! bytes per second.

mod foyer;
mod memcached;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ebbtide_flash_replay::{Failure, exit};
use ebbtide_lab::keys::KeyBuffer;
use ebbtide_lab::trace::{Op, TraceReader};

/// Largest object that every system accepts, in bytes: the default of ebbtide and memcached.
const LARGEST_BYTES: u32 = 1 << 20;

/// A look-aside cache.
trait Cache {
    fn get(&mut self, key: &[u8]) -> Result<bool, Failure>;
    fn set(&mut self, key: &[u8], value_bytes: usize) -> Result<(), Failure>;
    fn delete(&mut self, key: &[u8]) -> Result<(), Failure>;
    /// Bytes written to the device, if the cache counts them.
    fn written_bytes(&mut self) -> Option<usize>;
}

#[derive(Parser)]
struct Args {
    /// Trace file, as of `ebbtide replay`
    trace: PathBuf,
    #[command(subcommand)]
    system: System,
}

#[derive(Subcommand)]
enum System {
    /// A memcached that runs on this machine
    Memcached(memcached::Args),
    /// foyer's hybrid cache, in this process
    Foyer(foyer::Args),
    /// RocksDB, in this process
    #[cfg(feature = "rocksdb")]
    Rocksdb(rocksdb::Args),
}

fn main() -> ExitCode {
    exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Failure> {
    let mut cache: Box<dyn Cache> = match &args.system {
        System::Memcached(args) => Box::new(memcached::Memcached::connect(args)?),
        System::Foyer(args) => Box::new(foyer::Foyer::open(args)?),
        #[cfg(feature = "rocksdb")]
        System::Rocksdb(args) => Box::new(rocksdb::RocksDb::open(args)?),
    };
    let (gets, misses) = replay(&mut TraceReader::open(&args.trace, None)?, &mut *cache)?;
    let written = cache.written_bytes().map_or("-".to_owned(), |bytes| bytes.to_string());
    println!("{gets},{misses},{written}");
    Ok(())
}

/// Gets, and those that missed.
fn replay(trace: &mut TraceReader, cache: &mut dyn Cache) -> Result<(u64, u64), Failure> {
    let mut key = KeyBuffer::default();
    let (mut gets, mut misses) = (0, 0);
    while let Some(request) = trace.next_request()? {
        let key = key.write(request.key, request.key_size);
        let fits = request.value_size + request.key_size <= LARGEST_BYTES;
        let bytes = request.value_size as usize;
        match request.op {
            Op::Get | Op::Gets => {
                gets += 1;
                if !cache.get(key)? {
                    misses += 1;
                    if fits {
                        cache.set(key, bytes)?;
                    }
                }
            }
            Op::Delete => cache.delete(key)?,
            _ if fits => cache.set(key, bytes)?,
            _ => cache.delete(key)?,
        }
    }
    Ok((gets, misses))
}

//! foyer's hybrid cache with its block engine on one file. Its memory is charged keys, values and a few bytes for each
//! object, but not its buffers, its index of flash and the rest of its entries: it holds more than its memory allows.

use std::path::PathBuf;

use ::foyer::{
    BlockEngineConfig, DeviceBuilder, EvictionConfig, FileDeviceBuilder, HybridCache, HybridCacheBuilder, LfuConfig,
    LruConfig, S3FifoConfig,
};
use clap::ValueEnum;
use tokio::runtime::{Builder, Runtime};

use crate::{Cache, Failure};

/// Charged for each object in memory beside key and value.
const OBJECT_BYTES: usize = 24;
/// Blocks that flash has at least, if the largest object allows.
const BLOCKS: usize = 64;
const MIN_BLOCK_BYTES: usize = 256 << 10;
const MAX_BLOCK_BYTES: usize = 16 << 20;
/// Bytes after which its queue is emptied.
const QUEUE_BYTES: usize = 4 << 20;

#[derive(clap::Args)]
pub struct Args {
    /// Bytes of memory
    #[arg(long)]
    memory: usize,
    /// Bytes of flash
    #[arg(long)]
    flash: usize,
    /// The file, which is made
    #[arg(long)]
    path: PathBuf,
    /// The longest value of the trace
    #[arg(long, default_value_t = 1 << 20)]
    largest: usize,
    /// Eviction policy of memory
    #[arg(long, default_value = "lfu")]
    eviction: Eviction,
}

#[derive(Clone, Copy, ValueEnum)]
enum Eviction {
    /// W-TinyLFU, foyer's default
    Lfu,
    S3fifo,
    Lru,
}

pub struct Foyer {
    runtime: Runtime,
    cache: HybridCache<Vec<u8>, Vec<u8>>,
    queued: usize,
}

impl Foyer {
    pub fn open(args: &Args) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let eviction: EvictionConfig = match args.eviction {
            Eviction::Lfu => LfuConfig::default().into(),
            Eviction::S3fifo => S3FifoConfig::default().into(),
            Eviction::Lru => LruConfig::default().into(),
        };
        let largest = (args.largest + (16 << 10)).next_power_of_two();
        let block_bytes = (args.flash / BLOCKS).clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES).max(largest);
        let cache = runtime.block_on(async {
            let device = FileDeviceBuilder::new(&args.path).with_capacity(args.flash / 4096 * 4096).build()?;
            HybridCacheBuilder::new()
                .with_flush_on_close(false)
                .memory(args.memory)
                .with_shards(1)
                .with_eviction_config(eviction)
                .with_weighter(|key: &Vec<u8>, value: &Vec<u8>| key.len() + value.len() + OBJECT_BYTES)
                .storage()
                .with_engine_config(BlockEngineConfig::new(device).with_block_size(block_bytes))
                .build()
                .await
        })?;
        Ok(Self { runtime, cache, queued: 0 })
    }

    /// Counts bytes inserted into memory, which evict as many to flash, and waits when `QUEUE_BYTES` are queued.
    fn came(&mut self, bytes: usize) {
        self.queued += bytes;
        if self.queued > QUEUE_BYTES {
            self.queued = 0;
            self.runtime.block_on(self.cache.storage().wait());
        }
    }
}

impl Cache for Foyer {
    fn get(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let found = self.runtime.block_on(async { self.cache.get(&key.to_vec()).await })?;
        if let Some(entry) = &found {
            self.came(entry.value().len());
        }
        Ok(found.is_some())
    }

    fn set(&mut self, key: &[u8], value_bytes: usize) -> Result<(), Failure> {
        drop(self.cache.insert(key.to_vec(), vec![b'.'; value_bytes]));
        self.came(value_bytes);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.cache.remove(&key.to_vec());
        Ok(())
    }

    fn written_bytes(&mut self) -> Option<usize> {
        self.runtime.block_on(self.cache.storage().wait());
        Some(self.cache.statistics().disk_write_bytes())
    }
}

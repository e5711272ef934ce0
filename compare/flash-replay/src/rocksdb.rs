//! RocksDB as a look-aside cache of memory and flash (CacheLib, section 5.1), without a log of writes and with direct
//! I/O. Its memory is that of two write buffers and of a cache of blocks, which holds indexes and filters, too.
//!
//! By FIFO compaction it drops its oldest file when files exceed flash. Levelled compaction bounds nothing, and a
//! deletion only makes a record that is removed later; so each value begins with the number of its set, compaction
//! removes what is older than a window, and the window follows the size of the files. A set that finds flash full is
//! refused, as such a cache has no other way.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ::rocksdb::compaction_filter::Decision;
use ::rocksdb::properties::TOTAL_SST_FILES_SIZE;
use ::rocksdb::{
    BlockBasedOptions, Cache as BlockCache, DB, DBCompactionStyle, DBCompressionType, FifoCompactOptions, Options,
    WriteOptions,
};
use clap::ValueEnum;

use crate::{Cache, Failure};

/// Of the memory, each of the two write buffers.
const BUFFER_SHARE: usize = 16;
const MIN_BUFFER_BYTES: usize = 256 << 10;
/// Bits of a filter per key: one lookup in a hundred of an absent key reads.
const FILTER_BITS: f64 = 10.0;
/// Number of sets between two checks of the size of the files.
const LOOK_SETS: u64 = 256;
/// Of flash, from which on levelled compaction removes more: what is removed next is still there.
const FULL_SHARE: f64 = 0.7;
const NUMBER_BYTES: usize = 8;

#[derive(clap::Args)]
pub struct Args {
    /// Bytes of memory
    #[arg(long)]
    memory: usize,
    /// Bytes of flash
    #[arg(long)]
    flash: usize,
    /// The folder, which is made
    #[arg(long)]
    path: PathBuf,
    /// How files are merged
    #[arg(long)]
    compaction: Compaction,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Compaction {
    Fifo,
    Leveled,
}

pub struct RocksDb {
    db: DB,
    options: Options,
    write: WriteOptions,
    path: PathBuf,
    compaction: Compaction,
    flash: u64,
    sets: u64,
    /// The number of the oldest set that compaction keeps.
    oldest: Arc<AtomicU64>,
    is_full: bool,
    refused: u64,
}

impl RocksDb {
    pub fn open(args: &Args) -> Result<Self, Failure> {
        let oldest = Arc::new(AtomicU64::new(0));
        let options = options(args, &oldest);
        let db = DB::open(&options, &args.path)?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(Self {
            db,
            options,
            write,
            path: args.path.clone(),
            compaction: args.compaction,
            flash: args.flash as u64,
            sets: 0,
            oldest,
            is_full: false,
            refused: 0,
        })
    }

    fn look_at_size(&mut self) -> Result<(), Failure> {
        let size = self.db.property_int_value(TOTAL_SST_FILES_SIZE)?.unwrap_or(0);
        self.is_full = size > self.flash;
        let excess = size as f64 / (self.flash as f64 * FULL_SHARE) - 1.0;
        if excess > 0.0 {
            let oldest = self.oldest.load(Relaxed);
            let removed = (self.sets - oldest) as f64 * excess.min(1.0) / 4.0;
            self.oldest.store(oldest + removed as u64, Relaxed);
        }
        Ok(())
    }
}

fn options(args: &Args, oldest: &Arc<AtomicU64>) -> Options {
    let buffer = (args.memory / BUFFER_SHARE).max(MIN_BUFFER_BYTES);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&BlockCache::new_lru_cache(args.memory.saturating_sub(2 * buffer)));
    table.set_cache_index_and_filter_blocks(true);
    table.set_bloom_filter(FILTER_BITS, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(buffer);
    options.set_max_write_buffer_number(2);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.enable_statistics();
    match args.compaction {
        Compaction::Fifo => {
            let mut fifo = FifoCompactOptions::default();
            fifo.set_max_table_files_size(args.flash as u64);
            options.set_compaction_style(DBCompactionStyle::Fifo);
            options.set_fifo_compaction_options(&fifo);
        }
        Compaction::Leveled => {
            let oldest = Arc::clone(oldest);
            options.set_target_file_size_base(buffer as u64);
            options.set_max_bytes_for_level_base(4 * buffer as u64);
            options.set_level_compaction_dynamic_level_bytes(true);
            options.set_compaction_filter("window", move |_level: u32, _key: &[u8], value: &[u8]| {
                if number(value) < oldest.load(Relaxed) { Decision::Remove } else { Decision::Keep }
            });
        }
    }
    options
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk::<NUMBER_BYTES>().expect("each value begins with its number"))
}

impl Cache for RocksDb {
    fn get(&mut self, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.db.get_pinned(key)?.is_some())
    }

    fn set(&mut self, key: &[u8], value_bytes: usize) -> Result<(), Failure> {
        self.sets += 1;
        if self.compaction == Compaction::Leveled && self.sets.is_multiple_of(LOOK_SETS) {
            self.look_at_size()?;
        }
        if self.is_full {
            self.refused += 1;
            return self.delete(key);
        }
        let mut value = vec![b'.'; value_bytes.max(NUMBER_BYTES)];
        value[..NUMBER_BYTES].copy_from_slice(&self.sets.to_le_bytes());
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn written_bytes(&mut self) -> Option<usize> {
        let statistics = self.options.get_statistics()?;
        let written = |name| {
            let line = statistics.lines().find(|line| line.starts_with(name))?;
            line.rsplit(' ').next()?.parse::<usize>().ok()
        };
        Some(written("rocksdb.flush.write.bytes")? + written("rocksdb.compact.write.bytes")?)
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        if self.refused > 0 {
            eprintln!("{} of {} sets refused", self.refused, self.sets);
        }
        self.db.cancel_all_background_work(true);
        let _ = fs::remove_dir_all(&self.path);
    }
}

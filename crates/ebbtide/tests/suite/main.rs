//! The tests of the library's interface, in one binary: a binary for each file would be linked for each. Beside this
//! one are those that start processes, or count the memory and the threads of their own.

#[path = "../common/mod.rs"]
mod common;

mod async_lookups;
mod close;
mod compact_pools;
mod controller;
mod cost;
mod drain;
mod eviction_listener;
mod expiry;
mod flash;
mod flash_changes;
mod flash_options;
mod flash_statistics;
mod idle_demotion;
mod kept_tokens;
mod library;
mod listener_close;
mod load_options;
mod loading;
mod long_values;
mod memory;
mod memory_file;
mod meta_flags;
mod model;
mod moka_tasks;
mod pool_controller;
mod pools;
mod pools_flash;
mod profiles;
mod removal;
mod remove_if;
mod restart;
mod scan;
mod stats;
mod token_restart;
mod tokens;
mod ttl;
mod typed;
#[cfg(feature = "zerocopy")]
mod zero_copy;

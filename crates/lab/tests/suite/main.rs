//! The tests of the commands, in one binary: a binary for each file would be linked for each.

mod bench;
mod bench_network;
mod cachebench;
mod cachebench_keys;
mod generate;
mod generate_from_files;
mod line;
mod pooled;
mod replay;
mod replay_auto;
mod replay_pools;
mod traces;

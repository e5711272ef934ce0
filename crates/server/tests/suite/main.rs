//! The tests of the server's interface, in one binary: a binary for each file would be linked for each. Beside this
//! one are those that count the files, the threads and the processor time of their process.

#[path = "../common/mod.rs"]
mod common;

mod admin;
mod auth;
mod binary;
mod browse;
mod clock;
mod commands;
mod detail;
mod dump;
mod extstore;
mod flash;
mod flash_model;
mod flash_tokens;
mod limits;
mod memory_wait;
mod meta;
mod presence;
mod reload;
mod shutdown;
mod statistics;
mod stats;
mod streams;
mod values;
mod watch;

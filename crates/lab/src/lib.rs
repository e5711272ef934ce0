//! The laboratory of Ebbtide: it reads traces of real caches, replays them through the engine, and drives the engine
//! or any memcached server with synthetic load.
//!
//! | module | is |
//! |---|---|
//! | [`trace`] | streaming readers of the trace formats |
//! | [`replay`] | `ebbtide replay`: a trace through the engine, in the trace's own time |
//! | [`capture`] | `ebbtide capture`: a trace of a live server |
//! | [`advise`] | `ebbtide advise`: how much DRAM and flash a workload deserves |
//! | [`mrc`] | `ebbtide mrc`: miss ratios by memory |
//! | [`trace_command`] | `ebbtide trace`: properties of a workload, and conversions of traces |
//! | [`portrait`] | properties of a workload |
//! | [`generate`] | `ebbtide generate`: synthetic workloads as traces |
//! | [`workload`] | popularity and size distributions, by seed |
//! | [`bench`] | `ebbtide bench`: load on the engine in process, or on a server |
//! | [`top`] | `ebbtide top`: a live server in the terminal |
//! | [`doctor`] | `ebbtide doctor`: settings of this machine that a server should change |
//! | [`flash`] | flash below the engine in process, for `replay` and `bench` |
//! | [`keys`] | keys of a given length from numbers |
#![forbid(unsafe_code)]

pub mod advise;
pub mod bench;
pub mod capture;
mod conclusion;
pub mod doctor;
mod error;
pub mod flash;
mod format;
pub mod generate;
pub mod keys;
mod locale;
mod memory_size;
pub mod mrc;
mod portrait;
mod progress;
pub mod reference;
pub mod replay;
mod report;
mod store;
pub mod top;
pub mod trace;
pub mod trace_command;
mod warmup;
pub mod workload;

pub use error::Error;

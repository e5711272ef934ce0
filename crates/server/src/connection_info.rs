//! A connection as other threads see it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What others may know of a connection.
pub struct ConnectionInfo {
    pub peer: String,
    /// Which of `Shared::listeners` it came through; `None` for a socket of UDP.
    pub listener: Option<usize>,
    /// When it last ended a command, sent a part of a value, or took a part of an answer, in milliseconds since the
    /// server started.
    pub active_ms: AtomicU64,
    pub state: AtomicU8,
}

/// What a connection waits for, as memcached names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionState {
    Command,
    Value,
    Drain,
    Flash,
    Memory,
}

impl ConnectionInfo {
    pub fn state_name(&self) -> &'static str {
        match self.state.load(Ordering::Relaxed) {
            state if state == ConnectionState::Value as u8 => "conn_nread",
            state if state == ConnectionState::Drain as u8 => "conn_mwrite",
            state if state == ConnectionState::Flash as u8 => "conn_io_queue",
            state if state == ConnectionState::Memory as u8 => "conn_io_pending",
            _ => "conn_read",
        }
    }
}

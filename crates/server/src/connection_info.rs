//! A connection as other threads see it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// State of a connection that other threads read.
pub struct ConnectionInfo {
    pub peer: String,
    /// Index in `Shared::listeners`; `None` for a UDP socket.
    pub listener: Option<usize>,
    /// Time of its last activity (end of a command, part of a value received, part of an answer sent), in milliseconds
    /// since the start of the server.
    pub active_ms: AtomicU64,
    pub state: AtomicU8,
}

/// State of a connection, by memcached's names.
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

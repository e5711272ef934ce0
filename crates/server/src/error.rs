use std::io;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("{path} exists and is not a socket")]
    NotASocket { path: String },
    #[error("{option} = {value}: {reason}")]
    Option { option: &'static str, value: String, reason: &'static str },
    #[error(
        "{needed} open files are needed for max_connections (-c), and the limit is {allowed}; raise it (ulimit -n) or ask for fewer connections"
    )]
    FileLimit { needed: u64, allowed: u64 },
    #[error("failed to set up event polling: {0}")]
    Poll(io::Error),
    #[error("failed to start a thread: {0}")]
    Thread(io::Error),
}

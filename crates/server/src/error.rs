use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("failed to bind UDP {address}: {source}")]
    ListenUdp { address: SocketAddr, source: io::Error },
    #[error("failed to listen for admin HTTP on {address}: {source}")]
    Admin { address: SocketAddr, source: io::Error },
    #[error("failed to open the history file {}: {source}", path.display())]
    History { path: PathBuf, source: io::Error },
    #[error("{path} exists and is not a socket")]
    NotASocket { path: String },
    #[error("{option} = {value}: {reason}")]
    Option { option: &'static str, value: String, reason: &'static str },
    #[error(
        "{needed} open files are needed for max_connections (-c), and the limit is {allowed}; increase it (ulimit -n) or ask for fewer connections"
    )]
    FileLimit { needed: u64, allowed: u64 },
    #[error("Error loading the {what}: {path} : {reason}")]
    Certificate { what: &'static str, path: String, reason: String },
    #[error("{}; the file stays in use as it was when it was last read", joined(.0))]
    KeptFiles(Vec<Error>),
    #[error("{}", joined(.0))]
    Several(Vec<Error>),
    #[error(
        "Error setting the provided cipher(s): {list} : none of them is spoken; choose from {known}, or leave ssl_ciphers out for all"
    )]
    Ciphers { list: String, known: String },
    #[error(
        "certificates of clients are required (ssl_verify_mode), and nothing says who signs them; give ssl_ca_cert=<file>"
    )]
    NoCaCertificate,
    #[error("Could not open authfile [{}] for reading, error {source}; give a file of user:password lines", path.display())]
    UserFileRead { path: PathBuf, source: io::Error },
    #[error("Authfile [{}] has a malformed entry. Line {line}: {reason}", path.display())]
    UserFileEntry { path: PathBuf, line: usize, reason: &'static str },
    #[error("pool `{name}`: {reason}")]
    Pool { name: String, reason: String },
    #[error("the cache cannot be served: {0}")]
    Cache(ebbtide::Error),
    #[error("failed to set up event polling: {0}")]
    Poll(io::Error),
    #[error("failed to start a thread: {0}")]
    Thread(io::Error),
}

fn joined(errors: &[Error]) -> String {
    errors.iter().map(Error::to_string).collect::<Vec<_>>().join("; ")
}

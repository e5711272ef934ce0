//! TLS: the certificates that a server shows, and the streams that they protect.
//!
//! | file | holds |
//! |---|---|
//! | `options` | what `-Z` and `-o ssl_...` set |
//! | `files` | the files, read at the start and again |
//! | `key` | private keys in all their formats |
//! | `config` | files into the configuration of handshakes |
//! | `ciphers` | OpenSSL's names for cipher suites |
//! | `stream` | a connection: bytes in, records out, and the other way round |

mod ciphers;
mod config;
mod files;
mod key;
mod options;
mod stream;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};

use crate::Error;
use crate::sync::lock;

use files::TlsFiles;

pub use options::{ClientCertificates, KeyFormat, TlsOptions, TlsVersion};
pub use stream::TlsStream;

/// The certificates in use. A refresh replaces them for later connections, or keeps them if a file has an error.
pub struct Certificates {
    options: TlsOptions,
    current: Mutex<Loaded>,
}

struct Loaded {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    at: Instant,
}

impl Loaded {
    fn new(options: &TlsOptions, files: TlsFiles) -> Result<Self, Error> {
        Ok(Self { config: config::build(options, &files)?, files, at: Instant::now() })
    }
}

impl Certificates {
    /// Reads the files.
    pub fn load(options: &TlsOptions) -> Result<Self, Error> {
        let loaded = Loaded::new(options, TlsFiles::read(options)?)?;
        Ok(Self { options: options.clone(), current: Mutex::new(loaded) })
    }

    /// Reads the files again. After `KeptFiles` the readable files are in use, and the others keep their old content.
    pub fn refresh(&self) -> Result<(), Error> {
        let mut current = lock(&self.current);
        let (files, kept) = current.files.reread(&self.options)?;
        *current = Loaded::new(&self.options, files)?;
        match kept.is_empty() {
            true => Ok(()),
            false => Err(Error::KeptFiles(kept)),
        }
    }

    /// Since when these certificates are in use.
    pub fn age(&self) -> Duration {
        lock(&self.current).at.elapsed()
    }

    /// Protects a connection that was accepted; its handshake is done by the first reads.
    pub fn protect(&self, socket: TcpStream) -> Result<TlsStream, rustls::Error> {
        let config = Arc::clone(&lock(&self.current).config);
        let mut session = ServerConnection::new(config)?;
        session.set_buffer_limit(Some(self.options.write_buffer_bytes));
        Ok(TlsStream::new(socket, session))
    }
}

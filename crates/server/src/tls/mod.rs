//! TLS: the certificates that a server shows, and the streams that they protect.
//!
//! | file | holds |
//! |---|---|
//! | `options` | what `-Z` and `-o ssl_...` set |
//! | `config` | files into what a handshake needs |
//! | `ciphers` | OpenSSL's names for cipher suites |
//! | `stream` | a connection: bytes in, records out, and the other way round |

mod ciphers;
mod config;
mod options;
mod stream;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};

use crate::Error;
use crate::shared::lock;

pub use options::{ClientCertificates, KeyFormat, TlsOptions, TlsVersion};
pub use stream::TlsStream;

/// The certificates in use. A refresh replaces them for connections that come later, or leaves them if a file is bad.
pub struct Certificates {
    options: TlsOptions,
    current: Mutex<Loaded>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    at: Instant,
}

impl Certificates {
    /// Reads the files.
    pub fn load(options: &TlsOptions) -> Result<Self, Error> {
        let current = Mutex::new(Loaded { config: config::load(options)?, at: Instant::now() });
        Ok(Self { options: options.clone(), current })
    }

    /// Reads the files once more.
    pub fn refresh(&self) -> Result<(), Error> {
        let config = config::load(&self.options)?;
        *lock(&self.current) = Loaded { config, at: Instant::now() };
        Ok(())
    }

    /// Since when these certificates are in use.
    pub fn age(&self) -> Duration {
        lock(&self.current).at.elapsed()
    }

    /// Protects a connection that was accepted; its handshake is done by whoever reads it.
    pub fn protect(&self, socket: TcpStream) -> Result<TlsStream, rustls::Error> {
        let config = Arc::clone(&lock(&self.current).config);
        let mut session = ServerConnection::new(config)?;
        session.set_buffer_limit(Some(self.options.write_buffer_bytes));
        Ok(TlsStream::new(socket, session))
    }
}

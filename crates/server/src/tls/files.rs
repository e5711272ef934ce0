//! The files of TLS, as last read. Every error names the file, the fault and the remedy.
//!
//! A server that has given up root may not be allowed to read a file again that root has read: then a refresh keeps its
//! old content, takes the other files, and reports it.

use std::fs;
use std::io;
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::key;
use super::options::{KeyFormat, TlsOptions};
use crate::Error;
use crate::reread::check_rereadable;

/// memcached's words for its files.
pub const CHAIN: &str = "certificate chain";
pub const KEY: &str = "key";
pub const CA: &str = "CA certificate";

pub struct TlsFiles {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    /// Authorities that sign the certificates of clients; `None` without a file.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
}

impl TlsFiles {
    pub fn read(options: &TlsOptions) -> Result<Self, Error> {
        Ok(Self {
            chain: bytes_of(CHAIN, &options.chain_cert).and_then(|bytes| chain(options, &bytes))?,
            key: bytes_of(KEY, options.key_path()).and_then(|bytes| key(options, bytes))?,
            authorities: match &options.ca_cert {
                Some(path) => Some(bytes_of(CA, path).and_then(|bytes| certificates(CA, path, &bytes))?),
                None => None,
            },
        })
    }

    /// Reads the files again. Files that this process may no longer read keep their old content and are returned.
    pub fn reread(&self, options: &TlsOptions) -> Result<(Self, Vec<Error>), Error> {
        let mut kept = Vec::new();
        let chain = match still_readable(CHAIN, &options.chain_cert, &mut kept)? {
            Some(bytes) => chain(options, &bytes)?,
            None => self.chain.clone(),
        };
        let key = match still_readable(KEY, options.key_path(), &mut kept)? {
            Some(bytes) => key(options, bytes)?,
            None => self.key.clone_key(),
        };
        let authorities = match &options.ca_cert {
            Some(path) => match still_readable(CA, path, &mut kept)? {
                Some(bytes) => Some(certificates(CA, path, &bytes)?),
                None => self.authorities.clone(),
            },
            None => None,
        };
        Ok((Self { chain, key, authorities }, kept))
    }
}

fn bytes_of(what: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| bad(what, path, error))
}

/// The bytes of a file, unless this process may not read it, which is noted.
fn still_readable(what: &'static str, path: &Path, kept: &mut Vec<Error>) -> Result<Option<Vec<u8>>, Error> {
    match check_rereadable(path).and_then(|()| fs::read(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            kept.push(bad(what, path, error));
            Ok(None)
        }
        Err(error) => Err(bad(what, path, error)),
    }
}

fn chain(options: &TlsOptions, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    certificates(CHAIN, &options.chain_cert, bytes)
}

fn certificates(what: &'static str, path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| bad(what, path, error))?;
    match all.is_empty() {
        true => Err(bad(what, path, "no certificate in it; give a PEM file with BEGIN CERTIFICATE")),
        false => Ok(all),
    }
}

fn key(options: &TlsOptions, bytes: Vec<u8>) -> Result<PrivateKeyDer<'static>, Error> {
    let parsed = match (options.key_format, &options.key) {
        (KeyFormat::Der, Some(_)) => key::from_der(bytes),
        _ => key::from_pem(&bytes),
    };
    parsed.map_err(|reason| bad(KEY, options.key_path(), reason))
}

pub fn bad(what: &'static str, path: &Path, reason: impl ToString) -> Error {
    Error::Certificate { what, path: path.display().to_string(), reason: reason.to_string() }
}

//! From files to a configuration. Every message names the file and what is wrong with it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use super::ciphers;
use super::options::{ClientCertificates, KeyFormat, TlsOptions, TlsVersion};
use crate::Error;

/// Sessions that can be resumed; what was not used for longest gives way.
const SESSIONS: usize = 20_480;
/// TLS 1.3 tickets for each client: one for the next connection, one in case that two are opened at once.
const TICKETS: usize = 2;

/// memcached's words for its files.
const CHAIN: &str = "certificate chain";
const KEY: &str = "key";
const CA: &str = "CA certificate";

pub fn load(options: &TlsOptions) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(provider(options)?);
    let versions: &[_] = match options.min_version {
        TlsVersion::V1_2 => &[&TLS13, &TLS12],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let chain = certificates(CHAIN, &options.chain_cert)?;
    let key = key(options)?;
    let bad_pair = |error: rustls::Error| bad(KEY, options.key.as_deref().unwrap_or(&options.chain_cert), error);
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(bad_pair)?
        .with_client_cert_verifier(verifier(options, provider)?)
        .with_single_cert(chain, key)
        .map_err(bad_pair)?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if options.session_cache {
        config.send_tls13_tickets = TICKETS;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    }
    Ok(Arc::new(config))
}

fn provider(options: &TlsOptions) -> Result<CryptoProvider, Error> {
    let Some(cipher_suites) = ciphers::parse(options.ciphers.as_deref()) else {
        return Err(Error::Ciphers { list: options.ciphers.clone().unwrap_or_default(), known: ciphers::names() });
    };
    Ok(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

fn verifier(options: &TlsOptions, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    if options.client_certificates == ClientCertificates::Ignored {
        // A file that cannot be read is an error even if nothing depends on it, as it is to memcached.
        if let Some(path) = &options.ca_cert {
            certificates(CA, path)?;
        }
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let Some(path) = &options.ca_cert else {
        return Err(Error::NoCaCertificate);
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(CA, path)? {
        roots.add(certificate).map_err(|error| bad(CA, path, error))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if options.client_certificates == ClientCertificates::Requested {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map(|verifier| verifier as _).map_err(|error| bad(CA, path, error))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = fs::read(path).map_err(|error| bad(what, path, error))?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| bad(what, path, error))?;
    match all.is_empty() {
        true => Err(bad(what, path, "no certificate in it; give a PEM file with BEGIN CERTIFICATE")),
        false => Ok(all),
    }
}

fn key(options: &TlsOptions) -> Result<PrivateKeyDer<'static>, Error> {
    let path = options.key.as_deref().unwrap_or(&options.chain_cert);
    let bytes = fs::read(path).map_err(|error| bad(KEY, path, error))?;
    match (options.key_format, &options.key) {
        (KeyFormat::Der, Some(_)) => PrivateKeyDer::try_from(bytes).map_err(|error| bad(KEY, path, error)),
        _ => PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
            PemError::NoItemsFound => bad(
                KEY,
                path,
                "no private key in it; give a PEM file with BEGIN PRIVATE KEY that has no passphrase, or ssl_keyformat=DER",
            ),
            other => bad(KEY, path, other),
        }),
    }
}

fn bad(what: &'static str, path: &Path, reason: impl ToString) -> Error {
    Error::Certificate { what, path: path.display().to_string(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(options: &TlsOptions) -> String {
        load(options).expect_err("a refusal").to_string()
    }

    #[test]
    fn every_refusal_names_the_file_and_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let junk = folder.path().join("junk.pem");
        fs::write(&junk, "junk").unwrap();
        let absent = folder.path().join("absent.pem");
        let named = message(&TlsOptions::new(&absent));
        assert!(named.contains("certificate chain") && named.contains("absent.pem") && named.contains("No such file"));
        let named = message(&TlsOptions::new(&junk));
        assert!(named.contains("junk.pem") && named.contains("no certificate in it"), "{named}");
        let ciphers = TlsOptions { ciphers: Some("FOO".to_owned()), ..TlsOptions::new(&junk) };
        assert!(message(&ciphers).contains("ECDHE-RSA-AES128-GCM-SHA256"));
    }
}

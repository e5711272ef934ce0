//! From files to a configuration.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use super::files::{CA, CHAIN, KEY, TlsFiles, bad};
use super::options::{ClientCertificates, TlsOptions, TlsVersion};
use super::{ciphers, key};
use crate::Error;

/// Maximum number of sessions that can be resumed; a new one replaces the least recently used.
const SESSIONS: usize = 20_480;
/// TLS 1.3 tickets for each client: one for the next connection, one in case that two are opened at once.
const TICKETS: usize = 2;

pub fn build(options: &TlsOptions, files: &TlsFiles) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(provider(options)?);
    let versions: &[_] = match options.min_version {
        TlsVersion::V1_2 => &[&TLS13, &TLS12],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let certified = certified_key(options, files, &provider)?;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| bad(KEY, options.key_path(), error))?
        .with_client_cert_verifier(verifier(options, files, provider)?)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if options.session_cache {
        config.send_tls13_tickets = TICKETS;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    }
    Ok(Arc::new(config))
}

/// The certificate with its key, if they belong together.
fn certified_key(options: &TlsOptions, files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let loaded = provider.key_provider.load_private_key(files.key.clone_key());
    let signing = loaded.map_err(|_| bad(KEY, options.key_path(), key::refusal(&files.key)))?;
    let certified = CertifiedKey::new(files.chain.clone(), signing);
    let matches = match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => true,
        Err(rustls::Error::InconsistentKeys(_)) => false,
        // The library parses no certificate of version 1, but shows one: that its key fits is seen here.
        Err(_) if is_version_1(&files.chain[0]) => {
            let public = certified.key.public_key();
            public.is_none_or(|public| files.chain[0].windows(public.len()).any(|window| window == &*public))
        }
        Err(error) => return Err(bad(CHAIN, &options.chain_cert, error)),
    };
    match matches {
        true => Ok(certified),
        false => Err(bad(
            KEY,
            options.key_path(),
            format!("it is not the key of the first certificate in {}", options.chain_cert.display()),
        )),
    }
}

/// Whether a certificate is X.509 version 1: then its serial number comes first, and no version.
fn is_version_1(certificate: &CertificateDer<'_>) -> bool {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    /// The content of the element at the front.
    fn content(der: &[u8]) -> Option<&[u8]> {
        let [SEQUENCE, length, rest @ ..] = der else { return None };
        rest.get(usize::from(length.checked_sub(0x80).unwrap_or(0))..)
    }
    content(certificate).and_then(content).is_some_and(|fields| fields.first() == Some(&INTEGER))
}

fn provider(options: &TlsOptions) -> Result<CryptoProvider, Error> {
    let Some(cipher_suites) = ciphers::parse(options.ciphers.as_deref()) else {
        return Err(Error::Ciphers { list: options.ciphers.clone().unwrap_or_default(), known: ciphers::names() });
    };
    Ok(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

fn verifier(
    options: &TlsOptions,
    files: &TlsFiles,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let (authorities, path) = match (options.client_certificates, &files.authorities, &options.ca_cert) {
        (ClientCertificates::Ignored, ..) => return Ok(WebPkiClientVerifier::no_client_auth()),
        (_, Some(authorities), Some(path)) => (authorities, path),
        // No certificate could be verified, so none is requested.
        (ClientCertificates::Requested, ..) => return Ok(WebPkiClientVerifier::no_client_auth()),
        (ClientCertificates::Required | ClientCertificates::RequiredOnce, ..) => return Err(Error::NoCaCertificate),
    };
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots.add(certificate.clone()).map_err(|error| bad(CA, path, error))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if options.client_certificates == ClientCertificates::Requested {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map(|verifier| verifier as _).map_err(|error| bad(CA, path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn message(options: &TlsOptions) -> String {
        let loaded = provider(options).and_then(|_| TlsFiles::read(options)).and_then(|files| build(options, &files));
        loaded.expect_err("a refusal").to_string()
    }

    #[test]
    fn refusals_name_the_file_and_the_reason() {
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

use std::path::{Path, PathBuf};

/// How connections to [`Listen::Tls`](crate::Listen::Tls) are protected, with memcached's name of each option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// (`ssl_chain_cert`) The server's certificate and its chain to a root, in PEM.
    pub chain_cert: PathBuf,
    /// (`ssl_key`) The private key; `None` if it is in the file of the certificate.
    pub key: Option<PathBuf>,
    /// (`ssl_keyformat`) Default: PEM, as memcached.
    pub key_format: KeyFormat,
    /// (`ssl_verify_mode`) Default: none are requested, as memcached.
    pub client_certificates: ClientCertificates,
    /// (`ssl_ca_cert`) Authorities that sign the certificates of clients, in PEM. Needed if certificates are required;
    /// without it none is requested.
    pub ca_cert: Option<PathBuf>,
    /// (`ssl_min_version`) Default: 1.2, as memcached, and the oldest one that is spoken.
    pub min_version: TlsVersion,
    /// (`ssl_ciphers`) Cipher suites of TLS 1.2 in OpenSSL's notation. Default: all that are spoken; none is weak.
    pub ciphers: Option<String>,
    /// (`ssl_wbuf_size`) Bytes that wait, encrypted, until the client's socket takes them. Default: 16 KiB, as
    /// memcached: one record.
    pub write_buffer_bytes: usize,
    /// (`ssl_session_cache`) Whether a returning client may resume its session. Default: no, as memcached.
    pub session_cache: bool,
}

impl TlsOptions {
    /// The defaults, with this certificate.
    pub fn new(chain_cert: impl Into<PathBuf>) -> Self {
        Self {
            chain_cert: chain_cert.into(),
            key: None,
            key_format: KeyFormat::Pem,
            client_certificates: ClientCertificates::Ignored,
            ca_cert: None,
            min_version: TlsVersion::V1_2,
            ciphers: None,
            write_buffer_bytes: 16 << 10,
            session_cache: false,
        }
    }

    /// The file that the key is in.
    pub(crate) fn key_path(&self) -> &Path {
        self.key.as_deref().unwrap_or(&self.chain_cert)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    Pem,
    Der,
}

impl KeyFormat {
    /// OpenSSL's number, which `stats settings` shows.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Pem => 1,
            Self::Der => 2,
        }
    }
}

/// Certificates requested from clients. If certificates are requested, an untrusted one ends the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// No certificate is requested.
    Ignored,
    /// A client may connect without a certificate.
    Requested,
    Required,
    /// As `Required`. OpenSSL would skip the check in a renegotiation, which does not exist here.
    RequiredOnce,
}

impl ClientCertificates {
    /// OpenSSL's bits, which `stats settings` shows.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Ignored => 0,
            Self::Requested => 1,
            Self::Required => 3,
            Self::RequiredOnce => 7,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    V1_2,
    V1_3,
}

impl TlsVersion {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1_2 => "tlsv1.2",
            Self::V1_3 => "tlsv1.3",
        }
    }
}

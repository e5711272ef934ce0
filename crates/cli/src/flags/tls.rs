//! `-Z` and the `ssl_...` options of `-o`.

use std::path::PathBuf;

use ebbtide_server::{ClientCertificates, KeyFormat, TlsOptions, TlsVersion};

use super::values::{self, absolute};
use crate::error::Error;

/// Kilobytes of encrypted output that a connection may hold: from one small record to far more than a socket takes.
const WRITE_BUFFER_KIB: std::ops::RangeInclusive<u64> = 1..=16_384;

/// TLS settings from flags, which may come in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// `-Z`.
    pub enabled: bool,
    /// Whether any of the options was given.
    described: bool,
    /// Without a certificate until one is given.
    options: TlsOptions,
}

impl Default for Tls {
    fn default() -> Self {
        Self { enabled: false, described: false, options: TlsOptions::new(PathBuf::new()) }
    }
}

impl Tls {
    /// Applies one option; may return a warning.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Option<String>, Error> {
        self.described = true;
        let flag = format!("-o {name}");
        let options = &mut self.options;
        match name {
            "ssl_chain_cert" => options.chain_cert = value.into(),
            "ssl_key" => options.key = Some(value.into()),
            "ssl_ca_cert" => options.ca_cert = Some(value.into()),
            "ssl_ciphers" => options.ciphers = Some(value.to_owned()),
            "ssl_session_cache" => options.session_cache = true,
            "ssl_wbuf_size" => {
                options.write_buffer_bytes = (values::number(&flag, value, WRITE_BUFFER_KIB)? as usize) << 10;
            }
            "ssl_keyformat" => options.key_format = key_format(&flag, value)?,
            "ssl_verify_mode" => {
                options.client_certificates = match value {
                    "0" => ClientCertificates::Ignored,
                    "1" => ClientCertificates::Requested,
                    "2" => ClientCertificates::Required,
                    "3" => ClientCertificates::RequiredOnce,
                    _ => {
                        return Err(illegal(
                            &flag,
                            value,
                            "Invalid ssl_verify_mode; give 0 (none), 1 (request), 2 (require) or 3 (once)",
                        ));
                    }
                }
            }
            "ssl_min_version" => {
                options.min_version = match value {
                    "3" => TlsVersion::V1_3,
                    _ => TlsVersion::V1_2,
                };
                match value {
                    "0" | "1" => {
                        return Ok(Some(format!("{flag} {value} means 2: nothing older than TLS 1.2 is spoken")));
                    }
                    "2" | "3" => {}
                    _ => return Err(illegal(&flag, value, "Invalid ssl_min_version; give 2 (TLS 1.2) or 3 (TLS 1.3)")),
                }
            }
            other => unreachable!("{other} is in the table as used"),
        }
        Ok(None)
    }

    /// TLS options of the server; `None` without `-Z`.
    pub fn options(&self) -> Result<Option<TlsOptions>, Error> {
        if !self.enabled {
            return Ok(None);
        }
        if self.options.chain_cert.as_os_str().is_empty() {
            return Err(Error::Limit(
                "-Z: Error loading the certificate chain: no file is named; give -o ssl_chain_cert=<file>,ssl_key=<file>"
                    .to_owned(),
            ));
        }
        // The files are read again later, when the process may have another working folder.
        let mut options = self.options.clone();
        options.chain_cert = absolute(&options.chain_cert);
        options.key = options.key.as_ref().map(absolute);
        options.ca_cert = options.ca_cert.as_ref().map(absolute);
        Ok(Some(options))
    }

    /// Warning about options without effect.
    pub fn warning(&self) -> Option<String> {
        // As in memcached data travels in the clear then.
        if self.described && !self.enabled {
            return Some("-o ssl_...: without -Z these change nothing, and data travels in the clear".to_owned());
        }
        let unverified =
            self.options.client_certificates == ClientCertificates::Requested && self.options.ca_cert.is_none();
        (self.enabled && unverified).then(|| {
            "-o ssl_verify_mode=1: without ssl_ca_cert=<file> no client's certificate can be verified, so none is asked for"
                .to_owned()
        })
    }
}

fn key_format(flag: &str, value: &str) -> Result<KeyFormat, Error> {
    match value.to_ascii_uppercase().as_str() {
        "PEM" => Ok(KeyFormat::Pem),
        "DER" => Ok(KeyFormat::Der),
        "ENGINE" => Err(Error::Limit(format!("{flag} {value}: keys in engines are not supported; give PEM or DER"))),
        _ => Err(illegal(flag, value, "could not parse argument to ssl_keyformat; give PEM or DER")),
    }
}

fn illegal(flag: &str, value: &str, reason: &str) -> Error {
    Error::Illegal(format!("{flag} {value}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(list: &[(&str, &str)]) -> Result<Tls, Error> {
        let mut tls = Tls { enabled: true, ..Tls::default() };
        list.iter().try_for_each(|(name, value)| tls.set(name, value).map(drop)).map(|()| tls)
    }

    #[test]
    fn every_option_reaches_the_server() {
        let all = [
            ("ssl_chain_cert", "/c"),
            ("ssl_key", "/k"),
            ("ssl_keyformat", "der"),
            ("ssl_verify_mode", "2"),
            ("ssl_ca_cert", "/a"),
            ("ssl_min_version", "3"),
            ("ssl_ciphers", "HIGH"),
            ("ssl_wbuf_size", "32"),
            ("ssl_session_cache", ""),
        ];
        let options = tls(&all).unwrap().options().unwrap().unwrap();
        let expected = TlsOptions {
            key: Some("/k".into()),
            key_format: KeyFormat::Der,
            client_certificates: ClientCertificates::Required,
            ca_cert: Some("/a".into()),
            min_version: TlsVersion::V1_3,
            ciphers: Some("HIGH".to_owned()),
            write_buffer_bytes: 32 << 10,
            session_cache: true,
            ..TlsOptions::new("/c")
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (name, value) in
            [("ssl_verify_mode", "4"), ("ssl_min_version", "tlsv1.2"), ("ssl_keyformat", "X"), ("ssl_wbuf_size", "0")]
        {
            let message = tls(&[(name, value)]).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(value), "{message}");
        }
        assert!(tls(&[]).unwrap().options().unwrap_err().to_string().contains("ssl_chain_cert"));
        assert!(Tls::default().set("ssl_min_version", "0").unwrap().unwrap().contains("TLS 1.2"));
    }

    #[test]
    fn options_without_the_switch_give_a_warning() {
        let mut tls = Tls::default();
        assert_eq!(tls.warning(), None);
        tls.set("ssl_key", "k").unwrap();
        assert!(tls.warning().is_some());
        assert_eq!(tls.options(), Ok(None));
    }

    #[test]
    fn requested_certificates_without_a_ca_give_a_warning() {
        let requested = ("ssl_verify_mode", "1");
        assert!(tls(&[requested]).unwrap().warning().unwrap().contains("ssl_ca_cert"));
        assert_eq!(tls(&[requested, ("ssl_ca_cert", "f")]).unwrap().warning(), None);
        assert_eq!(tls(&[("ssl_verify_mode", "2")]).unwrap().warning(), None);
    }
}

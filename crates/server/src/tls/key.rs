//! Private keys: from the bytes of a file to a key that the TLS library accepts, or the reason and the remedy.
//!
//! As in OpenSSL the content decides about the format, not the label: `BEGIN RSA PRIVATE KEY` may hold a key in the
//! format of `BEGIN PRIVATE KEY`.

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{PemObject, SectionKind};

const NO_KEY: &str =
    "no private key in it; give a PEM file with BEGIN PRIVATE KEY that has no passphrase, or ssl_keyformat=DER";
const ENCRYPTED: &str = "the key is encrypted, and nobody is asked for a passphrase; \
     decrypt it: openssl pkey -in <file> -out <new file>";
const CONVERT: &str = "convert it to PKCS#8: openssl pkcs8 -topk8 -nodes -in <file> -out <new file>";
const NEW_KEY: &str = "make another one and have a certificate issued for it: \
     openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out <new file>";

/// Object identifiers in DER, of keys that the TLS library cannot sign with.
const UNSUPPORTED: [(&[u8], &str); 7] = [
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23], "an EC key on the curve P-521"),
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x21], "an EC key on the curve P-224"),
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a], "an EC key on the curve secp256k1"),
    (&[0x06, 0x09, 0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01], "an EC key on a Brainpool curve"),
    (&[0x06, 0x03, 0x2b, 0x65, 0x71], "an Ed448 key"),
    (&[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01], "a DSA key"),
    (&[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a], "an RSA key for PSS only"),
];
const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];

pub fn from_pem(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let text = String::from_utf8_lossy(bytes);
    let labels = || text.lines().filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    if labels().any(|label| label == "ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(ENCRYPTED.to_owned());
    }
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes) {
        let (kind, der) = section.map_err(|error| error.to_string())?;
        if matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey) {
            return from_der(der);
        }
    }
    match labels().find(|label| label.ends_with("PRIVATE KEY")) {
        Some(label) => Err(format!("the format {label} is not supported; {NEW_KEY}")),
        None if bytes.first() == Some(&0x30) => Err("this is DER and not PEM; add ssl_keyformat=DER".to_owned()),
        None => Err(NO_KEY.to_owned()),
    }
}

pub fn from_der(bytes: Vec<u8>) -> Result<PrivateKeyDer<'static>, String> {
    if bytes.starts_with(b"-----BEGIN ") {
        return Err("this is PEM and not DER; leave ssl_keyformat out".to_owned());
    }
    PrivateKeyDer::try_from(bytes).map_err(|error| format!("{error}; {CONVERT}"))
}

/// Why the TLS library cannot sign with a key: its type, its format and the remedy.
pub fn refusal(key: &PrivateKeyDer<'_>) -> String {
    let (format, is_rsa) = match key {
        PrivateKeyDer::Pkcs1(_) => ("PKCS#1", true),
        PrivateKeyDer::Sec1(_) => ("SEC1", false),
        _ => ("PKCS#8", contains(key.secret_der(), RSA)),
    };
    let unsupported = UNSUPPORTED.iter().find(|(identifier, _)| contains(key.secret_der(), identifier));
    if let Some((_, name)) = unsupported {
        return format!("{name} ({format}), with which the TLS library cannot sign; {NEW_KEY}");
    }
    if is_rsa {
        return format!(
            "an RSA key ({format}) that the TLS library refuses; it takes those of 2048 to 4096 bits; {NEW_KEY}"
        );
    }
    if format == "SEC1" || contains(key.secret_der(), EC) {
        return format!(
            "an EC key ({format}) that the TLS library refuses; it takes named curves P-256 and P-384; if it is on one of \
             them, name it in the file and add the public key: openssl pkey -ec_param_enc named_curve -in <file> -out \
             <new file>"
        );
    }
    format!("a key ({format}) that the TLS library does not know; {NEW_KEY}")
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_are_not_read_are_named() {
        let reason = |text: &str| from_pem(text.as_bytes()).expect_err("a refusal");
        for text in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMAA=\n-----END RSA PRIVATE KEY-----\n",
        ] {
            assert!(reason(text).contains("openssl pkey -in"), "{text}");
        }
        let dsa = "-----BEGIN DSA PRIVATE KEY-----\nMAA=\n-----END DSA PRIVATE KEY-----\n";
        assert!(reason(dsa).contains("DSA PRIVATE KEY is not supported"));
        assert!(reason("junk").contains("no private key in it"));
        assert!(reason("0junk").contains("ssl_keyformat=DER"));
        assert!(from_der(b"-----BEGIN PRIVATE KEY-----".to_vec()).unwrap_err().contains("leave ssl_keyformat out"));
        assert!(from_der(b"junk".to_vec()).unwrap_err().contains("openssl pkcs8"));
    }
}

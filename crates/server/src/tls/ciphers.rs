//! Cipher lists as OpenSSL writes them: names between colons, `!name` for those to leave out, words such as `HIGH` for
//! groups. As in OpenSSL a list chooses among the suites of TLS 1.2; those of TLS 1.3 stay.

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite as suite;

const TLS13: [SupportedCipherSuite; 3] =
    [suite::TLS13_AES_256_GCM_SHA384, suite::TLS13_AES_128_GCM_SHA256, suite::TLS13_CHACHA20_POLY1305_SHA256];

const TLS12: [(&str, SupportedCipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES256-GCM-SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-AES128-GCM-SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
];

/// Groups of OpenSSL's that hold all of `TLS12`.
const ALL: [&str; 7] = ["DEFAULT", "ALL", "HIGH", "ECDHE", "EECDH", "kEECDH", "TLSv1.2"];

/// The suites that `list` leaves, those of TLS 1.3 first; `None` if it names none of TLS 1.2 that is spoken.
pub fn parse(list: Option<&str>) -> Option<Vec<SupportedCipherSuite>> {
    let words: Vec<&str> =
        list.unwrap_or("ALL").split([':', ',', ' ']).map(str::trim).filter(|word| !word.is_empty()).collect();
    let wanted = |name: &str| words.iter().any(|word| *word == name || ALL.contains(word));
    let refused = |name: &str| words.iter().any(|word| word.strip_prefix(['!', '-']) == Some(name));
    let chosen: Vec<_> = TLS12.iter().filter(|(name, _)| wanted(name) && !refused(name)).map(|(_, s)| *s).collect();
    match chosen.is_empty() {
        true => None,
        false => Some(TLS13.into_iter().chain(chosen).collect()),
    }
}

/// The names that a list may choose from.
pub fn names() -> String {
    TLS12.map(|(name, _)| name).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cipher_lists_select_tls12_suites() {
        assert_eq!(parse(None).unwrap().len(), TLS13.len() + TLS12.len());
        assert_eq!(parse(Some("HIGH:!aNULL:!MD5@STRENGTH")).unwrap().len(), TLS13.len() + TLS12.len());
        let one = parse(Some("ECDHE-RSA-AES128-GCM-SHA256:AES256-SHA")).unwrap();
        assert_eq!(one.last(), Some(&suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
        assert_eq!(one.len(), TLS13.len() + 1);
        assert_eq!(parse(Some("ALL:!ECDHE-RSA-AES128-GCM-SHA256")).unwrap().len(), TLS13.len() + TLS12.len() - 1);
        assert_eq!(parse(Some("AES256-SHA:FOO")), None);
        assert_eq!(parse(Some("!ALL")), None);
    }
}

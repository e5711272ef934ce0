//! Keys in lines that cannot carry all bytes.

/// Appends `key` as memcached URI-encodes it: letters, digits and `-._~` stay, all else becomes `%XX`.
pub fn uri_encode(out: &mut Vec<u8>, key: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// Appends `key` in base64 with padding.
pub fn base64_encode(out: &mut Vec<u8>, key: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in key.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = |at: usize| match at <= group.len() {
            true => DIGITS[(bits >> (18 - 6 * at) & 63) as usize],
            false => b'=',
        };
        out.extend([0, 1, 2, 3].map(digit));
    }
}

/// Whether a key must be encoded where spaces and line ends have a meaning.
pub fn is_binary(key: &[u8]) -> bool {
    key.iter().any(|byte| *byte <= b' ' || *byte == 0x7F)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_encoded_as_memcached_encodes_them() {
        let mut out = Vec::new();
        uri_encode(&mut out, b"a%,b/~c=\x01\xff-_.Z9");
        assert_eq!(out, b"a%25%2Cb%2F~c%3D%01%FF-_.Z9");
    }

    #[test]
    fn base64_has_padding() {
        for (key, text) in
            [(&b"\x00\x01\x02\xff"[..], &b"AAEC/w=="[..]), (b"abc", b"YWJj"), (b"ab", b"YWI="), (b"", b"")]
        {
            let mut out = Vec::new();
            base64_encode(&mut out, key);
            assert_eq!(out, text);
        }
    }
}

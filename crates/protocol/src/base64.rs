//! Reads keys in base64 (RFC 4648, section 4) as memcached does: bytes that are no digits are skipped, and the padding
//! ends the key.

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        // Padding stands for zero bits.
        b'=' => Some(0),
        _ => None,
    }
}

/// Decodes `text` into `out`, which is as long as `text` or longer. `None` if it is no base64 or nothing at all.
pub fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let digits = text.iter().filter(|byte| digit(**byte).is_some()).count();
    if digits == 0 || digits % 4 != 0 {
        return None;
    }
    let (mut group, mut count, mut padding, mut length) = (0u32, 0, 0, 0);
    for &byte in text {
        let Some(bits) = digit(byte) else { continue };
        padding += usize::from(byte == b'=');
        group = group << 6 | u32::from(bits);
        count += 1;
        if count < 4 {
            continue;
        }
        if padding > 2 {
            return None;
        }
        let [_, bytes @ ..] = group.to_be_bytes();
        out[length..length + 3].copy_from_slice(&bytes);
        length += 3 - padding;
        if padding > 0 {
            break;
        }
        (group, count) = (0, 0);
    }
    Some(&out[..length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::base64_encode;

    #[test]
    fn what_was_encoded_is_decoded() {
        for length in 0..40u8 {
            let bytes: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37) ^ 0xA5).collect();
            let mut text = Vec::new();
            base64_encode(&mut text, &bytes);
            let mut out = vec![0; text.len()];
            assert_eq!(decode(&text, &mut out), Some(&*bytes).filter(|bytes| !bytes.is_empty()));
        }
    }

    #[test]
    fn oddities_are_taken_as_memcached_takes_them() {
        let decoded = |text: &[u8]| decode(text, &mut [0; 64]).map(<[u8]>::to_vec);
        for (text, key) in [
            (&b"YQ=="[..], &b"a"[..]),
            (b"YR==", b"a"),
            (b"Y.Q.==..", b"a"),
            (b"YQ==YQ==", b"a"),
            (b"=YQ=", b"\x01"),
            (b"YW=h", b"a\x60"),
            (b"YWFh", b"aaa"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(key), "{}", text.escape_ascii());
        }
        for text in [&b""[..], b"YQ", b"YQ=", b"Y===", b"====", b"....", b"Y-_h"] {
            assert_eq!(decoded(text), None, "{}", text.escape_ascii());
        }
    }
}

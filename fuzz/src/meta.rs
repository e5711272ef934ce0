//! The meta commands: what their parser hands on can be carried out without another check, and holds nothing that it
//! refuses elsewhere.

use ebbtide_protocol::{MAX_KEY, Meta, Parser, Request, Step};

/// memcached takes no more words in a line.
const FLAGS_LIMIT: usize = 18;

/// Each line of the input is a command; the `m` before it is put there, so that more of them are.
pub fn check(input: &[u8]) {
    for line in input.split(|&byte| byte == b'\n') {
        let line = [b"m", line, b"\r\n"].concat();
        match Parser::new(0).next(&line) {
            (Step::Request(Request::Meta { meta, .. }), _) => carry_out(&line, &meta),
            (Step::Request(Request::MetaSet(set)), _) => {
                assert!(set.value.is_none() || set.length == 0, "a value of {} bytes from nowhere", set.length);
                carry_out(&line, &set.meta);
            }
            _ => {}
        }
    }
}

fn carry_out(line: &[u8], meta: &Meta<'_>) {
    let mut buffer = [0; MAX_KEY];
    let key = meta.key(&mut buffer);
    assert!((1..=MAX_KEY).contains(&key.len()), "a key of {} bytes", key.len());
    assert!(meta.has(b'b') || line.windows(key.len()).any(|part| part == key), "a key that is not in the line");
    let flags: Vec<&[u8]> = meta.flags().collect();
    assert!(flags.len() <= FLAGS_LIMIT, "{} flags", flags.len());
    assert!(Meta::flags_in(meta.flag_bytes()).eq(flags.iter().copied()), "the flags, read once more");
    for (at, flag) in flags.iter().enumerate() {
        let letter = flag[0];
        assert!(letter.is_ascii_alphabetic() && meta.has(letter), "the flag {letter:#x}");
        assert!(flags[..at].iter().all(|earlier| earlier[0] != letter), "the flag {letter:#x} twice");
        match letter {
            b'T' | b'N' | b'R' => assert!(meta.exptime(letter).is_some(), "no time behind {letter:#x}"),
            b'C' | b'E' | b'D' | b'J' => assert!(meta.number(letter).is_some(), "no number behind {letter:#x}"),
            b'M' => assert_eq!(meta.mode(), Some(*flag.get(1).unwrap_or(&b'M'))),
            b'O' => assert!(flag.len() < 33, "an opaque token of {} bytes", flag.len() - 1),
            _ => {}
        }
    }
    assert!(!meta.is_plain_get() || key == meta.key_word(), "a plain get's key stands in its line");
    assert!(meta.has(b'F') || meta.client_flags() == 0);
}

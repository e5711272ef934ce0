//! The engine's modes for the storage commands of each dialect.

use ebbtide::memcached::Mode;
use ebbtide_protocol::binary::Put;
use ebbtide_protocol::{Meta, StoreMode};

/// The engine's name for a storage command.
pub fn store_mode(mode: StoreMode) -> Mode {
    match mode {
        StoreMode::Set => Mode::Set,
        StoreMode::Add => Mode::Add,
        StoreMode::Replace => Mode::Replace,
        StoreMode::Append => Mode::Append,
        StoreMode::Prepend => Mode::Prepend,
        StoreMode::Cas(token) => Mode::Cas(token),
    }
}

/// The exptime with which an append or a prepend creates an absent key: that of N.
pub fn creates(meta: &Meta<'_>) -> Option<i32> {
    meta.exptime(b'N').filter(|_| matches!(meta.mode(), Some(b'A' | b'P')))
}

/// The engine's mode for an ms.
pub fn meta_mode(meta: &Meta<'_>) -> Mode {
    let expected = meta.number(b'C');
    // To an append or a prepend a token of 0 is none; an add does without.
    match (meta.mode(), expected.filter(|token| *token != 0)) {
        (Some(b'E'), _) => Mode::Add,
        (Some(b'A'), None) => Mode::Append,
        (Some(b'A'), Some(token)) => Mode::AppendIf(token),
        (Some(b'P'), None) => Mode::Prepend,
        (Some(b'P'), Some(token)) => Mode::PrependIf(token),
        (_, Some(token)) if meta.has(b'I') => Mode::CasOrStale(token),
        (_, Some(token)) => Mode::Cas(token),
        (_, None) if expected.is_some() => Mode::Cas(0),
        (Some(b'R'), None) => Mode::Replace,
        (_, None) => Mode::Set,
    }
}

/// The engine's name for a command and its token.
pub fn put_mode(put: &Put<'_>) -> Mode {
    match (put.mode, put.cas) {
        (StoreMode::Append, 0) => Mode::Append,
        (StoreMode::Append, token) => Mode::AppendIf(token),
        (StoreMode::Prepend, 0) => Mode::Prepend,
        (StoreMode::Prepend, token) => Mode::PrependIf(token),
        (StoreMode::Set, 0) => Mode::Set,
        (StoreMode::Add, 0) => Mode::Add,
        (StoreMode::Replace, 0) => Mode::Replace,
        (StoreMode::Set | StoreMode::Add | StoreMode::Replace, token) | (StoreMode::Cas(token), _) => Mode::Cas(token),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_protocol::{Parser, Request, Step};

    #[test]
    fn modes_and_tokens_make_the_engines_modes() {
        for (flags, expected) in [
            ("", Mode::Set),
            ("MS", Mode::Set),
            ("ME", Mode::Add),
            ("ME C7", Mode::Add),
            ("MR", Mode::Replace),
            ("MR C7", Mode::Cas(7)),
            ("C0 I", Mode::Cas(0)),
            ("C7 I", Mode::CasOrStale(7)),
            ("MA", Mode::Append),
            ("MA C0", Mode::Append),
            ("MA C7 I", Mode::AppendIf(7)),
            ("MP C7", Mode::PrependIf(7)),
            ("I", Mode::Set),
        ] {
            let line = format!("ms k 1 {flags}\r\nv\r\n");
            let (Step::Request(Request::MetaSet(set)), _) = Parser::new(100).next(line.as_bytes()) else {
                panic!("{line} is an ms");
            };
            assert_eq!(meta_mode(&set.meta), expected, "{flags}");
        }
    }
}

//! Values about as long as a segment: in one piece, or with bodies.

use crate::common::StoreSubject;
use ebbtide_store::{Mode, Options, Stored, Ttl, Write};

const NOW_MS: u64 = 5000;
const KEY: &[u8] = b"k";

fn read(subject: &StoreSubject) -> Option<Vec<u8>> {
    let item = subject.store.get(&subject.participant, KEY, subject.store.hash(KEY), NOW_MS)?;
    let mut value = Vec::new();
    item.copy_to(&mut value);
    Some(value)
}

#[test]
fn values_around_segment_length_are_read_back() {
    // Value parts have at most 2^20 - 1 bytes, and the largest segments 2^20 and a 64th part.
    for size_log in [12, 16, 20] {
        let (size, bytes) = (1 << size_log, (1 << size_log) + (1 << (size_log - 6)));
        let options = Options { memory_bytes: 64 << 20, value_bytes_max: 4 << 20, ..Options::default() };
        let subject = StoreSubject::new(Options { segment_size: Some(size as u32), ..options });
        let store = &subject.store;
        assert_eq!(store.stats().segment_bytes, bytes as u64);
        let lengths = [size - 1, size, size + 1, bytes - 16, bytes - 15, bytes - 6, bytes, bytes + 1, 2 * bytes];
        for length in lengths.into_iter().chain(bytes - 30..bytes - 10) {
            let whole: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
            let write = |value, mode| {
                let write = Write {
                    key: KEY,
                    hash: store.hash(KEY),
                    value,
                    flags: 3.into(),
                    ttl: Ttl::Never,
                    mode,
                    token: None,
                };
                let write = || store.write(&subject.participant, &write, NOW_MS);
                subject.retry_with_eviction(NOW_MS, write).expect("there is space").stored
            };
            assert_eq!(write(&whole, Mode::Set), Stored::Stored);
            assert!(read(&subject).as_deref() == Some(&whole[..]), "{length} bytes in segments of {bytes}");
            for (mode, first, last) in [(Mode::Append, 0, 9), (Mode::Prepend, 9, 0)] {
                assert_eq!(write(&whole[first..length - last], Mode::Set), Stored::Stored);
                assert_eq!(
                    write(if first > 0 { &whole[..first] } else { &whole[length - last..] }, mode),
                    Stored::Stored
                );
                assert!(read(&subject).as_deref() == Some(&whole[..]), "{mode:?}: {length} bytes");
            }
        }
        store.verify(&subject.participant, NOW_MS);
        assert!(store.contiguous_value_bytes(1) < 1 << 20);
    }
}

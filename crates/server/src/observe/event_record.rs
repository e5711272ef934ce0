//! The record of an event in a history file, drawn in `history_file`.

use super::events::{Event, EventKind};

/// Bytes of a record.
pub const EVENT_RECORD: usize = 512;
/// Words in front of the reason: begin, last, count, kind and length, checksum.
const WORDS: usize = 5;
const REASON_BYTES: usize = EVENT_RECORD - WORDS * 8;

/// The bytes of an event. A longer reason is cut at a character.
pub fn encode(event: &Event) -> [u8; EVENT_RECORD] {
    let max = event.reason.len().min(REASON_BYTES);
    let length = (0..=max).rev().find(|at| event.reason.is_char_boundary(*at)).unwrap_or(0);
    let kind = event.kind as u64 | (length as u64) << 8;
    let mut record = [0; EVENT_RECORD];
    let words = [event.time_unix_ms, event.last_unix_ms, event.count, kind];
    record.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())).for_each(|(to, from)| *to = from);
    record[WORDS * 8..][..length].copy_from_slice(&event.reason.as_bytes()[..length]);
    let sum = checksum(&record);
    record[(WORDS - 1) * 8..WORDS * 8].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The event of a record; `None` for one that is torn, empty or of an unknown kind.
pub fn decode(record: &[u8; EVENT_RECORD]) -> Option<Event> {
    let word = |at: usize| u64::from_le_bytes(*record[at * 8..].first_chunk().expect("it is inside the record"));
    let mut bare = *record;
    bare[(WORDS - 1) * 8..WORDS * 8].fill(0);
    if word(0) == 0 || word(WORDS - 1) != checksum(&bare) {
        return None;
    }
    let (kind, length) = ((word(3) & 0xFF) as usize, (word(3) >> 8) as usize);
    Some(Event {
        time_unix_ms: word(0),
        last_unix_ms: word(1),
        count: word(2),
        kind: *EventKind::ALL.get(kind)?,
        reason: str::from_utf8(record[WORDS * 8..].get(..length)?).ok()?.to_owned(),
    })
}

/// FNV-1a over the words, with 0 in the place of the checksum.
fn checksum(record: &[u8; EVENT_RECORD]) -> u64 {
    let words = record.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    words.fold(0xCBF2_9CE4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x0000_0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str) -> Event {
        let reason = reason.to_owned();
        Event {
            time_unix_ms: 1_800_000_000_000,
            kind: EventKind::Flush,
            reason,
            count: 3,
            last_unix_ms: 1_800_000_001_000,
        }
    }

    #[test]
    fn the_format_stays() {
        let record = encode(&event("flush_all"));
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(&record[..56]),
            [
                // Begin, last, count, kind and length, checksum, reason.
                "00505c18a3010000",
                "e8535c18a3010000",
                "0300000000000000",
                "0509000000000000",
                "2f8228b14a1d8d54",
                "666c7573685f616c",
                "6c00000000000000",
            ]
            .concat()
        );
        assert!(record[56..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for reason in ["", "flush_all", &"ü".repeat(236)] {
            assert_eq!(decode(&encode(&event(reason))), Some(event(reason)));
        }
        let long = decode(&encode(&event(&format!("x{}", "ü".repeat(400))))).unwrap().reason;
        assert_eq!(long, format!("x{}", "ü".repeat(235)));
    }

    #[test]
    fn torn_records_are_none() {
        let (old, new) = (encode(&event("one")), encode(&Event { count: 9, ..event("two") }));
        for cut in 0..=EVENT_RECORD {
            let mut torn = old;
            torn[..cut].copy_from_slice(&new[..cut]);
            let expected = [&old, &new].into_iter().find(|whole| **whole == torn).and_then(decode);
            assert_eq!(decode(&torn), expected, "{cut}");
        }
        assert_eq!(decode(&[0; EVENT_RECORD]), None);
    }
}

//! Structured values: edits in place beside readers, edits and relocation.

use super::{Client, model, store};
use crate::arena::Arena;
use crate::item::{Extension, ITEM_HEADER_BYTES, ItemAt, ItemHeader, Kind};
use crate::segment::{Location, SegmentId};
use crate::structured::{STRUCTURE_MAGIC, STRUCTURE_VERSION, StructuredKind, WORDS_STRUCTURE};
use crate::{Edit, IfAbsent, Ttl};
use loom::thread;
use std::sync::Arc;

const KEY: &[u8] = b"k";
const LOG_STRUCTURE: u8 = 5;

fn head(structure: u8) -> Vec<u8> {
    [&STRUCTURE_MAGIC[..], &[structure, STRUCTURE_VERSION]].concat()
}

impl Client<'_> {
    /// Appends a byte to the log of a key, or creates the log with this much space to append. False if it is absent or
    /// has too little space.
    pub fn append_to_log(&self, key: &[u8], byte: u8, create: Option<usize>) -> bool {
        let target = (key, self.store.hash(key));
        let mut is_done = false;
        let edited =
            self.store.edit(&self.participant, target, IfAbsent::Create(Ttl::Never.into()), self.now_ms, |found| {
                is_done = true;
                match (found, create) {
                    (Some(found), _) if found.spare > 0 => return Edit::Append(vec![byte]),
                    (None, Some(spare)) => {
                        return Edit::Store { content: [head(LOG_STRUCTURE), vec![byte]].concat(), spare };
                    }
                    _ => is_done = false,
                }
                Edit::Keep
            });
        edited.expect("the model has free memory");
        is_done
    }

    /// Bytes appended to the log of a key.
    pub fn log(&self, key: &[u8]) -> Option<Vec<u8>> {
        let item = self.store.get(&self.participant, key, self.store.hash(key), self.now_ms)?;
        let mut content = Vec::new();
        item.copy_to(&mut content);
        Some(content.split_off(head(LOG_STRUCTURE).len()))
    }

    /// Adds to the only word of a key, or creates it; answers the sum.
    pub fn add_to_word(&self, key: &[u8], delta: u64) -> u64 {
        let target = (key, self.store.hash(key));
        let mut sum = 0;
        let edited =
            self.store.edit(&self.participant, target, IfAbsent::Create(Ttl::Never.into()), self.now_ms, |found| {
                let mut content = found.map_or_else(|| words(&[0]), |found| found.content.to_vec());
                sum = u64::from_le_bytes(content[8..].try_into().expect("one word")) + delta;
                content[8..].copy_from_slice(&sum.to_le_bytes());
                Edit::Store { content, spare: 0 }
            });
        edited.expect("the model has free memory");
        sum
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    head(WORDS_STRUCTURE).into_iter().chain([0; 4]).chain(bytes).collect()
}

/// A reader of a log ends at the length that it loaded: it reads no byte that is being written.
#[test]
fn a_log_reader_ends_at_its_length() {
    model(2, || {
        let store = store(3, 0);
        let client = Client::new(&store);
        assert!(client.append_to_log(KEY, 1, Some(2)));
        let reader = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).log(KEY).expect("it is always there"))
        };
        assert!(client.append_to_log(KEY, 2, None));
        let seen = reader.join().unwrap();
        assert!(seen == [1] || seen == [1, 2], "{seen:?}");
        assert_eq!(client.log(KEY), Some(vec![1, 2]));
        client.verify();
    });
}

#[test]
fn two_appends_are_both_kept() {
    model(2, || {
        let store = store(3, 0);
        let client = Client::new(&store);
        assert!(client.append_to_log(KEY, 1, Some(2)));
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || assert!(Client::new(&store).append_to_log(KEY, 2, None)))
        };
        assert!(client.append_to_log(KEY, 3, None));
        other.join().unwrap();
        let log = client.log(KEY).unwrap();
        assert!(log == [1, 2, 3] || log == [1, 3, 2], "{log:?}");
        client.verify();
    });
}

/// The copy that a touch makes has the bytes appended meanwhile.
#[test]
fn a_touch_loses_no_append() {
    model(2, || {
        let store = store(5, 0);
        let client = Client::new(&store);
        assert!(client.append_to_log(KEY, 1, Some(2)));
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || assert!(Client::new(&store).append_to_log(KEY, 2, None)))
        };
        assert!(client.touch(KEY, 1));
        other.join().unwrap();
        assert_eq!(client.log(KEY), Some(vec![1, 2]));
        client.verify();
    });
}

/// Two edits by one writer: a reader sees the words of one moment.
#[test]
fn a_reader_sees_no_torn_words() {
    model(3, || {
        let store = store(2, 0);
        let content = words(&[1, 1]);
        let kind = StructuredKind::of(&content).unwrap();
        let header = ItemHeader::new(Kind::Structured, (1, kind.value_length(content.len(), 0), 0), false, 0);
        let item = ItemAt { at: Location::new(SegmentId::new(1), 64 - header.size().min(64)), header };
        assert!(header.size() <= 64 && header.value_offset() == ITEM_HEADER_BYTES + 1);
        // SAFETY: no slot points there.
        unsafe {
            item.write_head(&store.segments.arena, (0.into(), Extension::default(), None), KEY);
            item.write_content(&store.segments.arena, kind, &content);
        }
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let arena: &Arena = &store.segments.arena;
                for value in 2..4 {
                    // SAFETY: there is one writer.
                    unsafe { item.write_words(arena, &words(&[value, value])[8..]) };
                }
            })
        };
        // SAFETY: nothing is reused.
        let seen = unsafe { item.words(&store.segments.arena) };
        let word = |index: usize| u64::from_le_bytes(seen.content[index..index + 8].try_into().unwrap());
        assert_eq!(word(8), word(16), "torn");
        writer.join().unwrap();
    });
}

//! Values that name their key.
//!
//! ```text
//! text     | key u64 | version u64 | filler, from both | checksum u64 |, per append: | version u64 | checksum u64 |
//! number   version * 4096 + how often it was counted up, in decimal
//! ```
//! A version is the moment at which its write began, so no two are the same. An append has a version of its own.

use ebbtide_testkit::{Random, Stamp};

/// How often a number is counted up before it is set anew.
pub const COUNTS: u64 = 4096;
/// Bytes of one append.
const ADDED: usize = 16;
/// First part of an append's checksum.
const SALT: u64 = 0x00dd_ed00;

/// A version of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub written: u64,
    /// How often a number was counted up since.
    pub counts: u64,
}

impl Version {
    pub fn of_write(written: u64) -> Self {
        Self { written, counts: 0 }
    }
}

/// Every fourth key has numbers.
pub fn is_number(key: u64) -> bool {
    key.is_multiple_of(4)
}

pub fn name(key: u64) -> Vec<u8> {
    format!("key{key}{}", "-".repeat(key as usize * 7 % 60)).into_bytes()
}

/// The value of a write of this key.
pub fn of(key: u64, written: u64) -> Vec<u8> {
    if is_number(key) {
        return (written * COUNTS).to_string().into_bytes();
    }
    Stamp { key, version: written }.value(length(written))
}

/// Small ones, ones of a block and more, and some that fit neither a segment nor a region.
fn length(written: u64) -> usize {
    let mut random = Random::new(written);
    let bytes = match random.uniform(20) {
        0..10 => random.uniform(400),
        10..14 => random.uniform(1900),
        14..19 => 2000 + random.uniform(6000),
        _ => 20_000 + random.uniform(30_000),
    };
    bytes as usize
}

/// Bytes that an append of this version adds to a value.
pub fn addition(key: u64, version: u64) -> Vec<u8> {
    [version, sum(key, version)].map(u64::to_le_bytes).concat()
}

fn sum(key: u64, version: u64) -> u64 {
    Random::new(key << 48 ^ version ^ SALT).number()
}

/// The version that a value has, and the one before it if something was appended; an error if it is none of this key's.
pub fn read(key: u64, value: &[u8]) -> Result<(Version, Option<Version>), String> {
    let start = value[..value.len().min(40)].escape_ascii();
    let torn = || format!("{} bytes that nobody wrote: {start}", value.len());
    if is_number(key) {
        let number: u64 =
            std::str::from_utf8(value).ok().and_then(|text| text.trim_end().parse().ok()).ok_or_else(torn)?;
        return Ok((of_number(number), None));
    }
    let word = |at: usize| value.get(at..at + 8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let written = word(8).ok_or_else(torn)?;
    let own = length(written).max(24);
    let stamp = value.get(..own).and_then(Stamp::read).ok_or_else(torn)?;
    if stamp.key != key {
        return Err(format!("a value of key {}", stamp.key));
    }
    let (mut version, mut before) = (Version::of_write(written), None);
    for added in value[own..].chunks(ADDED) {
        let words = (added.len() == ADDED).then(|| u64::from_le_bytes(added[..8].try_into().expect("eight bytes")));
        before = Some(version);
        version.written = words.filter(|&word| addition(key, word) == added).ok_or_else(torn)?;
    }
    Ok((version, before))
}

pub fn of_number(number: u64) -> Version {
    Version { written: number / COUNTS, counts: number % COUNTS }
}

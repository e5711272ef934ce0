//! Random operations on a small set of keys, and time that moves between them.

use crate::operation::{Life, Mode, Operation, Write};
use crate::random::Random;

/// Properties of the generated operations.
#[derive(Clone, Debug)]
pub struct GeneratorOptions {
    pub keys: usize,
    /// Sizes of values are drawn around this, so that some just fit a segment and some just do not.
    pub segment_bytes: usize,
    /// The longest value that is not refused. Some are longer.
    pub value_limit: usize,
    /// Of 100 values, how many may be longer than a quarter of a segment.
    pub long_values: u64,
    /// Whether only `Operation::Maintain` moves the time.
    pub moves_by_maintenance: bool,
    /// Whether the time handed in sometimes steps back.
    pub steps_back: bool,
    /// Whether everything is flushed now and then.
    pub flushes: bool,
    /// The lives that entries get.
    pub lives: Lives,
}

/// The lives that entries get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lives {
    /// From one second to 2^32 - 1, never and past.
    All,
    /// Up to ten seconds: a cache of this turns over while time moves by milliseconds.
    Short,
}

/// An operation and the time that is handed in with it.
#[derive(Clone, Debug)]
pub struct Step {
    pub now_ms: u64,
    pub operation: Operation,
}

/// Draws steps.
pub struct Generator {
    random: Random,
    options: GeneratorOptions,
    keys: Vec<Vec<u8>>,
    now_ms: u64,
}

impl Generator {
    pub fn new(seed: u64, options: GeneratorOptions) -> Self {
        let mut random = Random::new(seed);
        let keys = (0..options.keys).map(|number| key(&mut random, number)).collect();
        Self { random, options, keys, now_ms: 1000 }
    }

    /// All keys that operations name.
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    pub fn step(&mut self) -> Step {
        let mut operation = self.operation();
        if self.random.chance(if self.options.moves_by_maintenance { 5 } else { 30 }) {
            self.now_ms += self.pause_ms();
            if self.options.moves_by_maintenance {
                operation = Operation::Maintain;
            }
        }
        let back = if self.options.steps_back && self.random.chance(10) { self.random.uniform(5000) } else { 0 };
        Step { now_ms: self.now_ms.saturating_sub(back), operation }
    }

    fn pause_ms(&mut self) -> u64 {
        let longest = match (self.options.lives, self.random.uniform(100)) {
            (_, 0..70) => 20,
            (_, 70..92) => 2500,
            (Lives::Short, _) => 12_000,
            (Lives::All, 92..98) => 200_000,
            (Lives::All, _) => 90_000_000,
        };
        self.random.between(1, longest)
    }

    fn operation(&mut self) -> Operation {
        let key = self.key();
        match self.random.uniform(1000) {
            0..240 => Operation::Get(key),
            240..255 => {
                let token = self.random.chance(50).then(|| self.random.number());
                Operation::MarkStale(key, token)
            }
            255..270 => Operation::Win(key),
            270..300 => {
                let count = self.random.between(1, 40);
                Operation::GetBatch((0..count).map(|_| self.key()).collect())
            }
            300..320 => Operation::Hold(key),
            320..324 => Operation::Release,
            324..720 => Operation::Write(self.write(key)),
            720..730 => {
                let length = self.long_value_bytes();
                Operation::Abandon { key, length, written: self.random.uniform(length as u64 + 1) as usize }
            }
            730..800 => Operation::Delete(key),
            800..840 => Operation::Touch(key, self.life()),
            840..870 => Operation::GetAndTouch(key, self.life()),
            870..930 => Operation::Increment(key, self.delta()),
            930..970 => Operation::Decrement(key, self.delta()),
            970..972 if self.options.flushes => {
                let delay_ms = if self.random.chance(50) { 0 } else { self.random.uniform(5000) };
                Operation::Flush { delay_ms }
            }
            _ => Operation::Maintain,
        }
    }

    fn write(&mut self, key: Vec<u8>) -> Write {
        let mode = match self.random.uniform(100) {
            0..55 => Mode::Set,
            55..65 => Mode::Add,
            65..72 => Mode::Replace,
            72..80 => Mode::Append,
            80..86 => Mode::Prepend,
            _ => Mode::Cas(0),
        };
        let value = self.value();
        let is_too_long = value.len() > self.options.value_limit;
        // Which of the two is said about a past value that is too long, is nobody's promise.
        let life = Some(self.life()).filter(|life| !is_too_long || *life != Life::Past).unwrap_or(Life::Never);
        let flags = if self.random.chance(50) { 0 } else { self.random.number() as u32 };
        let pieces = self.random.chance(15).then(|| self.random.between(1, 5000) as usize);
        Write { key, value, flags, life, mode, pieces }
    }

    fn key(&mut self) -> Vec<u8> {
        // Half of the operations are on an eighth of the keys.
        let among = if self.random.chance(50) { self.keys.len().div_ceil(8) } else { self.keys.len() };
        self.keys[self.random.uniform(among as u64) as usize].clone()
    }

    fn value(&mut self) -> Vec<u8> {
        if self.random.chance(self.options.long_values) {
            let length = self.long_value_bytes();
            return self.bytes(length);
        }
        match self.random.uniform(100) {
            0..30 => {
                let number = self.random.number() >> self.random.uniform(64);
                let mut text = number.to_string().into_bytes();
                if self.random.chance(20) {
                    text.insert(0, b'0');
                }
                if self.random.chance(20) {
                    text.resize(text.len() + self.random.uniform(6) as usize, b' ');
                }
                text
            }
            30..60 => {
                let length = self.random.uniform(40) as usize;
                self.bytes(length)
            }
            _ => {
                let length = self.random.uniform(self.options.segment_bytes as u64 / 4) as usize;
                self.bytes(length)
            }
        }
    }

    /// Bytes that are no number, whatever is put before or after them.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = self.random.bytes(length);
        if let Some(first) = bytes.first_mut() {
            *first |= 0x80;
        }
        bytes
    }

    fn long_value_bytes(&mut self) -> usize {
        let (segment, limit) = (self.options.segment_bytes as u64, self.options.value_limit as u64);
        let length = match self.random.uniform(100) {
            0..40 => segment * self.random.between(1, 3) - self.random.uniform(300).min(segment) + 20,
            40..85 => self.random.between(1, segment * 3),
            85..98 => self.random.between(1, limit),
            _ => limit + self.random.between(0, 1),
        };
        length.min(limit + 1) as usize
    }

    fn life(&mut self) -> Life {
        match (self.options.lives, self.random.uniform(100)) {
            (_, 0..3) => Life::Past,
            (Lives::Short, _) => Life::Seconds(self.random.between(1, 10) as u32),
            (_, 3..30) => Life::Never,
            (_, 30..55) => Life::Seconds(self.random.between(1, 5) as u32),
            (_, 55..70) => Life::Seconds(self.random.between(1, 300) as u32),
            (_, 70..80) => Life::Exactly(self.random.between(1, 300) as u32),
            (_, 80..85) => Life::Seconds(self.random.between(300, 100_000) as u32),
            (_, 85..90) => Life::Exactly(self.random.between(300, 100_000) as u32),
            (_, 90..94) => Life::Seconds((self.random.number() as u32 >> self.random.uniform(32)).max(1)),
            (_, 94..97) => Life::Exactly((self.random.number() as u32 >> self.random.uniform(32)).max(1)),
            _ => Life::Seconds(u32::MAX),
        }
    }

    fn delta(&mut self) -> u64 {
        if self.random.chance(80) { self.random.uniform(200) } else { self.random.number() }
    }
}

/// Keys of all lengths, all different.
fn key(random: &mut Random, number: usize) -> Vec<u8> {
    let mut key = format!("{number}").into_bytes();
    let longest = [0, 8, 30, 250][random.uniform(4) as usize];
    if key.len() < longest {
        let more = random.uniform((longest - key.len()) as u64 + 1) as usize;
        key.push(b'-');
        key.extend(random.bytes(more).iter().map(|byte| b'a' + byte % 26));
        key.truncate(longest);
    }
    key
}

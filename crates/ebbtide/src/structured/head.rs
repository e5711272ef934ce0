//! The head of a structured value: which structure it is, and of which types.
//!
//! ```text
//! 0      2           3         4
//! +------+-----------+---------+--------------------------------+
//! | EB7D | structure | version | fields of the structure, u32s  |
//! +------+-----------+---------+--------------------------------+
//! ```
//! Numbers are little-endian. The version is 1; another one is refused.

use crate::error::Error;
use ebbtide_store::{STRUCTURE_HEAD_BYTES, STRUCTURE_MAGIC, STRUCTURE_VERSION, WORDS_STRUCTURE};

/// The structures, with their numbers in the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Structure {
    Words = WORDS_STRUCTURE,
    FixedArray = 2,
    Map = 3,
    RangeMap = 4,
    AppendBuffer = 5,
}

impl Structure {
    const ALL: [Self; 5] = [Self::Words, Self::FixedArray, Self::Map, Self::RangeMap, Self::AppendBuffer];

    fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::FixedArray => "a fixed array",
            Self::Map => "a map",
            Self::RangeMap => "a range map",
            Self::AppendBuffer => "an append buffer",
        }
    }

    /// The head of a new value, with these fields.
    pub fn head(self, fields: &[u32]) -> Vec<u8> {
        let mut head = STRUCTURE_MAGIC.to_vec();
        head.extend([self as u8, STRUCTURE_VERSION]);
        fields.iter().for_each(|field| head.extend(field.to_le_bytes()));
        head
    }

    /// The bytes behind the head of a value of this structure whose first fields, its types, are these.
    ///
    /// # Errors
    /// `WrongStructure` names what the value is.
    pub fn open<'a>(self, content: &'a [u8], types: &[u32]) -> Result<&'a [u8], Error> {
        let found = |found: String| Error::WrongStructure { expected: self.name(), found };
        if content.len() < STRUCTURE_HEAD_BYTES || content[..2] != STRUCTURE_MAGIC {
            return Err(found("plain bytes".to_owned()));
        }
        let (number, version) = (content[2], content[3]);
        let Some(structure) = Self::ALL.into_iter().find(|structure| *structure as u8 == number) else {
            return Err(found(format!("structure {number}, which this version does not know")));
        };
        if version != STRUCTURE_VERSION {
            return Err(found(format!("{} of version {version}", structure.name())));
        }
        if structure != self {
            return Err(found(structure.name().to_owned()));
        }
        let mut rest = &content[STRUCTURE_HEAD_BYTES..];
        for expected in types {
            let (number, after) = take_u32(rest).ok_or_else(|| self.damaged())?;
            if number != *expected {
                return Err(found(format!("{} with type {number} where type {expected} is read", self.name())));
            }
            rest = after;
        }
        Ok(rest)
    }

    /// The error of bytes that contradict their head.
    pub fn damaged(self) -> Error {
        Error::WrongStructure { expected: self.name(), found: "damaged".to_owned() }
    }
}

/// The first number of some bytes, and the bytes behind it.
pub fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_has_the_documented_bytes() {
        assert_eq!(Structure::Map.head(&[5, 0x0102]), [0xEB, 0x7D, 3, 1, 5, 0, 0, 0, 2, 1, 0, 0]);
        assert_eq!(Structure::ALL.map(|structure| structure as u8), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn another_structure_version_or_type_is_named() {
        let found = |content: &[u8]| match Structure::Map.open(content, &[7, 8]) {
            Err(Error::WrongStructure { expected: "a map", found }) => found,
            other => panic!("{other:?}"),
        };
        assert_eq!(found(b""), "plain bytes");
        assert_eq!(found(b"text of a client"), "plain bytes");
        assert_eq!(found(&Structure::RangeMap.head(&[7, 8])), "a range map");
        assert_eq!(found(&[0xEB, 0x7D, 9, 1]), "structure 9, which this version does not know");
        assert_eq!(found(&[0xEB, 0x7D, 3, 2]), "a map of version 2");
        assert_eq!(found(&Structure::Map.head(&[7, 9])), "a map with type 9 where type 8 is read");
        assert_eq!(found(&Structure::Map.head(&[7])), "damaged");
        assert_eq!(
            Structure::Map.open(&[&Structure::Map.head(&[7, 8])[..], b"rest"].concat(), &[7, 8]),
            Ok(&b"rest"[..])
        );
    }
}

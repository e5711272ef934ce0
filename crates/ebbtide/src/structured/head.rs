//! The head of a structured value: which structure it is, and of which types.
//!
//! ```text
//! 0      2           3         4
//! +------+-----------+---------+--------------------------------+
//! | EB7D | structure | version | fields of the structure, u32s  |
//! +------+-----------+---------+--------------------------------+
//! ```
//! Numbers are little-endian. The version is 1; another one is refused.

use super::flat::type_name;
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

    /// The structure with its types, for messages.
    fn describe(self, types: &[u32]) -> String {
        match (self, types) {
            (Self::Words, [0]) => "words without a type".to_owned(),
            (Self::Words, [number]) => format!("words of type {number}"),
            (Self::FixedArray, [element]) => format!("a fixed array of {}", type_name(*element)),
            (_, [key, value]) => format!("{} of {} to {}", self.name(), type_name(*key), type_name(*value)),
            _ => self.name().to_owned(),
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
        let wrong = |expected: String, found: String| Err(Error::WrongStructure { expected, found });
        if content.len() < STRUCTURE_HEAD_BYTES || content[..2] != STRUCTURE_MAGIC {
            return wrong(self.name().to_owned(), "plain bytes".to_owned());
        }
        let (number, version) = (content[2], content[3]);
        let Some(structure) = Self::ALL.into_iter().find(|structure| *structure as u8 == number) else {
            let found = format!("structure {number}, which this version does not know");
            return wrong(self.name().to_owned(), found);
        };
        let of_version = |structure: Self, version: u8| format!("{} of version {version}", structure.name());
        if version != STRUCTURE_VERSION {
            return wrong(of_version(self, STRUCTURE_VERSION), of_version(structure, version));
        }
        if structure != self {
            return wrong(self.name().to_owned(), structure.name().to_owned());
        }
        let (mut rest, mut found) = (&content[STRUCTURE_HEAD_BYTES..], Vec::with_capacity(types.len()));
        for _ in types {
            let (number, after) = take_u32(rest).ok_or_else(|| self.damaged())?;
            found.push(number);
            rest = after;
        }
        if found != types {
            return wrong(self.describe(types), self.describe(&found));
        }
        Ok(rest)
    }

    /// The error of bytes that contradict their head.
    pub fn damaged(self) -> Error {
        Error::WrongStructure { expected: self.name().to_owned(), found: "damaged".to_owned() }
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
    use crate::structured::Flat;

    #[test]
    fn the_head_has_the_documented_bytes() {
        assert_eq!(Structure::Map.head(&[5, 0x0102]), [0xEB, 0x7D, 3, 1, 5, 0, 0, 0, 2, 1, 0, 0]);
        assert_eq!(Structure::ALL.map(|structure| structure as u8), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn another_structure_version_or_type_is_named() {
        let types = [String::TYPE, <[u32; 2]>::TYPE];
        let message = |content: &[u8]| Structure::Map.open(content, &types).unwrap_err().to_string();
        let says = |content: &[u8], said: &str| {
            assert_eq!(message(content), format!("the value is {said}: use another key, or remove the value"));
        };
        says(b"", "plain bytes, not a map");
        says(b"text of a client", "plain bytes, not a map");
        says(&Structure::RangeMap.head(&types), "a range map, not a map");
        says(&[0xEB, 0x7D, 9, 1], "structure 9, which this version does not know, not a map");
        says(&[0xEB, 0x7D, 3, 2], "a map of version 2, not a map of version 1");
        says(&[0xEB, 0x7D, 4, 2], "a range map of version 2, not a map of version 1");
        let of_u64 = Structure::Map.head(&[String::TYPE, u64::TYPE]);
        says(&of_u64, "a map of String to u64, not a map of String to [u32; 2]");
        let by_bytes = Structure::Map.head(&[<Vec<u8>>::TYPE, 1 << 16]);
        says(&by_bytes, "a map of bytes to type 65536, not a map of String to [u32; 2]");
        says(&Structure::Map.head(&types[..1]), "damaged, not a map");
        assert_eq!(
            Structure::Map.open(&[&Structure::Map.head(&types)[..], b"rest"].concat(), &types),
            Ok(&b"rest"[..])
        );
    }

    #[test]
    fn types_of_words_and_arrays_are_named() {
        let message = |structure: Structure, number: u32, wanted: u32| {
            structure.open(&structure.head(&[number]), &[wanted]).unwrap_err().to_string()
        };
        let words = [message(Structure::Words, 7, 8), message(Structure::Words, 0, 8), message(Structure::Words, 7, 0)];
        assert!(words[0].starts_with("the value is words of type 7, not words of type 8: "), "{words:?}");
        assert!(words[1].starts_with("the value is words without a type, not words of type 8: "), "{words:?}");
        assert!(words[2].starts_with("the value is words of type 7, not words without a type: "), "{words:?}");
        let array = message(Structure::FixedArray, u64::TYPE, i8::TYPE);
        assert!(array.starts_with("the value is a fixed array of u64, not a fixed array of i8: "), "{array}");
    }
}

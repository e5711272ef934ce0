//! The word of 32 bits that an entry has beside its value: a client's flags, or an annotation.
//!
//! An annotation is what the program that embeds the cache notes of an entry. A bit of the item's extension, and one
//! on flash, say which of both a word is. So clients may use all values of their flags, and no client's flags are taken
//! for an annotation.

/// The word of 32 bits beside a value: flags of a client, or an annotation of the program that embeds the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    word: u32,
    is_annotation: bool,
}

impl Flags {
    /// An annotation; clients see flags of 0.
    ///
    /// # Panics
    /// If it is 0: no annotation is the flags of 0.
    pub fn annotation(word: u32) -> Self {
        assert!(word != 0, "an annotation is not 0");
        Self { word, is_annotation: true }
    }

    /// A word from a lower tier, with the bit that says what it is.
    pub fn from_parts(word: u32, is_annotation: bool) -> Self {
        Self { word, is_annotation: is_annotation && word != 0 }
    }

    /// The word, and whether it is an annotation.
    pub fn to_parts(self) -> (u32, bool) {
        (self.word, self.is_annotation)
    }

    /// The flags that clients see.
    pub fn of_client(self) -> u32 {
        if self.is_annotation { 0 } else { self.word }
    }

    /// The annotation; 0 if there is none.
    pub fn to_annotation(self) -> u32 {
        if self.is_annotation { self.word } else { 0 }
    }

    /// Whether an item has bytes for it.
    #[inline(always)]
    pub(crate) fn is_present(self) -> bool {
        self.word != 0
    }

    /// Whether it is an annotation, which takes a bit of an item's extension.
    #[inline(always)]
    pub(crate) fn is_annotation(self) -> bool {
        self.is_annotation
    }
}

/// Flags of a client.
impl From<u32> for Flags {
    fn from(word: u32) -> Self {
        Self { word, is_annotation: false }
    }
}

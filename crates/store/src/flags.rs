//! The word of 32 bits that an entry has beside its value: a client's flags, or an annotation.
//!
//! An annotation is a note of the program that embeds the cache. A bit of the item's extension, and one on flash, tell
//! the two apart. So clients may use all values of their flags, and no client's flags are taken for an annotation. The
//! five upper bits of an annotation are the cost class of the entry (see `evict::objective`).

const COST_CLASS_SHIFT: u32 = 27;

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

    /// A word from a lower tier, with the bit that tells its kind.
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

    /// The cost class of the entry; 0, the usual one, without an annotation.
    pub(crate) fn cost_class(self) -> u8 {
        (self.to_annotation() >> COST_CLASS_SHIFT) as u8
    }

    /// An annotation that has no cost class yet, with this one.
    pub fn annotation_with_cost(annotation: u32, class: u8) -> u32 {
        let class = u32::from(class) << COST_CLASS_SHIFT;
        assert!(annotation >> COST_CLASS_SHIFT == 0, "the upper bits of {annotation:#x} are the cost class");
        annotation | class
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

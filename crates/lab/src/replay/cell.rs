use ebbtide::{ByteSize, Policy};

/// What one replay has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Which of the cells it is, if there are several.
    pub number: Option<usize>,
    pub memory: ByteSize,
    pub policy: Policy,
}

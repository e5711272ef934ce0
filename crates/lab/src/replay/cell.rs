use ebbtide::{ByteSize, Policy};

/// Parameters of one replay of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Number of the cell, if there are several.
    pub number: Option<usize>,
    pub memory: ByteSize,
    pub policy: Policy,
}

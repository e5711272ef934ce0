use crate::trace::Op;

/// The kind of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadKind {
    /// Of as many keys as a batch has.
    Get,
    Set,
    Delete,
    /// Stores only a key that is absent.
    Add,
    /// Stores only a key that is present.
    Replace,
    Append,
    Prepend,
    /// By 1.
    Incr,
    Decr,
}

impl LoadKind {
    pub(super) const ALL: [Self; 9] = [
        Self::Get,
        Self::Set,
        Self::Delete,
        Self::Add,
        Self::Replace,
        Self::Append,
        Self::Prepend,
        Self::Incr,
        Self::Decr,
    ];

    /// Kind of an operation of a trace. A `cas` follows a read of the same client: it fails only if the key is absent.
    pub(super) fn of(op: Op) -> Self {
        match op {
            Op::Get | Op::Gets => Self::Get,
            Op::Set => Self::Set,
            Op::Add => Self::Add,
            Op::Replace | Op::Cas => Self::Replace,
            Op::Append => Self::Append,
            Op::Prepend => Self::Prepend,
            Op::Delete => Self::Delete,
            Op::Incr => Self::Incr,
            Op::Decr => Self::Decr,
        }
    }

    /// The name of the command in memcached's protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Incr => "incr",
            Self::Decr => "decr",
        }
    }

    /// Whether it makes a value longer.
    pub(super) fn extends(self) -> bool {
        matches!(self, Self::Append | Self::Prepend)
    }

    /// Whether it changes a number.
    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Incr | Self::Decr)
    }
}

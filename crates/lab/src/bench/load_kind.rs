/// The kind of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadKind {
    /// Of as many keys as a batch has.
    Get,
    Set,
    Delete,
}

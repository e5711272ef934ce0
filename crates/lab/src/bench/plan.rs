use super::args::BenchArgs;
use super::objects::Objects;
use crate::Error;

/// The arguments and objects that all threads of a run share.
pub(super) struct Plan {
    pub(super) args: BenchArgs,
    pub(super) objects: Objects,
}

impl Plan {
    pub(super) fn new(args: &BenchArgs) -> Result<Self, Error> {
        Ok(Self { args: args.clone(), objects: Objects::new(args)? })
    }
}

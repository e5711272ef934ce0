use super::args::BenchArgs;
use super::objects::Objects;
use super::schedule::Schedule;
use crate::Error;
use crate::generate::Pace;

/// The arguments and objects that all threads of a run share.
pub(super) struct Plan {
    pub(super) args: BenchArgs,
    pub(super) objects: Objects,
    /// The rate of the requests, by the arguments or the configuration.
    pub(super) pace: Option<Pace>,
}

impl Plan {
    pub(super) fn new(args: &BenchArgs) -> Result<Self, Error> {
        let (mut args, objects) = (args.clone(), Objects::new(args)?);
        let mut pace = args.rate.map(|rate| Pace { rate, at_once: 0 });
        if let Objects::Recorded(recording) = &objects {
            args.fill |= recording.fills_misses;
            args.prefill |= recording.prepopulates;
            pace = pace.or(recording.pace);
        }
        Ok(Self { args, objects, pace })
    }

    /// The due times of one thread in a phase. Only the first phase has the burst of the configuration.
    pub(super) fn schedule(&self, thread: u16, is_first: bool) -> Option<Schedule> {
        let pace = self.pace.map(|pace| if is_first { pace } else { Pace { at_once: 0, ..pace } })?;
        Some(Schedule::new(&self.args, pace, thread))
    }
}

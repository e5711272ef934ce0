use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use super::input::{InputArgs, Source};
use super::output::{Destination, OutputArgs};
use crate::Error;
use crate::trace::{Request, STANDARD_INPUT};
use crate::workload::mix;

/// The arguments of `ebbtide trace merge`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MergeArgs {
    /// Trace files, plain or compressed with zstd or gzip; one of them may be - for standard input
    #[arg(required = true, num_args = 2..)]
    traces: Vec<PathBuf>,
    /// Let every trace begin at second 0
    #[arg(long)]
    align: bool,
    /// The same id in two traces is the same key; without this, keys of different traces are different
    #[arg(long)]
    same_keys: bool,
    /// Add the column `pool`, with the name of the file that a request is from, up to its first dot
    #[arg(long)]
    pools: bool,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One of the traces, and its next request.
struct Part {
    source: Source,
    name: String,
    origin: u64,
    next: Option<Request>,
}

impl Part {
    fn open(path: &Path, args: &MergeArgs) -> Result<Self, Error> {
        let mut source = Source::open(path, &args.input)?;
        let next = source.next()?;
        let origin = next.filter(|_| args.align).map_or(0, |request| request.time_seconds);
        let file = path.file_name().map_or_else(|| "trace".into(), |name| name.to_string_lossy().into_owned());
        let name = file.split('.').next().unwrap_or_default().replace(',', "_");
        Ok(Self { source, name, origin, next })
    }

    fn due(&self) -> Option<u64> {
        self.next.map(|request| request.time_seconds.saturating_sub(self.origin))
    }
}

pub(super) fn run(args: &MergeArgs) -> Result<(), Error> {
    if args.traces.iter().filter(|path| *path == Path::new(STANDARD_INPUT)).count() > 1 {
        let reason = "standard input is one trace; name files for the others".to_owned();
        return Err(Error::Configuration { option: "TRACES", value: STANDARD_INPUT.to_owned(), reason });
    }
    args.output.check_is_no_input(&args.traces.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    let mut parts = args.traces.iter().map(|path| Part::open(path, args)).collect::<Result<Vec<_>, _>>()?;
    let sample = parts[0].source.sample();
    if let Some(other) = parts.iter().find(|part| part.source.sample() != sample) {
        let reason = format!("it holds one key of {}, the first trace one of {sample}", other.source.sample());
        return Err(Error::Configuration { option: "TRACES", value: other.source.name().to_owned(), reason });
    }
    let mut destination = Destination::create(&args.output, args.pools, sample)?;
    // Of requests of the same second, those of the trace that is named first.
    let mut due: BinaryHeap<Reverse<(u64, usize)>> =
        parts.iter().enumerate().filter_map(|(index, part)| Some(Reverse((part.due()?, index)))).collect();
    while let Some(Reverse((time_seconds, index))) = due.pop() {
        let part = &mut parts[index];
        let Some(request) = part.next else { continue };
        let key = if args.same_keys { request.key } else { mix(request.key ^ mix(index as u64 + 1)) };
        destination.write(&Request { time_seconds, key, ..request }, &part.name)?;
        part.next = part.source.next()?;
        // Where the time of a trace falls, the latest one counts.
        due.extend(part.due().map(|next| Reverse((next.max(time_seconds), index))));
    }
    let sources: Vec<&Source> = parts.iter().map(|part| &part.source).collect();
    destination.finish(&sources)
}

use std::path::PathBuf;
use std::str::FromStr;

use super::input::{InputArgs, Source};
use super::output::{Destination, OutputArgs};
use crate::Error;
use crate::trace::{LabelBy, Op, Request};

/// The arguments of `ebbtide trace filter`. A request is kept if it meets all of them.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FilterArgs {
    /// Trace file, plain or compressed with zstd or gzip; - is standard input
    trace: PathBuf,
    /// Operations, such as get,gets
    #[arg(long, value_name = "OP,...", value_delimiter = ',')]
    ops: Vec<OpArg>,
    /// From this second on, counted from the first request
    #[arg(long, value_name = "SECONDS")]
    from: Option<u64>,
    /// Before this second, counted from the first request
    #[arg(long, value_name = "SECONDS")]
    until: Option<u64>,
    /// Objects whose key and value have at least this size
    #[arg(long, value_name = "BYTES")]
    min_size: Option<u64>,
    /// Objects whose key and value have at most this size
    #[arg(long, value_name = "BYTES")]
    max_size: Option<u64>,
    /// Requests of this pool, in a csv trace with the column
    #[arg(long, value_name = "NAME", conflicts_with = "prefix")]
    pool: Option<String>,
    /// Keys with this prefix, with or without the delimiter behind it, in a trace whose keys are text
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// The byte that ends a prefix
    #[arg(long, value_name = "CHARACTER", default_value = ":", value_parser = crate::mrc::one_byte)]
    delimiter: u8,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The name of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpArg(Op);

impl FromStr for OpArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Op::from_name(text.as_bytes()).map(Self).ok_or_else(|| {
            format!("{text}: give get, gets, set, add, replace, cas, append, prepend, delete, incr or decr")
        })
    }
}

impl FilterArgs {
    fn keeps(&self, request: &Request, origin: u64, label: &str) -> bool {
        let seconds = request.time_seconds.saturating_sub(origin);
        let bytes = u64::from(request.key_size) + u64::from(request.value_size);
        (self.ops.is_empty() || self.ops.contains(&OpArg(request.op)))
            && self.from.is_none_or(|from| seconds >= from)
            && self.until.is_none_or(|until| seconds < until)
            && self.min_size.is_none_or(|min| bytes >= min)
            && self.max_size.is_none_or(|max| bytes <= max)
            && self.label().is_none_or(|wanted| wanted == label)
    }

    /// The pool, or the prefix without the delimiter.
    fn label(&self) -> Option<&str> {
        let prefix =
            || self.prefix.as_deref().map(|text| text.strip_suffix(char::from(self.delimiter)).unwrap_or(text));
        self.pool.as_deref().or_else(prefix)
    }
}

/// # Errors
/// Errors of reading and writing traces; [`Error::NothingKept`].
pub(super) fn run(args: &FilterArgs) -> Result<(), Error> {
    args.output.check_is_no_input(&[&args.trace])?;
    let mut source = Source::open(&args.trace, &args.input)?;
    if let Some(prefix) = &args.prefix {
        source.label_by(LabelBy::Prefix(args.delimiter), "--prefix", prefix)?;
    } else if let Some(pool) = &args.pool {
        source.label_by(LabelBy::Pool, "--pool", pool)?;
    }
    let mut destination = Destination::create(&args.output, source.has_pools(), source.sample())?;
    let (mut origin, mut is_empty) = (None, true);
    while let Some(request) = source.next()? {
        let origin = *origin.get_or_insert(request.time_seconds);
        if args.keeps(&request, origin, source.label()) {
            destination.write(&request, source.pool())?;
            is_empty = false;
        }
    }
    source.check_has_requests()?;
    if is_empty {
        return Err(Error::NothingKept { trace: source.name().to_owned(), requests: source.requests_read() });
    }
    destination.finish(&[&source])
}

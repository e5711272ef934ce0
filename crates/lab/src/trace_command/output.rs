use std::io;
use std::path::{Path, PathBuf};

use ebbtide::message;

use super::input::Source;
use crate::Error;
use crate::trace::{Output, OutputFormat, Request, STANDARD_INPUT, TraceWriter, check_is_no_input};

/// Where a trace is written.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OutputArgs {
    /// The trace to write; compressed if it is named .zst or .gz; - is standard output
    #[arg(short = 'o', long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Format of the trace that is written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    to: OutputFormat,
    /// Replace the file if it exists
    #[arg(long, visible_alias = "force")]
    overwrite: bool,
}

impl OutputArgs {
    /// Refuses to write one of the traces that are read.
    pub(super) fn check_is_no_input(&self, inputs: &[&Path]) -> Result<(), Error> {
        check_is_no_input("--output", &self.output, inputs)
    }
}

/// A trace that is written.
pub(super) struct Destination {
    path: PathBuf,
    writer: TraceWriter<Output>,
}

impl Destination {
    pub(super) fn create(args: &OutputArgs, has_pools: bool, sample: u32) -> Result<Self, Error> {
        let output = Output::create(&args.output, args.overwrite)?;
        let writer =
            TraceWriter::new(output, args.to, has_pools, sample).map_err(|source| failed(&args.output, source))?;
        Ok(Self { path: args.output.clone(), writer })
    }

    pub(super) fn write(&mut self, request: &Request, pool: &str) -> Result<(), Error> {
        self.writer.write(request, pool).map_err(|source| failed(&self.path, source))
    }

    /// Ends the trace, and prints the numbers of requests read and written, and of malformed lines, to standard error.
    ///
    /// # Errors
    /// [`Error::NoRequests`], and nothing is written, if one of the sources was read to its end without a request.
    pub(super) fn finish(self, sources: &[&Source]) -> Result<(), Error> {
        sources.iter().try_for_each(|source| source.check_has_requests())?;
        let Self { path, writer } = self;
        let written = writer.finish().and_then(|(output, written)| output.finish().map(|()| written));
        let written = written.map_err(|source| failed(&path, source))?;
        let read: u64 = sources.iter().map(|source| source.requests_read()).sum();
        let malformed: u64 = sources.iter().map(|source| source.malformed()).sum();
        let skipped = if malformed > 0 { format!("; {malformed} malformed lines skipped") } else { String::new() };
        let name =
            if path == Path::new(STANDARD_INPUT) { "standard output".into() } else { path.display().to_string() };
        message!("{written} of {read} requests written to {name}{skipped}");
        Ok(())
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    if path == Path::new(STANDARD_INPUT) {
        return Error::Output(source);
    }
    Error::Write { trace: path.display().to_string(), source }
}

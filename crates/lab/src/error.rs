use std::io;

/// Why a command of the laboratory failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace cannot be opened or read on.
    #[error("{trace}: {source}")]
    Read { trace: String, source: io::Error },
    /// The trace cannot be written.
    #[error("cannot write {trace}: {source}")]
    Write { trace: String, source: io::Error },
    /// A file would be replaced.
    #[error("{path} exists; name another file, or replace it with --overwrite (or --force)")]
    Exists { path: String },
    /// One line or record violates the format. The reader can continue with the next one.
    #[error("{trace}: line {line}: {reason}")]
    Malformed {
        trace: String,
        /// Counted from 1; for binary traces the number of the record.
        line: u64,
        reason: String,
    },
    /// A value of a file of settings cannot be used. The reason begins with the path of its key.
    #[error("{path}: {reason}")]
    Refused { path: String, reason: String },
    /// The trace is in none of the known formats.
    #[error("{trace}: the format cannot be told from the content ({reason}); name it with --format")]
    UnknownFormat { trace: String, reason: String },
    /// The file is of a known kind that is no trace.
    #[error("{trace}: this is {what}, not a trace; {remedy}")]
    NotATrace { trace: String, what: &'static str, remedy: &'static str },
    /// Not one request could be read: a result would be that of a perfect cache.
    #[error("{trace}: not one request was read as {format} ({malformed} malformed lines); see --format for others")]
    NoRequests { trace: String, format: &'static str, malformed: u64 },
    /// The trace has no gets.
    #[error("{trace}: none of the {requests} requests is a get; a miss ratio needs gets")]
    NoGets { trace: String, requests: usize },
    /// A filter keeps no request.
    #[error("{trace}: none of the {requests} requests meets all conditions of the filter")]
    NothingKept { trace: String, requests: u64 },
    /// A picture could not be drawn.
    #[error("cannot draw the curves: {0}")]
    Drawing(String),
    /// An option that cannot be met.
    #[error("{option} {value}: {reason}")]
    Configuration { option: &'static str, value: String, reason: String },
    /// The cache cannot be built with these options.
    #[error(transparent)]
    Cache(#[from] ebbtide::Error),
    /// The replay was audited and the cache broke a promise.
    #[error(
        "the audit failed: {late_hits} hits past the expiry, {wrong_values} wrong values, {lost} objects lost before their time"
    )]
    Audit { late_hits: u64, wrong_values: u64, lost: u64 },
    /// The server cannot be reached, or closed a connection.
    #[error("{target}: {source}")]
    Connection { target: String, source: io::Error },
    /// The server sent an answer that the protocol does not allow here.
    #[error("{target}: unexpected answer: {reason}")]
    Protocol { target: String, reason: String },
    /// A server closed the connection before the end of the capture. The captured requests are written.
    #[error("{target}: {reason} after {seconds:.1} s of the capture; {requests} requests were captured until then")]
    CaptureEnded { target: String, reason: String, seconds: f64, requests: usize },
    /// The server received no requests during a capture.
    #[error("{target}: no request was seen within {seconds} s; capture while clients use the server, or for longer")]
    Idle { target: String, seconds: u64 },
    /// The machine does not suit the server that it was examined for.
    #[error("{problems} of these would keep a server from working")]
    Problems { problems: usize },
    /// The report cannot be written.
    #[error("cannot write the report: {0}")]
    Output(#[from] io::Error),
}

/// Exit codes of the commands beside 0, done. Those above 63 are of sysexits.h.
const NO: u8 = 1;
const USAGE: u8 = 2;
const NO_INPUT: u8 = 66;
const CANNOT_CREATE: u8 = 73;
const INPUT_OUTPUT: u8 = 74;

impl Error {
    /// The exit code of a command that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Audit { .. } | Self::Problems { .. } | Self::CaptureEnded { .. } | Self::Idle { .. } => NO,
            Self::Configuration { .. } | Self::Cache(ebbtide::Error::Configuration { .. }) => USAGE,
            Self::Read { .. }
            | Self::Malformed { .. }
            | Self::Refused { .. }
            | Self::UnknownFormat { .. }
            | Self::NotATrace { .. }
            | Self::NoRequests { .. }
            | Self::NothingKept { .. }
            | Self::NoGets { .. } => NO_INPUT,
            Self::Exists { .. } => CANNOT_CREATE,
            Self::Write { source, .. } if is_refused_path(source.kind()) => CANNOT_CREATE,
            Self::Write { .. }
            | Self::Drawing(_)
            | Self::Cache(_)
            | Self::Connection { .. }
            | Self::Protocol { .. }
            | Self::Output(_) => INPUT_OUTPUT,
        }
    }

    /// Whether the reader has closed the output, as `head` does.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(source) | Self::Write { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Whether a file could not be opened for writing, as against one that could not be written on.
fn is_refused_path(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(kind, AlreadyExists | IsADirectory | NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem)
}

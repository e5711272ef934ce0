//! Why the server did not start, with the exit code that memcached uses for it.

use std::process::ExitCode;

/// The message names the flag, the limit, and the remedy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A flag that does not exist, lacks its value, or has one that cannot be: exit code 1.
    #[error("{0}")]
    Illegal(String),
    /// An argument of a command that does not exist, or is missing: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A value outside of its limits: exit code 64 (EX_USAGE).
    #[error("{0}")]
    Limit(String),
    /// `-u` names an unknown user: exit code 67 (EX_NOUSER).
    #[error("-u {0}: can't find the user {0} to switch to; name one that `getent passwd` lists")]
    NoUser(String),
    /// The operating system refused: exit code 71 (EX_OSERR).
    #[error("{0}")]
    System(String),
    /// A file or directory cannot be created: exit code 73 (EX_CANTCREAT).
    #[error("{0}")]
    CannotCreate(String),
    /// An unknown or malformed line of a settings file: exit code 78 (EX_CONFIG).
    #[error("{0}")]
    Configuration(String),
}

impl Error {
    /// The error with its place in a settings file.
    pub fn at(self, place: &str) -> Self {
        match self {
            Self::Illegal(text) | Self::Configuration(text) => Self::Configuration(format!("{place}: {text}")),
            Self::Usage(text) => Self::Usage(format!("{place}: {text}")),
            Self::Limit(text) => Self::Limit(format!("{place}: {text}")),
            Self::System(text) => Self::System(format!("{place}: {text}")),
            Self::CannotCreate(text) => Self::CannotCreate(format!("{place}: {text}")),
            Self::NoUser(name) => Self::NoUser(name),
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Illegal(_) => 1,
            Self::Usage(_) => 2,
            Self::Limit(_) => 64,
            Self::NoUser(_) => 67,
            Self::System(_) => 71,
            Self::CannotCreate(_) => 73,
            Self::Configuration(_) => 78,
        })
    }
}

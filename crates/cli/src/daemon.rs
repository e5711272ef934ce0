//! `-d`: the program starts itself once more, in a session of its own, and leaves when the copy listens.
//!
//! The copy's stderr is a pipe to the starter until the copy is ready: errors at start-up are shown and the exit code
//! is the copy's, so that `ebbtide -d` on a port in use fails where memcached is silent. The copy signals that it is
//! ready with one byte that no message contains. Its stdout is the starter's stderr, kept for `-v`.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::process::{Command, ExitCode, Stdio};

use nix::unistd;

use crate::error::Error;

/// Set in the copy's environment.
const MARK: &str = "EBBTIDE_DAEMON";
const READY: u8 = 0x04;

/// Whether this process is the copy.
pub fn is_copy() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the copy and waits until it is ready (then the exit code is 0) or has failed (then it is the copy's).
pub fn start(args: &[OsString]) -> Result<ExitCode, Error> {
    let failed = |error: io::Error| Error::System(format!("-d: cannot start in background: {error}"));
    let mut copy = Command::new(std::env::current_exe().map_err(failed)?)
        .args(args)
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::from(io::stderr()))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut pipe = copy.stderr.take().expect("stderr is piped");
    let mut buffer = [0; 1024];
    loop {
        let length = pipe.read(&mut buffer).map_err(failed)?;
        let text = &buffer[..length];
        let ready = text.iter().position(|byte| *byte == READY);
        // A closed terminal is ignored.
        let _ = io::stderr().write_all(&text[..ready.unwrap_or(length)]);
        if ready.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        if length == 0 {
            let status = copy.wait().map_err(failed)?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(71)));
        }
    }
}

/// In the copy, before any thread starts: leaves the terminal.
pub fn detach() -> Result<(), Error> {
    unistd::setsid().map(drop).map_err(|error| Error::System(format!("-d: setsid: {error}")))
}

/// In the copy, once it listens: lets the starter go and points the standard streams away from it.
pub fn ready(verbose: bool) -> Result<(), Error> {
    let failed = |what: &str, error: io::Error| Error::System(format!("-d: {what}: {error}"));
    io::stderr().write_all(&[READY]).map_err(|error| failed("stderr", error))?;
    let null = OpenOptions::new().write(true).open("/dev/null").map_err(|error| failed("/dev/null", error))?;
    if verbose {
        unistd::dup2_stderr(io::stdout()).map_err(|error| failed("dup2", error.into()))?;
    } else {
        unistd::dup2_stderr(&null).map_err(|error| failed("dup2", error.into()))?;
    }
    unistd::dup2_stdout(&null).map_err(|error| failed("dup2", error.into()))?;
    std::env::set_current_dir("/").map_err(|error| failed("chdir", error))
}

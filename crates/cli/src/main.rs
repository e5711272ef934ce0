//! The binary `ebbtide`: reads the command line and hands over to the server or, for its commands, to the lab.
#![forbid(unsafe_code)]

mod config;
mod daemon;
mod error;
mod flags;
mod help;
mod lab;
mod listeners;
mod notify;
mod process;
mod serve;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use config::Request;
use error::Error;

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(lab::knows) {
        return lab::run(&args);
    }
    if args.first().is_some_and(|first| first == "serve") {
        args.remove(0);
    }
    match server(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ebbtide: {error}");
            error.exit_code()
        }
    }
}

fn server(args: &[OsString]) -> Result<ExitCode, Error> {
    match config::read(args.iter().cloned())? {
        Request::Help => show(&help::usage()),
        Request::Version => show(&help::version()),
        Request::License => show(&help::license()),
        Request::Check(settings) => show(&config::check::run(&settings)?),
        Request::Serve(settings) if settings.daemon && !daemon::is_copy() => {
            return daemon::start(args);
        }
        Request::Serve(settings) => {
            let args = args.to_vec();
            serve::run(*settings, move || config::read_pools(args.iter().cloned()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Unlike `print!`, does not mind a reader that has seen enough.
fn show(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

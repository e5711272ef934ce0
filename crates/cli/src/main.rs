//! The binary `ebbtide`: reads the command line and hands over to the server or, for its commands, to the lab.
#![forbid(unsafe_code)]

mod commands;
mod config;
mod daemon;
mod error;
mod examined;
mod flags;
mod fleet;
mod health;
mod help;
mod lab;
mod listeners;
mod manual;
mod notify;
mod process;
mod serve;
mod similar;
mod startup;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use ebbtide_server::ebbtide::message;

use config::Request;
use error::Error;

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(commands::knows) {
        return lab::run(&args);
    }
    // `ebbtide help trace info` is `ebbtide trace info --help`.
    if args.first().is_some_and(|first| first == "help") && args.get(1).is_some_and(commands::knows) {
        args.remove(0);
        args.push("--help".into());
        return lab::run(&args);
    }
    match answer(&mut args) {
        Ok(code) => code,
        Err(error) => {
            message!("ebbtide: {error}");
            error.exit_code()
        }
    }
}

/// Runs the command that the words name, or the server.
fn answer(args: &mut Vec<OsString>) -> Result<ExitCode, Error> {
    let second = args.get(1).and_then(|word| word.to_str()).map(str::to_owned);
    match args.first().and_then(|word| word.to_str()) {
        Some("help") => match second.as_deref() {
            None | Some("serve") => show(&help::usage(true)),
            Some("version") => show(&help::version()),
            Some("completions") => show("ebbtide completions SHELL prints completions for bash, zsh, fish or elvish"),
            Some("help") => show("ebbtide help [COMMAND] shows the help of the server, or of a command"),
            Some("man") => show("ebbtide man DIRECTORY writes a man page for the server and for each command"),
            Some(other) => {
                let hint = similar::hint(other, commands::all());
                return Err(Error::Usage(format!("help {other}: not a command; `ebbtide -h` lists them{hint}")));
            }
        },
        Some("version") => show(&help::version()),
        Some("completions") => manual::completions(second.as_deref())?,
        Some("man") => manual::pages(second.as_deref().map(Path::new))?,
        Some("serve") => {
            args.remove(0);
            return server(args);
        }
        _ => return server(args),
    }
    Ok(ExitCode::SUCCESS)
}

fn server(args: &[OsString]) -> Result<ExitCode, Error> {
    match config::read(args.iter().cloned())? {
        Request::Help { is_long } => show(&help::usage(is_long)),
        Request::Version => show(&help::version()),
        Request::License => show(&help::license()),
        Request::Check(settings) => show(&config::check::run(&settings)?),
        Request::Serve(settings) if settings.daemon && !daemon::is_copy() => {
            return daemon::start(args);
        }
        Request::Serve(settings) => {
            let args = args.to_vec();
            // A server in the background leaves it. Without one, relative names are refused when they are read.
            let folder = std::env::current_dir().unwrap_or_default();
            serve::run(*settings, move || config::read_pools(&folder, args.iter().cloned()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Unlike `print!`, does not mind a reader that has seen enough.
fn show(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

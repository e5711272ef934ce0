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
mod show;
mod similar;
mod startup;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use ebbtide_server::ebbtide::message;

use config::Request;
use error::Error;
use show::show;
use words::Word;

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
    let text: Vec<String> = args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (name, rest) = text.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    if let Some(word) = Word::named(name) {
        word.run(&rest.iter().map(String::as_str).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if name == "serve" {
        args.remove(0);
    } else if !name.trim().is_empty() && !name.starts_with('-') {
        let hint = similar::hint(name, commands::all());
        let reason = format!("{name}: not a command or flag; `ebbtide -h` lists both{hint}");
        return Err(Error::Usage(reason));
    }
    server(args)
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

//! `ebbtide doctor`: the server for which the machine is examined, from the arguments of the command, the flags of a
//! server and the files of settings that these name.

use std::ffi::OsString;

use clap::{Args, Command};
use ebbtide_lab::doctor::{DoctorArgs, Server};
use ebbtide_server::ebbtide::ByteSize;

use crate::config;
use crate::error::Error;
use crate::flags::pressure;

/// The words of the command with its arguments first, then `--` and the flags of the server, as clap wants them.
pub fn arranged(words: &[OsString]) -> Vec<OsString> {
    let command = DoctorArgs::augment_args(Command::new("doctor"));
    // The first word is the command itself.
    let (mut own, mut of_server) = (words[..1].to_vec(), Vec::new());
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        match follows(&command, &word.to_string_lossy()) {
            _ if word == "--" => of_server.extend(rest.by_ref().cloned()),
            None => of_server.push(word.clone()),
            Some(has_value) => {
                own.push(word.clone());
                own.extend(rest.by_ref().take(usize::from(has_value)).cloned());
            }
        }
    }
    own.push("--".into());
    own.extend(of_server);
    own
}

/// Whether the value of an argument of the command is in the next word; `None` for any other word.
fn follows(command: &Command, word: &str) -> Option<bool> {
    if matches!(word, "-h" | "--help") {
        return Some(false);
    }
    let (name, is_complete) = match word.strip_prefix("--") {
        Some(long) => (long.split('=').next().unwrap_or(long), long.contains('=')),
        None => (word.strip_prefix('-')?, word.len() > 2),
    };
    let is_named = |arg: &&clap::Arg| match word.starts_with("--") {
        true => arg.get_long() == Some(name),
        false => arg.get_short().is_some_and(|short| name.starts_with(short)),
    };
    let arg = command.get_arguments().find(is_named)?;
    Some(arg.get_action().takes_values() && !is_complete)
}

pub fn server(args: &DoctorArgs) -> Result<Server, Error> {
    let settings = config::read_unchecked(args.flags.iter().cloned()).map_err(usage)?;
    let monitor = args.memory_monitor.as_deref().map(|text| pressure::parse("--memory-monitor", text));
    let monitor = monitor.transpose().map_err(usage)?;
    let of_flash = settings.flash.paths.into_iter().map(|(path, _)| path);
    Ok(Server {
        memory: args.memory.unwrap_or(ByteSize::bytes(settings.memory_bytes)),
        connections: args.connections.unwrap_or(settings.connections as u64),
        backlog: args.backlog.unwrap_or(settings.backlog.into()),
        threads: args.threads.unwrap_or(settings.threads as u64),
        flash: args.path.iter().cloned().chain(of_flash).collect(),
        memory_file: args.memory_file.clone().or(settings.memory_file),
        memory_monitor: monitor.unwrap_or(settings.memory_monitor),
    })
}

/// Exit codes of commands differ from those of the server.
fn usage(error: Error) -> Error {
    Error::Usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use ebbtide_server::ebbtide::PressureMode;

    use super::*;

    #[derive(Parser)]
    struct TestArgs {
        #[command(flatten)]
        args: DoctorArgs,
    }

    fn args(words: &[&str]) -> DoctorArgs {
        let words: Vec<OsString> = std::iter::once(&"doctor").chain(words).map(OsString::from).collect();
        TestArgs::parse_from(arranged(&words)).args
    }

    fn of(words: &[&str]) -> Result<Server, Error> {
        server(&args(words))
    }

    #[test]
    fn flags_of_the_server_stay_in_order() {
        let words = "-u a -m 100t --flags-file f --path /p -vm64 -c2k --flash /x:1g --json -b 1k -l ::1 -- -e /f";
        let args = args(&words.split(' ').collect::<Vec<_>>());
        let of_server = ["-u", "a", "--flags-file", "f", "-vm64", "--flash", "/x:1g", "-l", "::1", "-e", "/f"];
        assert_eq!(args.flags, of_server);
        assert_eq!((args.memory, args.connections), (Some(ByteSize::bytes(100 << 40)), Some(2000)));
        assert_eq!((args.json, args.path.is_some(), args.backlog, args.memory_file), (true, true, Some(1000), None));
    }

    #[test]
    fn doctor_reads_the_files_of_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let (flags, toml) = (folder.path().join("flags"), folder.path().join("toml"));
        std::fs::write(&flags, "-m 100\n-c 10\n-b 7\n-e /m/file\n-u nobody\n--flash /f/a:1g\n").unwrap();
        std::fs::write(&toml, "threads = 3\nconn-limit = 20\nmemory-monitor = \"free,lower=1g,upper=2g\"\n").unwrap();
        let files = ["--flags-file", flags.to_str().unwrap(), "--config", toml.to_str().unwrap()];
        let found = of(&files).unwrap();
        assert_eq!((found.memory, found.connections, found.backlog, found.threads), (ByteSize::mib(100), 20, 7, 3));
        assert_eq!((found.flash, found.memory_file.as_deref()), (vec!["/f/a".into()], Some(Path::new("/m/file"))));
        assert!(found.memory_monitor.is_some_and(|monitor| monitor.mode == PressureMode::Free));
        let found = of(&[&files[..], &["-m", "64k", "-c", "2k", "-e", "/other", "--flash=/f/b:1g"]].concat()).unwrap();
        assert_eq!((found.memory, found.connections), (ByteSize::kib(64), 2000));
        assert_eq!((found.flash, found.memory_file.as_deref()), (vec!["/f/b".into()], Some(Path::new("/other"))));
    }

    #[test]
    fn what_the_server_refuses_is_a_usage_error() {
        for (words, part) in [
            (&["--frob"][..], "--frob: unknown flag"),
            (&["--flags-file", "/nonexistent"], "/nonexistent"),
            (&["--version"], "leave it out"),
            (&["-p", "70000"], "-p 70000"),
            (&["frob"], "frob: not a flag"),
            (&["--memory-monitor", "bad"], "--memory-monitor bad"),
        ] {
            let error = of(words).unwrap_err();
            assert!(matches!(&error, Error::Usage(text) if text.contains(part)), "{words:?}: {error}");
        }
    }
}

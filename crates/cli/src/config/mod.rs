//! Sources of settings: files of flags, TOML files, and over both the command line.
//!
//! Each is a layer of flags. A later layer wins, flag by flag; where it names addresses or a verbosity at all, the ones
//! of earlier layers are forgotten instead of added to. Files are layers in the order in which they are named, and the
//! command line is the last one, wherever in it they are named. Paths of flash and pools are as addresses.

pub mod check;
mod flags_file;
mod pool_table;
mod toml_file;

use std::ffi::OsString;
use std::path::Path;

use ebbtide_server::{PoolRule, check_rereadable};

use crate::error::Error;
use crate::flags::{self, Given, Origin, Settings};

/// Action that the command line requests.
#[derive(Debug)]
pub enum Request {
    Serve(Box<Settings>),
    /// Check these settings, and print the resulting configuration.
    Check(Box<Settings>),
    /// All of it, or a line or two for each flag.
    Help {
        is_long: bool,
    },
    Version,
    License,
}

/// A flag, and its place in a file; `None` for the command line.
struct PlacedValue {
    place: Option<String>,
    given: Given,
}

/// Reads the arguments, without the name of the program, and the files that they name.
pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Request, Error> {
    read_in(Path::new(""), args)
}

/// As [`read`], with relative paths of the files resolved in `folder`.
pub fn read_in(folder: &Path, args: impl IntoIterator<Item = OsString>) -> Result<Request, Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let is_long = args.iter().any(|arg| arg.to_str().is_some_and(|arg| arg.starts_with("--he")));
    let line = flags::read_line(args)?;
    match line.last().map(|given| given.flag.long) {
        Some("help") => return Ok(Request::Help { is_long }),
        Some("version") => return Ok(Request::Version),
        Some("license") => return Ok(Request::License),
        _ => {}
    }
    let check = line.iter().any(|given| given.flag.long == "check");
    let mut settings = layered(folder, line)?;
    settings.finish()?;
    let settings = Box::new(settings);
    Ok(if check { Request::Check(settings) } else { Request::Serve(settings) })
}

/// The settings in the arguments of a server and in their files, each within its limits, but not checked against each
/// other.
pub fn read_unchecked(args: impl IntoIterator<Item = OsString>) -> Result<Settings, Error> {
    let line = flags::read_line(args)?;
    match line.iter().find(|given| given.flag.is_question()) {
        Some(given) => Err(Error::Illegal(format!("--{} prints a text: leave it out here", given.flag.long))),
        None => layered(Path::new(""), line),
    }
}

/// The layers of the files that the command line names, and over them that of the command line.
fn layered(folder: &Path, line: Vec<Given>) -> Result<Settings, Error> {
    let mut settings = Settings::default();
    for given in &line {
        let path = folder.join(&given.value);
        match given.flag.long {
            "flags-file" => take(&mut settings, flags_file::read(&path)?)?,
            "config" => take(&mut settings, toml_file::read(&path)?)?,
            _ => {}
        }
    }
    take(&mut settings, line.into_iter().map(|given| PlacedValue { place: None, given }).collect())?;
    Ok(settings)
}

/// The pools in the arguments of a server and in the present content of their files. `folder`: the start folder of the
/// server.
pub fn read_pools(folder: &Path, args: impl IntoIterator<Item = OsString>) -> Result<Vec<PoolRule>, Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    for given in flags::read_line(args.iter().cloned())? {
        if matches!(given.flag.long, "flags-file" | "config") {
            let path = folder.join(&given.value);
            // The reader of the file tells that it is not there.
            if let Err(error) = check_rereadable(&path)
                && error.kind() == std::io::ErrorKind::InvalidInput
            {
                return Err(Error::System(format!("--{} {}: {error}", given.flag.long, path.display())));
            }
        }
    }
    match read_in(folder, args)? {
        Request::Serve(settings) => settings.pool_rules(),
        other => unreachable!("a server was started by these arguments: {other:?}"),
    }
}

fn take(settings: &mut Settings, layer: Vec<PlacedValue>) -> Result<(), Error> {
    let has = |long: &str| layer.iter().any(|placed| placed.given.flag.long == long);
    if has("listen") {
        settings.listen.clear();
        settings.unix_socket = None;
    }
    if has("verbose") {
        settings.verbosity = 0;
    }
    if has("pool") {
        settings.pools.clear();
    }
    if layer.iter().any(|placed| placed.given.names_flash()) {
        settings.flash.paths.clear();
    }
    // A flag of this layer takes the place of the same one of the layers before.
    settings.origins.retain(|origin| !has(origin.flag));
    for PlacedValue { place, given } in &layer {
        let origin = Origin { flag: given.flag.long, value: given.value.clone(), place: place.clone() };
        settings.origins.push(origin);
        settings.apply(given.flag, &given.value).map_err(|error| match place {
            Some(place) => error.at(place),
            None => error,
        })?;
    }
    Ok(())
}

/// The text of a file of settings.
fn text(flag: &str, path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::System(format!("{flag} {}: {error}; give a text file that this user may read", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn settings(files: &[(&str, &str)], line: &[&str]) -> Result<Settings, Error> {
        let folder = tempfile::tempdir().unwrap();
        let mut words = Vec::new();
        for (number, (flag, text)) in files.iter().enumerate() {
            let path = folder.path().join(format!("file{number}"));
            std::fs::write(&path, text).unwrap();
            words.extend([flag.into(), path.into_os_string()]);
        }
        match read(words.into_iter().chain(line.iter().map(OsString::from)))? {
            Request::Serve(settings) => Ok(*settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_wins_then_later_files() {
        let files = [
            ("--flags-file", "-m 100\n-p 1\n-c 10\n-l 127.0.0.1\n-vv\n"),
            ("--config", "port = 2\nconn-limit = 20\nlisten = [\"127.0.0.2\", \"127.0.0.3\"]\n"),
        ];
        let settings = settings(&files, &["-c", "30"]).unwrap();
        assert_eq!((settings.memory_bytes, settings.port, settings.connections), (100 << 20, 2, 30));
        assert_eq!(settings.listen, ["127.0.0.2", "127.0.0.3"]);
        assert_eq!(settings.verbosity, 2);
    }

    #[test]
    fn flash_paths_of_the_line_replace_file_ones() {
        let files = [("--flags-file", "-o ext_path=/a:1g,ext_path=/b:1g\n--flash-least-ttl 7\n")];
        let paths = |line: &[&str]| settings(&files, line).unwrap().flash.paths;
        assert_eq!(paths(&[]), [("/a".into(), 1 << 30), ("/b".into(), 1 << 30)]);
        assert_eq!(paths(&["--flash", "/c:2g"]), [("/c".into(), 2 << 30)]);
        assert_eq!(paths(&["-o", "modern,ext_path=/d:2g"]), [("/d".into(), 2 << 30)]);
    }

    #[test]
    fn each_setting_knows_where_it_is_from() {
        let files = [("--flags-file", "-m 100\n-c 10\n"), ("--config", "port = 2\nconn-limit = 20\n")];
        let settings = settings(&files, &["-c", "30", "-vv"]).unwrap();
        let table = crate::startup::settings_table(&settings, crate::startup::Derived::default());
        let row = |start: &str| table.iter().find(|row| row.starts_with(start)).unwrap_or_else(|| panic!("{start}"));
        assert!(row("--memory-limit 100 (").ends_with("/file0:1)"));
        assert!(row("--port 2 (").ends_with("/file1:1)"));
        assert_eq!(row("--conn-limit "), "--conn-limit 30 (command line)");
        for default in [
            "--udp-port 0",
            "--flash-admission all,min-ttl:10",
            "--flash-small-threshold 2,log:10",
            "--flash-endurance 1dwpd,spare:7",
            "--busy-poll auto",
            "--max-item-size 1m",
            &format!("--threads {}", Settings::default().threads),
        ] {
            assert_eq!(*row(default), format!("{default} (default)"));
        }
        assert_eq!(table.iter().filter(|row| row.starts_with("--verbose")).count(), 2);
    }

    #[test]
    fn the_line_replaces_addresses_and_verbosity_of_files() {
        let files = [("--flags-file", "-s /run/socket\n-vv\n")];
        let settings = settings(&files, &["-v", "-l", "127.0.0.1"]).unwrap();
        assert_eq!((settings.verbosity, settings.unix_socket), (1, None));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        for flag in ["--flags-file", "--config"] {
            let error = read([flag.into(), "/nonexistent/file".into()]).unwrap_err();
            assert!(matches!(&error, Error::System(text) if text.contains("/nonexistent/file")), "{error}");
        }
    }
}

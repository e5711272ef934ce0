//! The whole command line in `clap`, for man pages and completions. The server parses its flags without clap, as
//! memcached does.

use std::io::{self, Write};
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;

use crate::error::Error;
use crate::flags::FLAGS;
use crate::lab;

/// The server's flags and all commands.
pub fn command() -> Command {
    let command = lab::command()
        .about("A memcached-compatible cache server, and tools that measure caches")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .version(env!("CARGO_PKG_VERSION"));
    let flags = FLAGS.iter().filter(|flag| !flag.is_hidden() && !flag.help.is_empty()).map(|flag| {
        let arg = Arg::new(flag.long).long(flag.long).help(flag.text()).help_heading(flag.group().title());
        let arg = if let Some(short) = flag.short { arg.short(short) } else { arg };
        match flag.value {
            Some(value) => arg.value_name(value.to_uppercase()).action(ArgAction::Append),
            None => arg.action(ArgAction::Count),
        }
    });
    command.args(flags).subcommands([
        Command::new("serve").about("Start the server, as without a command"),
        Command::new("help").about("Show the help of the server, or of a command"),
        Command::new("version").about("Show the version"),
        Command::new("completions").about("Print completions for bash, zsh, fish or elvish"),
        Command::new("man").about("Write the man pages into a directory"),
    ])
}

/// Prints the completions of a shell.
pub fn completions(shell: Option<&str>) -> Result<(), Error> {
    let known = shell.and_then(|name| name.parse::<Shell>().ok());
    let Some(shell) = known else {
        let given = shell.unwrap_or("completions");
        return Err(Error::Usage(format!("{given}: name a shell: ebbtide completions bash, zsh, fish or elvish")));
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "ebbtide", &mut text);
    // A reader that has seen enough is no error.
    let _ = io::stdout().write_all(&text);
    Ok(())
}

/// Writes a man page for the server and for each command into a directory.
pub fn pages(directory: Option<&Path>) -> Result<(), Error> {
    let Some(directory) = directory else {
        return Err(Error::Usage("man: name a directory: ebbtide man DIRECTORY".to_owned()));
    };
    let failed = |error: io::Error| Error::CannotCreate(format!("man {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(command().disable_help_subcommand(true), directory).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        pages(Some(folder.path())).unwrap();
        for name in crate::commands::NAMES {
            assert!(folder.path().join(format!("ebbtide-{name}.1")).exists(), "{name}");
        }
        let page = std::fs::read_to_string(folder.path().join("ebbtide.1")).unwrap();
        assert!(page.contains("memory\\-limit") && page.contains("ebbtide\\-replay"));
        let refused = pages(Some(Path::new("/dev/null/man"))).unwrap_err();
        assert_eq!(refused.exit_code(), std::process::ExitCode::from(73));
        assert!(matches!(pages(None), Err(Error::Usage(_))));
        assert!(matches!(completions(Some("frob")), Err(Error::Usage(_))));
    }
}

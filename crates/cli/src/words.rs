//! The commands without arguments of their own in `clap`: `help`, `version`, `completions` and `man`.

use std::path::Path;

use crate::error::Error;
use crate::show::show;
use crate::{commands, help, manual, similar};

/// A command with its help.
pub struct Word {
    name: &'static str,
    help: &'static str,
    /// Words that may follow.
    max_words: usize,
}

const WORDS: [Word; 4] = [
    Word { name: "help", help: "ebbtide help [COMMAND] shows the help of the server, or of a command", max_words: 1 },
    Word { name: "version", help: "ebbtide version prints the version of memcached and of Ebbtide", max_words: 0 },
    Word {
        name: "completions",
        help: "ebbtide completions SHELL prints completions for bash, zsh, fish or elvish",
        max_words: 1,
    },
    Word {
        name: "man",
        help: "ebbtide man DIRECTORY writes a man page for the server and for each command",
        max_words: 1,
    },
];

impl Word {
    pub fn named(name: &str) -> Option<&'static Self> {
        WORDS.iter().find(|word| word.name == name)
    }

    /// Runs the command with the words behind its name.
    pub fn run(&self, rest: &[&str]) -> Result<(), Error> {
        if rest.iter().any(|word| matches!(*word, "-h" | "--help")) {
            show(self.help);
            return Ok(());
        }
        let is_superfluous = |(at, word): &(usize, &&str)| word.starts_with('-') || *at >= self.max_words;
        if let Some((_, word)) = rest.iter().enumerate().find(is_superfluous) {
            return Err(Error::Usage(format!("{} {word}: leave {word} out; {}", self.name, self.help)));
        }
        let first = rest.first().copied();
        match self.name {
            "version" => show(&help::version()),
            "completions" => manual::completions(first)?,
            "man" => manual::pages(first.map(Path::new))?,
            _ => help_of(first)?,
        }
        Ok(())
    }
}

/// `ebbtide help`, of the server or of a command that is not of the lab.
fn help_of(command: Option<&str>) -> Result<(), Error> {
    match command {
        None | Some("serve") => show(&help::usage(true)),
        Some(name) => match Word::named(name) {
            Some(word) => show(word.help),
            None => {
                let hint = similar::hint(name, commands::all());
                return Err(Error::Usage(format!("help {name}: not a command; `ebbtide -h` lists them{hint}")));
            }
        },
    }
    Ok(())
}

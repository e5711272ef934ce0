//! Output of `-h`, `-V` and `-i`.

use crate::flags::{FLAGS, Flag, Group, Meaning, OPTIONS};

/// The first line has the format of memcached 1.6, because start scripts parse it, with the version that the command
/// `version` answers; the second line names Ebbtide and its version.
pub fn version() -> String {
    let (spoken, own) = (ebbtide_server::VERSION, env!("CARGO_PKG_VERSION"));
    format!("memcached {spoken}\nebbtide {own} (speaks the memcached 1.6 protocols)")
}

pub fn license() -> String {
    format!("ebbtide {}\nApache License, Version 2.0; the text is in the file LICENSE.", env!("CARGO_PKG_VERSION"))
}

/// Columns of the help, and of its left part.
const WIDTH: usize = 80;
const LEFT: usize = 30;

/// The commands with their effects.
const COMMANDS: [(&str, &str); 16] = [
    ("[serve] [flags]", "start the server"),
    ("replay TRACE", "the miss ratio of a trace"),
    ("mrc TRACE", "the miss ratio of a trace by the memory of the cache"),
    ("advise TRACE", "memory and flash for a hit ratio or a budget"),
    ("capture HOST:PORT", "a trace of a live server"),
    ("trace COMMAND", "what a trace is like; convert, filter, sample, merge"),
    ("generate", "a synthetic workload as a trace"),
    ("bench", "load, on the engine or on a server"),
    ("top [HOST:PORT]", "what a live server does"),
    ("dashboard --nodes LIST", "one page for several servers"),
    ("health", "whether the server in this container serves"),
    ("doctor", "what of this machine should be otherwise"),
    ("help [COMMAND]", "all of this, or the help of a command"),
    ("version", "the version"),
    ("completions SHELL", "completions for bash, zsh, fish or elvish"),
    ("man DIRECTORY", "the man pages, written into a directory"),
];

/// The help: the first line of each flag's help, or, if long, all of it, the options of `-o`, and the flags without
/// effect here.
pub fn usage(is_long: bool) -> String {
    let mut text = version();
    text.push_str("\n\nusage: ebbtide COMMAND ...\n");
    for (command, what) in COMMANDS {
        row(&mut text, &format!("  {command}"), what);
    }
    let told = || FLAGS.iter().filter(|flag| !flag.is_hidden());
    for group in Group::ALL {
        let of_group: Vec<&Flag> = told().filter(|flag| flag.group() == group && !flag.help.is_empty()).collect();
        if !of_group.is_empty() {
            text.push_str(&format!("\n{}:\n", group.title()));
        }
        for flag in of_group {
            row(&mut text, &left(flag), &if is_long { flag.text() } else { beginning(flag) });
        }
    }
    if !is_long {
        // Tools search this text for options, for `ext_path` as a sign of external storage.
        let has_help = |name: &str| EXTENDED_HELP.iter().any(|(of, _)| *of == name);
        for (title, is_used) in [("Options of -o", true), ("Options of -o without a meaning here", false)] {
            text.push_str(&format!("\n{title}:\n"));
            let names: Vec<&str> = accepted_options().filter(|name| has_help(name) == is_used).collect();
            wrapped(&names.join(" "), WIDTH - 2).iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text.push_str("\n`ebbtide --help` tells all of it; `ebbtide help COMMAND` tells of a command.\n");
        return text;
    }
    let mut silent: Vec<String> = told().filter(|flag| flag.help.is_empty()).map(Flag::name).collect();
    extended(&mut text, &mut silent);
    text.push_str("\nKnown to memcached and without a meaning here:\n");
    wrapped(&silent.join(" "), WIDTH - 2).iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text.push_str("\nExit codes of the server: 0 done, 1 a malformed flag, 64 a value outside of its\n");
    text.push_str("limits, 67 no such user, 71 refused by the system, 78 a malformed line of a\n");
    text.push_str("settings file. Of a command: 0 done, 1 the answer is no, 2 no such command or a\n");
    text.push_str("malformed argument, 66 no such trace or none that can be read, 73 a file cannot\n");
    text.push_str("be created, 74 a file or a server failed.\n");
    text
}

fn left(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
    let value = flag.value.map_or(String::new(), |value| format!("=<{value}>"));
    format!("  {short}--{}{value}", flag.long)
}

/// The help up to its first explanation, followed by the default. A colon inside of a word begins none.
fn beginning(flag: &Flag) -> String {
    let help = flag.text();
    let before_default = help.find(" (default").unwrap_or(help.len());
    let ends = [help[..before_default].find(';'), help[..before_default].find(": ")];
    let Some(end) = ends.into_iter().flatten().min() else { return help };
    let default = flag.default_text().map_or_else(String::new, |default| format!(" (default: {default})"));
    format!("{}{default}", &help[..end])
}

/// A line with two columns; where the left one is too long, the right one begins on the next line.
fn row(text: &mut String, left: &str, right: &str) {
    let mut lines = wrapped(right, WIDTH - LEFT).into_iter();
    let first = if left.len() < LEFT { lines.next().unwrap_or_default() } else { String::new() };
    text.push_str(format!("{left:<LEFT$}{first}").trim_end());
    text.push('\n');
    lines.for_each(|line| text.push_str(&format!("{:LEFT$}{line}\n", "")));
}

/// Breaks text between words into lines of at most `columns` columns.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one line at least");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The options of `-o` that do not stop the start.
fn accepted_options() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().filter(|(.., meaning)| !matches!(meaning, Meaning::Refused(_))).map(|(name, ..)| *name)
}

/// The options of `-o` with an effect and its description, and the names of the others.
fn extended(text: &mut String, silent: &mut Vec<String>) {
    text.push_str("\nOptions of -o, as -o name=value,name:\n");
    for (name, takes_value, meaning) in OPTIONS {
        let Some((_, help)) = EXTENDED_HELP.iter().find(|(of, _)| of == name) else {
            if !matches!(meaning, Meaning::Refused(_)) {
                silent.push(format!("-o {name}"));
            }
            continue;
        };
        let left = if *takes_value { format!("  - {name}=<value>:") } else { format!("  - {name}:") };
        row(text, &left, help);
    }
}

/// Of those that do something.
const EXTENDED_HELP: &[(&str, &str)] = &[
    ("idle_timeout", "seconds after which idle clients are closed (default: 0, never)"),
    ("ext_path", "file to write to for external storage, as --flash: ext_path=/mnt/d1/extstore:1G"),
    ("ext_threads", "threads that read and write where the system has no io_uring (default: 16)"),
    ("ext_item_size", "store values of at least this many bytes externally (default: 0)"),
    ("ext_item_age", "store values idle this many seconds externally, before memory is full (default: never)"),
    ("ext_low_ttl", "store no values that expire in fewer seconds (default: 10)"),
    ("ext_recache_rate", "recache a value every N accesses, as --flash-promotion one-in:N"),
    ("ext_drop_unread", "do not rewrite unread values (given)"),
    ("ssl_chain_cert", "certificate chain, PEM"),
    ("ssl_key", "private key, if it is not in the chain's file"),
    ("ssl_keyformat", "format of the private key; PEM"),
    ("ssl_verify_mode", "what is asked of clients: 0 nothing, 1 a certificate if there is one, 2 or 3 a certificate"),
    ("ssl_ca_cert", "certificates by which those of clients are verified"),
    ("ssl_ciphers", "ciphers to offer"),
    ("ssl_wbuf_size", "KiB of the write buffers"),
    ("ssl_session_cache", "resume sessions"),
    ("ssl_min_version", "min version of TLS: 2 for 1.2, 3 for 1.3"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_server::ebbtide::Policy;

    #[test]
    fn the_help_names_exactly_the_visible_flags() {
        let text = usage(true);
        for flag in FLAGS {
            assert_eq!(text.contains(&flag.name()), !flag.is_hidden(), "{}", flag.long);
            let is_short = usage(false).contains(&format!("--{}", flag.long));
            assert_eq!(is_short, !flag.is_hidden() && !flag.help.is_empty(), "{}", flag.long);
        }
        assert_eq!(text.lines().next(), Some(format!("memcached {}", ebbtide_server::VERSION).as_str()));
        assert!(text.starts_with("memcached 1.6."));
        for (name, _, meaning) in OPTIONS {
            let is_told = EXTENDED_HELP.iter().any(|(of, _)| of == name);
            assert_eq!(is_told, matches!(meaning, Meaning::Used) || *name == "ext_drop_unread", "{name}");
            assert_eq!(text.contains(name), !matches!(meaning, Meaning::Refused(_)), "{name}");
        }
        assert!(text.contains("ext_path=<value>:"));
        for name in Policy::ALL.map(Policy::name) {
            assert!(usage(false).split_whitespace().any(|word| word == name), "{name}");
        }
    }

    #[test]
    fn the_help_names_each_extended_option() {
        for (text, (name, _, meaning)) in
            [usage(false), usage(true)].iter().flat_map(|text| OPTIONS.iter().map(move |option| (text, option)))
        {
            let is_told = text.split_whitespace().any(|word| word.split(['=', ':']).next() == Some(name));
            assert_eq!(is_told, !matches!(meaning, Meaning::Refused(_)), "-o {name}");
        }
    }

    #[test]
    fn the_help_names_every_command_of_the_lab() {
        for (name, text) in crate::commands::NAMES.iter().flat_map(|name| [(name, usage(true)), (name, usage(false))]) {
            assert!(text.contains(&format!("\n  {name}")), "{name}");
        }
    }

    #[test]
    fn the_help_fits_a_terminal_of_80_columns() {
        for is_long in [false, true] {
            for line in usage(is_long).lines() {
                assert!(line.chars().count() <= WIDTH || !line.trim().contains(' '), "{line}");
            }
        }
        assert!(usage(false).len() < usage(true).len() * 3 / 4);
        let flag = FLAGS.iter().find(|flag| flag.long == "listen").expect("a flag");
        assert_eq!(beginning(flag), "address to listen on (default: all)");
    }
}

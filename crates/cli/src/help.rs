//! What `-h`, `-V` and `-i` print.

use crate::flags::{FLAGS, Meaning, OPTIONS};

/// The first line is what memcached 1.6 prints, because start scripts parse it, with the version that the command
/// `version` answers; the second says who is really here.
pub fn version() -> String {
    let (spoken, own) = (ebbtide_server::VERSION, env!("CARGO_PKG_VERSION"));
    format!("memcached {spoken}\nebbtide {own} (speaks the memcached 1.6 protocols)")
}

pub fn license() -> String {
    format!("ebbtide {}\nApache License, Version 2.0; the text is in the file LICENSE.", env!("CARGO_PKG_VERSION"))
}

/// A line or two for each flag that does something here, then the names of the rest.
pub fn usage() -> String {
    let mut text = version();
    text.push_str(
        "\n\nusage: ebbtide [serve] [flags]     the server\n\
         \x20      ebbtide replay <trace> ...  the miss ratio of a trace (--help tells more)\n\
         \x20      ebbtide mrc <trace> ...     the miss ratio of a trace by the memory of the cache (--help tells more)\n\
         \x20      ebbtide advise <trace> ...  memory and flash for a hit ratio or a budget (--help tells more)\n\
         \x20      ebbtide capture <host:port> a trace of a live server (--help tells more)\n\
         \x20      ebbtide trace ...           what a trace is like, and other traces of it (--help tells more)\n\
         \x20      ebbtide generate ...        a synthetic workload as a trace (--help tells more)\n\
         \x20      ebbtide bench ...           load, on the engine or on a server (--help tells more)\n\
         \x20      ebbtide top [host:port]     what a live server does (--help tells more)\n\
         \x20      ebbtide doctor ...          what of this machine should be otherwise (--help tells more)\n\n",
    );
    let mut silent = Vec::new();
    for flag in FLAGS.iter().filter(|flag| !flag.is_hidden()) {
        if flag.help.is_empty() {
            silent.push(flag.name());
            continue;
        }
        let short = flag.short.map_or("    ".to_owned(), |s| format!("-{s}, "));
        let value = flag.value.map_or(String::new(), |v| format!("=<{v}>"));
        let left = format!("{short}--{}{value}", flag.long);
        for (number, line) in flag.help.lines().enumerate() {
            let left = if number == 0 { left.as_str() } else { "" };
            text.push_str(&format!("{left:<31}{line}\n"));
        }
    }
    extended(&mut text, &mut silent);
    text.push_str(&format!("\nKnown to memcached and without a meaning here: {}\n", silent.join(" ")));
    text
}

/// The options of `-o` that do something, each with what it does, and the names of the others.
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
        text.push_str(&format!("{left:<31}{help}\n"));
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

    #[test]
    fn the_help_names_every_flag_that_is_not_hidden() {
        let text = usage();
        for flag in FLAGS {
            assert_eq!(text.contains(&flag.name()), !flag.is_hidden(), "{}", flag.long);
        }
        assert_eq!(text.lines().next(), Some(format!("memcached {}", ebbtide_server::VERSION).as_str()));
        assert!(text.starts_with("memcached 1.6."));
        for (name, _, meaning) in OPTIONS {
            let is_told = EXTENDED_HELP.iter().any(|(of, _)| of == name);
            assert_eq!(is_told, matches!(meaning, Meaning::Used) || *name == "ext_drop_unread", "{name}");
            assert_eq!(text.contains(name), !matches!(meaning, Meaning::Refused(_)), "{name}");
        }
        assert!(text.contains("ext_path=<value>:"));
    }

    #[test]
    fn the_help_names_every_command_of_the_lab() {
        let text = usage();
        for name in crate::lab::NAMES {
            assert!(text.contains(&format!("       ebbtide {name} ")), "{name}");
        }
    }
}

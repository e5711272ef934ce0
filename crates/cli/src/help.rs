//! What `-h`, `-V` and `-i` print.

use crate::flags::FLAGS;

/// The first line is what memcached 1.6 prints, because start scripts parse it; the second says who is really here.
pub fn version() -> String {
    format!(
        "memcached {}\nebbtide {} (speaks the memcached 1.6 protocols)",
        ebbtide_server::VERSION,
        env!("CARGO_PKG_VERSION")
    )
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
    text.push_str(&format!("\nKnown to memcached and without a meaning here: {}\n", silent.join(" ")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_flag_but_those_for_tests() {
        let text = usage();
        for flag in FLAGS {
            assert_eq!(text.contains(&flag.name()), flag.long != "test-clock", "{}", flag.long);
        }
        assert!(text.starts_with("memcached 1.6."));
    }
}

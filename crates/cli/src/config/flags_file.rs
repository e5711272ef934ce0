//! A file of flags, as Debian's `/etc/memcached.conf`: words of the command line, usually one flag a line; `#` and what
//! follows is a comment. As the script that reads the file for memcached does, `-d`, `-h` and `logfile` are left out.

use std::path::Path;

use super::{PlacedValue, text};
use crate::error::Error;
use crate::flags;

pub fn read(path: &Path) -> Result<Vec<PlacedValue>, Error> {
    let text = text("--flags-file", path)?;
    let mut layer = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{}:{}", path.display(), number + 1);
        let words = words(line).map_err(|error| error.at(&place))?;
        if matches!(words.first().map(String::as_str), None | Some("-d" | "-h" | "logfile")) {
            continue;
        }
        for given in flags::read_line(words.into_iter().map(Into::into)).map_err(|error| error.at(&place))? {
            if !given.flag.is_for_files() {
                let reason = format!("--{} is for the command line; remove it here", given.flag.long);
                return Err(Error::Illegal(reason).at(&place));
            }
            layer.push(PlacedValue { place: Some(place.clone()), given });
        }
    }
    Ok(layer)
}

/// Words between blanks; quotes keep blanks and `#`, a backslash keeps the character after it.
fn words(line: &str) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (_, '\\') => word.get_or_insert_default().extend(rest.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(open) => Err(Error::Illegal(format!("{open} is not closed; close it on the same line"))),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    const DEBIAN: &str = "# memcached default config file\n-d\nlogfile /var/log/memcached.log\n\n# -v\n-m 64 # megabytes\n\
        -p 11311\n-u memcache\n-l 127.0.0.1\n# -c 1024\n-P /var/run/memcached/memcached.pid\n-o modern,idle_timeout=9\n";

    #[test]
    fn debians_file_is_understood() {
        let settings = settings(&[("--flags-file", DEBIAN)], &[]).unwrap();
        assert_eq!((settings.port, settings.memory_bytes, settings.daemon), (11311, 64 << 20, false));
        assert_eq!(settings.user.as_deref(), Some("memcache"));
        assert_eq!(settings.pid_file.as_deref(), Some(Path::new("/var/run/memcached/memcached.pid")));
        assert_eq!(settings.warnings, [""; 0]);
    }

    #[test]
    fn words_are_split_as_a_shell_would() {
        assert_eq!(words(r#" -s "/run/a b" '-m 64' -o a\#b # c"#).unwrap(), ["-s", "/run/a b", "-m 64", "-o", "a#b"]);
        assert!(words("-s 'x").is_err());
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        for (text, line, part) in [
            ("-m 64\n-Q\n", 2, "-Q"),
            ("-m\n", 1, "needs a value"),
            ("\n\n-p 70000", 3, "-p 70000"),
            ("-m 64\n--check\n", 2, "--check"),
            ("memory 64\n", 1, "memory"),
            ("-s \"a\n", 1, "not closed"),
        ] {
            let message = settings(&[("--flags-file", text)], &[]).unwrap_err().to_string();
            assert!(message.contains(&format!("file0:{line}: ")) && message.contains(part), "{message}");
        }
    }
}

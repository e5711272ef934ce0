//! A TOML file: the keys are the long names of the flags, and `[extended]` has the options of `-o`.
//!
//! ```toml
//! memory-limit = "4g"
//! listen = ["127.0.0.1", "[::1]:11311"]
//! verbose = 2
//! policy = "s3fifo"
//!
//! [extended]
//! idle_timeout = 60
//!
//! [[pool]]
//! name = "users"
//! prefix = ["users:", "sess/"]
//! ```
//! A flag without a value is `true`; `false` is as if it were not there.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::pool_table::{self, scalar};
use super::{PlacedValue, text};
use crate::error::Error;
use crate::flags::{self, FLAGS, Flag, Given};
use crate::similar;

pub fn read(path: &Path) -> Result<Vec<PlacedValue>, Error> {
    let text = text("--config", path)?;
    let place = |offset: usize| {
        let line = 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
        format!("{}:{line}", path.display())
    };
    let table = DeTable::parse(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Error::Illegal(error.message().replace('\n', " ")).at(&place(offset))
    })?;
    let mut layer = Vec::new();
    for (key, value) in table.get_ref() {
        let at = place(key.span().start);
        let Some(flag) = Flag::by_exact_long(key.get_ref()).filter(|flag| flag.is_for_files()) else {
            let known = FLAGS.iter().filter(|flag| flag.is_for_files() && !flag.is_hidden()).map(|flag| flag.long);
            let meant = flags::meant_flag(key.get_ref()).or_else(|| similar::nearest(key.get_ref(), known));
            let hint = meant.map_or_else(String::new, |long| format!("; did you mean {long}?"));
            let reason =
                format!("{}: unknown key; keys are the long names that `ebbtide -h` lists{hint}", key.get_ref());
            return Err(Error::Illegal(reason).at(&at));
        };
        match value.get_ref() {
            DeValue::Table(options) if flag.long == "extended" => {
                for (name, value) in options {
                    let at = place(name.span().start);
                    let option = option(name.get_ref(), value).map_err(|error| error.at(&at))?;
                    layer.extend(option.map(|value| PlacedValue { place: Some(at), given: Given { flag, value } }));
                }
            }
            _ if flag.long == "pool" => {
                let pools = pool_table::values(value).map_err(|(offset, error)| error.at(&place(offset)))?;
                layer.extend(
                    pools.into_iter().map(|(offset, value)| PlacedValue {
                        place: Some(place(offset)),
                        given: Given { flag, value },
                    }),
                );
            }
            _ => {
                for value in values(flag, value).map_err(|error| error.at(&at))? {
                    layer.push(PlacedValue { place: Some(at.clone()), given: Given { flag, value } });
                }
            }
        }
    }
    Ok(layer)
}

/// The values of `flag` on an equivalent command line, one for each occurrence.
fn values(flag: &Flag, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Error> {
    let unfit = |wanted: &str| Error::Illegal(format!("{}: give {wanted}", flag.long));
    match (value.get_ref(), flag.value) {
        (DeValue::Boolean(given), None) => Ok(vec![String::new(); usize::from(*given)]),
        (DeValue::Integer(times), None) if flag.long == "verbose" => match times.as_str().parse() {
            Ok(times @ 0..=9) => Ok(vec![String::new(); times]),
            _ => Err(unfit("a number from 0 to 9")),
        },
        (_, None) => Err(unfit("true or false")),
        (DeValue::Array(list), Some(_)) => {
            list.iter().map(|value| scalar(value).ok_or_else(|| unfit("strings or numbers"))).collect()
        }
        (_, Some(_)) => match scalar(value) {
            Some(value) if !value.trim().is_empty() => Ok(vec![value]),
            _ => Err(unfit("a string or a number")),
        },
    }
}

/// `name` or `name=value`, as `-o` takes it.
fn option(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Option<String>, Error> {
    if let DeValue::Boolean(given) = value.get_ref() {
        return Ok(given.then(|| name.to_owned()));
    }
    match scalar(value) {
        Some(value) if !value.contains(',') => Ok(Some(format!("{name}={value}"))),
        _ => Err(Error::Illegal(format!("{name}: give a number, true, or a string without commas"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;

    #[test]
    fn keys_are_the_long_names_of_the_flags() {
        let text = "memory-limit = \"1g\"\nport = 11311\nlisten = [\"127.0.0.1\", \"127.0.0.2:9\"]\nverbose = 2\n\
            enable-shutdown = true\ndisable-flush-all = false\npolicy = \"lru\"\n[extended]\nidle_timeout = 7\nmodern = true\n\
            no_modern = false\n";
        let settings = settings(&[("--config", text)], &[]).unwrap();
        assert_eq!((settings.memory_bytes, settings.port, settings.verbosity), (1 << 30, 11311, 2));
        assert_eq!(settings.listen, ["127.0.0.1", "127.0.0.2:9"]);
        assert!(settings.allow_shutdown && settings.allow_flush);
        assert_eq!(settings.policy.as_deref(), Some("lru"));
        assert_eq!(settings.idle_timeout.unwrap().as_secs(), 7);
        assert_eq!(settings.warnings, [""; 0]);
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        for (text, line, part) in [
            ("port = 1\nfrob = 2\n", 2, "frob"),
            ("port = \n", 1, ""),
            ("\nport = 70000\n", 2, "-p 70000"),
            ("daemon = 1\n", 1, "true or false"),
            ("port = true\n", 1, "a string or a number"),
            ("check = true\n", 1, "check"),
            ("test-clock = true\n", 1, "test-clock"),
            ("mem = 1\n", 1, "mem"),
            ("[extended]\nfrob = 1\n", 2, "frob"),
            ("[extended]\nidle_timeout = \"1,2\"\n", 2, "without commas"),
            ("[frob]\nx = 1\n", 1, "frob"),
        ] {
            let message = settings(&[("--config", text)], &[]).unwrap_err().to_string();
            assert!(message.contains(&format!("file0:{line}: ")) && message.contains(part), "{text}: {message}");
        }
    }
}

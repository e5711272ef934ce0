//! Words into flags, as getopt reads them. Blanks behind a flag and blank words are passed over: charts that build a
//! command line from a template leave them.

use std::ffi::OsString;

use lexopt::Arg;

use super::other_words::meant;
use super::table::{FLAGS, Flag};
use crate::error::Error;
use crate::similar;

/// A flag as given.
#[derive(Debug)]
pub struct Given {
    pub flag: &'static Flag,
    /// Empty for a flag without a value.
    pub value: String,
}

impl Given {
    /// Whether it names a path of flash.
    pub fn names_flash(&self) -> bool {
        match self.flag.long {
            "flash" => true,
            "extended" => self.value.split(',').any(|option| option.trim().starts_with("ext_path=")),
            _ => false,
        }
    }
}

/// All flags of a line, in their order, up to the first one that only prints a text.
pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Vec<Given>, Error> {
    let mut parser = lexopt::Parser::from_args(args.into_iter().map(without_trailing_blanks));
    let mut line = Vec::new();
    while let Some(arg) = parser.next().map_err(malformed)? {
        let (flag, name) = match arg {
            Arg::Short(short) => (Flag::by_short(short), format!("-{short}")),
            Arg::Long(long) => (Flag::by_long(long), format!("--{long}")),
            Arg::Value(word) if is_blank(&word) => continue,
            Arg::Value(value) => {
                let word = value.to_string_lossy();
                return Err(Error::Illegal(format!("{word}: not a flag; `ebbtide -h` lists the flags")));
            }
        };
        let Some(flag) = flag else {
            let hint = name.strip_prefix("--").map_or_else(String::new, hint);
            return Err(Error::Illegal(format!("{name}: unknown flag; `ebbtide -h` lists the flags{hint}")));
        };
        let value = match flag.value {
            None => String::new(),
            Some(what) => value(&mut parser, &name, what)?,
        };
        line.push(Given { flag, value });
        if flag.is_question() {
            break;
        }
    }
    Ok(line)
}

/// The end of a message about an unknown long flag: empty, or the flag that may be meant.
fn hint(long: &str) -> String {
    let known = FLAGS.iter().filter(|flag| !flag.is_hidden()).map(|flag| flag.long);
    let meant = meant(long).or_else(|| similar::nearest(long, known)).and_then(Flag::by_exact_long);
    meant.map_or_else(String::new, |flag| {
        let short = flag.short.map_or_else(String::new, |short| format!("-{short}, "));
        let value = flag.value.map_or_else(String::new, |value| format!(" <{value}>"));
        format!("; did you mean {short}--{}{value}?", flag.long)
    })
}

fn value(parser: &mut lexopt::Parser, name: &str, what: &str) -> Result<String, Error> {
    let missing = || Error::Illegal(format!("{name}: needs a value: {name} <{what}>"));
    let value = parser.value().map_err(|_| missing())?;
    let value =
        value.into_string().map_err(|value| Error::Illegal(format!("{name} {}: not UTF-8", value.display())))?;
    let value = value.trim();
    if value.is_empty() {
        return Err(missing());
    }
    Ok(value.to_owned())
}

/// A word that begins a flag ends with its last character that is not blank; any other word is a value and stays whole.
fn without_trailing_blanks(word: OsString) -> OsString {
    match word.to_str() {
        Some(text) if text.starts_with('-') => text.trim_end().into(),
        _ => word,
    }
}

fn is_blank(word: &OsString) -> bool {
    word.as_encoded_bytes().iter().all(u8::is_ascii_whitespace)
}

fn malformed(error: lexopt::Error) -> Error {
    Error::Illegal(format!("{error}; `ebbtide -h` lists the flags"))
}

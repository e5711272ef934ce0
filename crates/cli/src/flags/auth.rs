//! `-B`, `-S` and `-Y`: protocols and authentication.

use std::path::Path;
use std::sync::Arc;

use ebbtide_server::{Auth, Protocol, UserFile, UserFormat};

use super::Settings;
use super::values::absolute;
use crate::error::Error;

/// Names the file of SASL users, as it does for memcached.
const USERS_VARIABLE: &str = "MEMCACHED_SASL_PWDB";

/// The value of `-B`.
pub fn protocol(name: &str, value: &str) -> Result<Protocol, Error> {
    match value {
        "auto" => Ok(Protocol::Auto),
        "ascii" => Ok(Protocol::Ascii),
        "binary" => Ok(Protocol::Binary),
        _ => Err(Error::Limit(format!(
            "{name} {value}: Invalid value for binding protocol: {value}; should be one of auto, binary, or ascii"
        ))),
    }
}

/// Refuses a protocol in which clients cannot authenticate.
pub fn check(settings: &Settings) -> Result<(), Error> {
    let refused = |flags: &str, protocol: &str, advice: &str| {
        Err(Error::Limit(format!("{flags}: You cannot allow the {protocol} protocol with it; {advice}")))
    };
    match (settings.protocol, settings.sasl, &settings.auth_file) {
        (Some(Protocol::Auto | Protocol::Ascii), true, _) => {
            refused("-S", "ASCII", "SASL needs -B binary, which is the default with -S")
        }
        (Some(Protocol::Auto | Protocol::Binary), false, Some(_)) => {
            refused("-Y", "BINARY", "the file is for -B ascii, which is the default with -Y; for binary add -S")
        }
        _ => Ok(()),
    }
}

/// Reads the file of users, if authentication is enabled.
pub fn auth(settings: &Settings) -> Result<Option<Auth>, Error> {
    let load = |flag: &str, path: &Path, format| {
        let users = UserFile::load(path, format).map_err(|error| Error::Illegal(format!("{flag}: {error}")))?;
        Ok(Arc::new(users))
    };
    match (&settings.auth_file, settings.sasl) {
        (Some(path), false) => load("-Y", path, UserFormat::WholeLine).map(|users| Some(Auth::Ascii(users))),
        (Some(path), true) => load("-Y", path, UserFormat::WholeLine).map(|users| Some(Auth::Sasl(users))),
        (None, true) => match std::env::var_os(USERS_VARIABLE) {
            Some(path) => {
                load(USERS_VARIABLE, &absolute(&path.into()), UserFormat::Fields).map(|users| Some(Auth::Sasl(users)))
            }
            None => Err(Error::Illegal(format!(
                "-S: there are no users; name a file of user:password lines with -Y <file> or in {USERS_VARIABLE}"
            ))),
        },
        (None, false) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(protocol: Option<Protocol>, sasl: bool, file: Option<&str>) -> Settings {
        Settings { protocol, sasl, auth_file: file.map(Into::into), ..Settings::default() }
    }

    #[test]
    fn protocols_without_a_password_are_refused() {
        for (protocol, sasl, file, allowed) in [
            (None, true, None, true),
            (Some(Protocol::Binary), true, None, true),
            (Some(Protocol::Auto), true, None, false),
            (Some(Protocol::Ascii), true, None, false),
            (None, false, Some("f"), true),
            (Some(Protocol::Ascii), false, Some("f"), true),
            (Some(Protocol::Auto), false, Some("f"), false),
            (Some(Protocol::Binary), false, Some("f"), false),
            (Some(Protocol::Binary), true, Some("f"), true),
            (Some(Protocol::Binary), false, None, true),
        ] {
            let checked = check(&settings(protocol, sasl, file));
            assert_eq!(checked.is_ok(), allowed, "{protocol:?} {sasl} {file:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_illegal() {
        for sasl in [false, true] {
            match auth(&settings(None, sasl, Some("/nonexistent/users"))) {
                Err(Error::Illegal(message)) => {
                    assert!(message.contains("-Y") && message.contains("/nonexistent/users"))
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(auth(&settings(None, false, None)).unwrap().is_none());
    }
}

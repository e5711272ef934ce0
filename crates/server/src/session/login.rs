//! The text protocol before a client is known, when the server asks who is there (`-Y`). Nothing is executed here, so
//! every command that there is, or will be, is refused.

use ebbtide_protocol::login::{self, Login};
use ebbtide_protocol::reply;

use crate::execute::Executor;
use crate::output::Output;
use crate::session::{SessionProgress, StopReason};

/// Bytes of answers from which on nothing more is answered before they are sent: who is not known holds little memory.
const FULL_BYTES: usize = 4 << 10;

/// Takes lines off the front of `input` until one of them says who is there. True once that is known; what was not
/// consumed is for the session that follows.
pub fn process(executor: &Executor, input: &[u8], output: &mut Output) -> (SessionProgress, bool) {
    let mut consumed = 0;
    let mut requests = 0;
    let mut known = false;
    let stop = loop {
        if output.bytes().len() >= FULL_BYTES {
            break StopReason::OutputFull;
        }
        let (login, used) = login::next(&input[consumed..]);
        consumed += used;
        let line = match login {
            Login::Token { user, password } => match executor.authenticate(user, password) {
                true => {
                    known = true;
                    reply::STORED
                }
                false => reply::AUTHENTICATION_FAILURE,
            },
            Login::Unauthenticated | Login::UnknownLength => reply::UNAUTHENTICATED,
            Login::BadTermination => reply::BAD_TERMINATION,
            Login::BadToken => reply::BAD_TOKEN,
            Login::TooLong => reply::TOKEN_TOO_LONG,
            Login::NeedMore => break StopReason::NeedInput,
            Login::Close => break StopReason::Close,
        };
        output.bytes().extend_from_slice(line);
        requests += 1;
        if matches!(login, Login::TooLong | Login::UnknownLength) {
            break StopReason::Close;
        }
        if known {
            break StopReason::NeedInput;
        }
    };
    (SessionProgress { consumed, requests, stop }, known)
}

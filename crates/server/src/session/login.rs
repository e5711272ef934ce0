//! The text protocol before a client is known, when the server asks who is there (`-Y`). Nothing is executed here, so
//! every command that there is, or will be, is refused.

use ebbtide_protocol::login::{self, Login};
use ebbtide_protocol::reply;

use crate::execute::Executor;
use crate::output::Output;
use crate::session::{Progress, Stopped};

/// Bytes of answers from which on nothing more is answered before they are sent: who is not known holds little memory.
const FULL_BYTES: usize = 4 << 10;

/// Takes lines off the front of `input` until one of them says who is there. True once that is known; what was not
/// consumed is for the session that follows.
pub fn process(executor: &Executor, input: &[u8], output: &mut Output) -> (Progress, bool) {
    let mut consumed = 0;
    let mut requests = 0;
    let mut known = false;
    let stopped = loop {
        if output.bytes().len() >= FULL_BYTES {
            break Stopped::Full;
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
            Login::BadToken | Login::TooLong => reply::BAD_TOKEN,
            Login::NeedMore => break Stopped::Starved,
            Login::Close => break Stopped::Close,
        };
        output.bytes().extend_from_slice(line);
        requests += 1;
        if matches!(login, Login::TooLong | Login::UnknownLength) {
            break Stopped::Close;
        }
        if known {
            break Stopped::Starved;
        }
    };
    (Progress { consumed, requests, stopped }, known)
}

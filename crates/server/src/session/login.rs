//! The text protocol before authentication (`-Y`). No command is executed here, so every command, also a future one, is
//! refused.

use ebbtide_protocol::login::{self, Login};
use ebbtide_protocol::reply;

use crate::execute::Executor;
use crate::output::Output;
use crate::session::{SessionProgress, StopReason};

/// Max bytes of unsent answers: a client that is not authenticated holds little memory.
const FULL_BYTES: usize = 4 << 10;

/// Consumes lines of `input` until one authenticates the client. True once it is authenticated; the rest of `input` is
/// for the text session.
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

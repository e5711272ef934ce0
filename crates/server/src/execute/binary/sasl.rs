//! Authentication by SASL, with the mechanism PLAIN: one message of `[authorization] NUL user NUL password`.

use ebbtide_protocol::binary::reply::{self, Status};
use ebbtide_protocol::binary::{Opcode, PacketHead};

use crate::auth::Auth;
use crate::execute::Executor;
use crate::output::Output;

/// All mechanisms there are.
pub const MECHANISM: &[u8] = b"PLAIN";

/// Authentication state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sasl {
    /// The server requires no authentication.
    NotSpoken,
    Unknown,
    /// The mechanism is chosen; the message has not arrived.
    Started,
    /// Lasts until the client starts another authentication.
    Authenticated,
}

impl Sasl {
    pub fn is_spoken(self) -> bool {
        self != Self::NotSpoken
    }

    /// Resets the authentication: the client requests the mechanisms, as at its start.
    pub fn begin_again(&mut self) {
        if *self == Self::Authenticated {
            *self = Self::Started;
        }
    }

    /// Whether a command is allowed; before authentication only the commands of SASL and version are.
    pub fn admits(self, opcode: u8) -> bool {
        match self {
            Self::NotSpoken | Self::Authenticated => true,
            Self::Unknown | Self::Started => matches!(
                Opcode::from_number(opcode),
                Some((Opcode::SaslMechanisms | Opcode::SaslAuth | Opcode::SaslStep | Opcode::Version, _))
            ),
        }
    }
}

impl Executor {
    pub(super) fn sasl(
        &self,
        head: PacketHead,
        state: &mut Sasl,
        step: bool,
        (mechanism, data): (&[u8], &[u8]),
        output: &mut Output,
    ) {
        // A step continues with the chosen mechanism, whichever it names.
        let may_speak = match step {
            true => matches!(state, Sasl::Started | Sasl::Authenticated),
            false => mechanism.eq_ignore_ascii_case(MECHANISM),
        };
        if may_speak && !step && data.is_empty() {
            *state = Sasl::Started;
            return reply::auth_continue(output.bytes(), head);
        }
        self.counters().auth_commands.add(1);
        if may_speak && self.knows(data) {
            *state = Sasl::Authenticated;
            return reply::text(output.bytes(), head, b"Authenticated");
        }
        *state = if may_speak && step { Sasl::Started } else { Sasl::Unknown };
        self.counters().auth_errors.add(1);
        reply::error(output.bytes(), head, Status::AuthError);
    }

    fn knows(&self, message: &[u8]) -> bool {
        let mut parts = message.split(|&byte| byte == 0);
        let (Some(acting_as), Some(user), Some(password), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        // No client may act as another user.
        let as_oneself = acting_as.is_empty() || acting_as == user;
        as_oneself && self.options().auth.as_ref().map(Auth::users).is_some_and(|users| users.knows(user, password))
    }
}

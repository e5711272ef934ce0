//! Authentication of clients.

mod users;

use std::sync::Arc;

pub use users::{UserFile, UserFormat};

/// How clients authenticate. No other command is executed before that.
#[derive(Clone, Debug)]
pub enum Auth {
    /// (`-Y`) By a set of the text protocol, the only protocol that is accepted then.
    Ascii(Arc<UserFile>),
    /// (`-S`) By SASL PLAIN in the binary protocol, the only protocol that is accepted then.
    Sasl(Arc<UserFile>),
}

impl Auth {
    /// File of the users.
    pub fn users(&self) -> &Arc<UserFile> {
        match self {
            Self::Ascii(users) | Self::Sasl(users) => users,
        }
    }
}

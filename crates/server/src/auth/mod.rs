//! Who may speak to the server.

mod users;

use std::sync::Arc;

pub use users::{UserFile, UserFormat};

/// How clients show who they are. Either way nothing else is executed for them before.
#[derive(Clone, Debug)]
pub enum Auth {
    /// (`-Y`) With a set of the text protocol, which then is the only one that is spoken.
    Ascii(Arc<UserFile>),
    /// (`-S`) With SASL PLAIN in the binary protocol, which then is the only one that is spoken.
    Sasl(Arc<UserFile>),
}

impl Auth {
    /// Where the users come from.
    pub fn users(&self) -> &Arc<UserFile> {
        match self {
            Self::Ascii(users) | Self::Sasl(users) => users,
        }
    }
}

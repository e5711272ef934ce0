//! Address of the admin HTTP: from `--admin`, or from the other flags.
//!
//! Without the flag there is one only for a server on memcached's own port, at the port after it. Of several servers on
//! a machine the others have ports of their own: which of them a fixed admin port shows would hang on which started
//! first.

use std::net::{Ipv4Addr, SocketAddr};

use ebbtide_server::{Admin, Listen};

use crate::error::Error;

/// The port of a server that has an admin HTTP by default.
const SERVER_PORT: u16 = 11211;
/// Where that is, on the loopback interface.
pub const DEFAULT_PORT: u16 = 11212;

/// Argument of `--admin`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminFlag {
    /// The flag was not given.
    #[default]
    Default,
    Off,
    At(SocketAddr),
}

impl AdminFlag {
    pub fn parse(flag: &str, text: &str) -> Result<Self, Error> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let address = text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
        let parsed = address.parse().map(Self::At);
        parsed.map_err(|_| {
            Error::Limit(format!("{flag} {text}: give an IP address and a port, as 127.0.0.1:{DEFAULT_PORT}, or off"))
        })
    }

    /// Refuses an address on which the server itself listens.
    pub fn check(self, listeners: &[Listen]) -> Result<(), Error> {
        let Self::At(admin) = self else { return Ok(()) };
        let overlaps = |listen: &&Listen| match listen {
            Listen::Tcp(address) | Listen::Tls(address) => {
                let is_everywhere = address.ip().is_unspecified() || admin.ip().is_unspecified();
                address.port() == admin.port()
                    && admin.port() != 0
                    && address.is_ipv4() == admin.is_ipv4()
                    && (is_everywhere || address.ip() == admin.ip())
            }
            Listen::Udp(_) | Listen::Unix { .. } => false,
        };
        listeners.iter().find(overlaps).map_or(Ok(()), |listen| {
            let reason = format!("the server itself listens on {listen} (-p, -l)");
            Err(Error::Limit(format!("--admin {admin}: {reason}; give another port, or off")))
        })
    }

    /// The admin HTTP of a server with these listeners.
    pub fn resolve(self, listeners: &[Listen]) -> Option<Admin> {
        let is_usual = |listen: &Listen| matches!(listen, Listen::Tcp(address) | Listen::Tls(address) if address.port() == SERVER_PORT);
        match self {
            Self::Off => None,
            Self::At(address) => Some(Admin { address, required: true }),
            Self::Default if listeners.iter().any(is_usual) => {
                Some(Admin { address: (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into(), required: false })
            }
            Self::Default => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_off_are_read() {
        assert_eq!(AdminFlag::parse("--admin", "off"), Ok(AdminFlag::Off));
        let at = AdminFlag::At((Ipv4Addr::LOCALHOST, 80).into());
        assert_eq!(AdminFlag::parse("--admin", "127.0.0.1:80"), Ok(at));
        assert_eq!(AdminFlag::parse("--admin", "localhost:80"), Ok(at));
        assert!(AdminFlag::parse("--admin", "[::1]:80").is_ok());
        for bad in ["", "on", "80", "127.0.0.1", "127.0.0.1:70000", "example.org:80"] {
            assert!(matches!(AdminFlag::parse("--admin", bad), Err(Error::Limit(_))), "{bad}");
        }
    }

    #[test]
    fn an_address_of_the_server_is_refused() {
        let check = |admin: &str, listen: &str| {
            AdminFlag::parse("--admin", admin).unwrap().check(&[Listen::Tcp(listen.parse().unwrap())])
        };
        for (admin, listen) in
            [("127.0.0.1:7", "0.0.0.0:7"), ("127.0.0.1:7", "127.0.0.1:7"), ("0.0.0.0:7", "127.0.0.1:7")]
        {
            assert!(matches!(check(admin, listen), Err(Error::Limit(_))), "{admin} {listen}");
        }
        let others = [("127.0.0.1:8", "0.0.0.0:7"), ("127.0.0.2:7", "127.0.0.1:7"), ("127.0.0.1:7", "[::]:7")];
        for (admin, listen) in others.into_iter().chain([("127.0.0.1:0", "127.0.0.1:0")]) {
            assert_eq!(check(admin, listen), Ok(()), "{admin} {listen}");
        }
    }

    #[test]
    fn only_the_usual_port_enables_admin_by_default() {
        let on = |port: u16| vec![Listen::Tcp((Ipv4Addr::UNSPECIFIED, port).into())];
        let usual = AdminFlag::Default.resolve(&on(11211)).unwrap();
        assert_eq!((usual.address.to_string().as_str(), usual.required), ("127.0.0.1:11212", false));
        assert_eq!(AdminFlag::Default.resolve(&on(11311)), None);
        assert_eq!(AdminFlag::Off.resolve(&on(11211)), None);
        let asked = AdminFlag::At((Ipv4Addr::LOCALHOST, 0).into()).resolve(&on(11311));
        assert!(asked.unwrap().required);
    }
}

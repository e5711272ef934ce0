//! From `-l`, `-p` and `-s` to addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use ebbtide_server::Listen;

use crate::error::Error;
use crate::flags::Settings;

/// Where to listen.
#[derive(Debug, Default)]
pub struct Addresses {
    pub listeners: Vec<Listen>,
    /// Lengths of runs of them of which one suffices: what one `-l` means, or none.
    pub alternatives: Vec<usize>,
}

impl Addresses {
    /// Adds those that one name means, if they are not there: a name may lead to one address several times.
    fn add(&mut self, found: impl IntoIterator<Item = Listen>) {
        let before = self.listeners.len();
        for listen in found {
            if !self.listeners.contains(&listen) {
                self.listeners.push(listen);
            }
        }
        let added = self.listeners.len() - before;
        self.alternatives.extend((added > 0).then_some(added));
    }
}

/// Every address to listen on. Without `-l` these are all of IPv4 and, where the host has it, all of IPv6.
pub fn resolve(settings: &Settings) -> Result<Addresses, Error> {
    let mut addresses = Addresses::default();
    if let Some(path) = &settings.unix_socket {
        let path =
            std::path::absolute(path).map_err(|error| Error::System(format!("-s {}: {error}", path.display())))?;
        addresses.add([Listen::Unix { path, mode: settings.unix_mode }]);
        return Ok(addresses);
    }
    let everywhere_only = ["*".to_owned()];
    let given = if settings.listen.is_empty() { &everywhere_only[..] } else { &settings.listen };
    // -p 0 with a port of UDP is UDP alone.
    if settings.port != 0 || settings.udp_port == 0 {
        for given in given {
            let plain = given.strip_prefix("notls:");
            let tls = settings.tls.enabled && plain.is_none();
            let found = find(given, plain.unwrap_or(given), settings.port)?;
            addresses.add(found.into_iter().map(if tls { Listen::Tls } else { Listen::Tcp }));
        }
    }
    if settings.udp_port != 0 {
        for given in given {
            // A port behind the address is for both.
            let found = find(given, given.strip_prefix("notls:").unwrap_or(given), settings.udp_port)?;
            addresses.add(found.into_iter().map(Listen::Udp));
        }
    }
    Ok(addresses)
}

/// All addresses of a `-l`, with this port unless it names another one.
fn find(given: &str, text: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let (host, port) = split(given, text, port)?;
    match host {
        "*" => Ok(everywhere(port)),
        _ => {
            let found = (host, port).to_socket_addrs().map_err(|error| unusable(given, &error.to_string()))?;
            Ok(found.collect())
        }
    }
}

fn everywhere(port: u16) -> Vec<SocketAddr> {
    let mut addresses = vec![(Ipv4Addr::UNSPECIFIED, port).into()];
    // Where IPv6 is switched off, binding a port of the system's choice fails as binding ours would.
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        addresses.push((Ipv6Addr::UNSPECIFIED, port).into());
    }
    addresses
}

/// Host and port of `host`, `host:port`, `v6`, `[v6]` or `[v6]:port`.
fn split<'a>(given: &str, text: &'a str, default: u16) -> Result<(&'a str, u16), Error> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| unusable(given, "Invalid IPV6 address"))?;
        match rest.strip_prefix(':') {
            None if rest.is_empty() => (host, None),
            None => return Err(unusable(given, "after ] comes :<port> or nothing")),
            Some(port) => (host, Some(port)),
        }
    } else {
        match text.split_once(':') {
            // More than one colon is a bare IPv6 address.
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        }
    };
    let port = match port {
        None => default,
        Some(port) => port.parse().map_err(|_| unusable(given, &format!("Invalid port number: \"{port}\"")))?,
    };
    Ok((host, port))
}

fn unusable(given: &str, reason: &str) -> Error {
    Error::System(format!(
        "-l {given}: failed to listen on one of interface(s) {given}: {reason}; give an address or a host name of this \
         machine"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners(list: &[&str]) -> Result<Vec<String>, Error> {
        let settings =
            Settings { port: 11211, listen: list.iter().map(|&host| host.to_owned()).collect(), ..Settings::default() };
        resolve(&settings).map(|found| found.listeners.iter().map(Listen::to_string).collect())
    }

    #[test]
    fn hosts_and_ports_are_told_apart() {
        assert_eq!(
            listeners(&["127.0.0.1", "127.0.0.1:12", "[::1]:13", "::1", "[::1]", "notls:127.0.0.2"]).unwrap(),
            ["127.0.0.1:11211", "127.0.0.1:12", "[::1]:13", "[::1]:11211", "127.0.0.2:11211"]
        );
        assert!(listeners(&["*"]).unwrap().contains(&"0.0.0.0:11211".to_owned()));
    }

    #[test]
    fn with_tls_a_listener_can_opt_out() {
        let mut settings =
            Settings { listen: vec!["127.0.0.1".into(), "notls:127.0.0.1:12".into()], ..Settings::default() };
        settings.tls.enabled = true;
        let found = resolve(&settings).unwrap().listeners;
        assert!(matches!(found[..], [Listen::Tls(_), Listen::Tcp(_)]), "{found:?}");
        settings.listen.clear();
        assert!(resolve(&settings).unwrap().listeners.iter().all(|listen| matches!(listen, Listen::Tls(_))));
    }

    #[test]
    fn one_address_of_each_name_suffices() {
        let of = |list: &[&str]| {
            let listen = list.iter().map(|&host| host.to_owned()).collect();
            resolve(&Settings { listen, ..Settings::default() }).unwrap()
        };
        assert_eq!(of(&["127.0.0.1", "127.0.0.2", "127.0.0.1"]).alternatives, [1, 1]);
        let everywhere = of(&[]);
        assert_eq!(everywhere.alternatives, [everywhere.listeners.len()]);
    }

    #[test]
    fn udp_has_the_addresses_of_tcp() {
        let found = |port: u16, udp_port: u16, list: &[&str]| {
            let listen = list.iter().map(|&host| host.to_owned()).collect();
            let settings = Settings { port, udp_port, listen, ..Settings::default() };
            let kind = |listen: &Listen| match listen {
                Listen::Udp(address) => format!("udp {address}"),
                other => other.to_string(),
            };
            resolve(&settings).unwrap().listeners.iter().map(kind).collect::<Vec<_>>()
        };
        assert_eq!(found(13, 12, &["127.0.0.1"]), ["127.0.0.1:13", "udp 127.0.0.1:12"]);
        assert_eq!(found(13, 12, &["127.0.0.1:14"]), ["127.0.0.1:14", "udp 127.0.0.1:14"]);
        assert_eq!(found(0, 12, &["127.0.0.1"]), ["udp 127.0.0.1:12"]);
        assert_eq!(found(13, 0, &["127.0.0.1"]), ["127.0.0.1:13"]);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in ["127.0.0.1:x", "[::1", "[::1]12", "999.1.1.1", "127.0.0.1:70000"] {
            assert!(matches!(listeners(&[bad]), Err(Error::System(_))), "{bad}");
        }
    }
}

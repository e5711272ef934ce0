//! From `-l`, `-p` and `-s` to addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use ebbtide_server::Listen;

use crate::error::Error;
use crate::flags::Settings;

/// Every address to listen on. Without `-l` these are all of IPv4 and, where the host has it, all of IPv6.
pub fn resolve(settings: &Settings) -> Result<Vec<Listen>, Error> {
    if let Some(path) = &settings.unix_socket {
        let path =
            std::path::absolute(path).map_err(|error| Error::System(format!("-s {}: {error}", path.display())))?;
        return Ok(vec![Listen::Unix { path, mode: settings.unix_mode }]);
    }
    // A name may lead to one address several times.
    let mut listeners: Vec<Listen> = Vec::new();
    let mut add = |addresses: Vec<SocketAddr>, tls: bool| {
        for address in addresses {
            let listen = if tls { Listen::Tls(address) } else { Listen::Tcp(address) };
            if !listeners.contains(&listen) {
                listeners.push(listen);
            }
        }
    };
    if settings.listen.is_empty() {
        add(everywhere(settings.port), settings.tls.enabled);
    }
    for given in &settings.listen {
        let plain = given.strip_prefix("notls:");
        let (host, port) = split(given, plain.unwrap_or(given), settings.port)?;
        let addresses = match host {
            "*" => everywhere(port),
            _ => (host, port).to_socket_addrs().map_err(|error| unusable(given, &error.to_string()))?.collect(),
        };
        add(addresses, settings.tls.enabled && plain.is_none());
    }
    Ok(listeners)
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
        resolve(&settings).map(|found| found.iter().map(Listen::to_string).collect())
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
        let found = resolve(&settings).unwrap();
        assert!(matches!(found[..], [Listen::Tls(_), Listen::Tcp(_)]), "{found:?}");
        settings.listen.clear();
        assert!(resolve(&settings).unwrap().iter().all(|listen| matches!(listen, Listen::Tls(_))));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in ["127.0.0.1:x", "[::1", "[::1]12", "999.1.1.1", "127.0.0.1:70000"] {
            assert!(matches!(listeners(&[bad]), Err(Error::System(_))), "{bad}");
        }
    }
}

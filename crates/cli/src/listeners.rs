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
    let mut found: Vec<SocketAddr> = Vec::new();
    if settings.listen.is_empty() {
        found.extend(everywhere(settings.port));
    }
    for given in &settings.listen {
        let (host, port) = split(given, settings.port)?;
        if host == "*" {
            found.extend(everywhere(port));
            continue;
        }
        let addresses = (host, port).to_socket_addrs().map_err(|error| unusable(given, &error.to_string()))?;
        found.extend(addresses);
    }
    // A name may lead to one address several times.
    let mut listeners = Vec::new();
    for address in found.into_iter().map(Listen::Tcp) {
        if !listeners.contains(&address) {
            listeners.push(address);
        }
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
fn split(given: &str, default: u16) -> Result<(&str, u16), Error> {
    // memcached lets listeners opt out of TLS, which here none has.
    let text = given.strip_prefix("notls:").unwrap_or(given);
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
    fn what_is_no_address_is_refused() {
        for bad in ["127.0.0.1:x", "[::1", "[::1]12", "999.1.1.1", "127.0.0.1:70000"] {
            assert!(matches!(listeners(&[bad]), Err(Error::System(_))), "{bad}");
        }
    }
}

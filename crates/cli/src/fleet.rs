//! `ebbtide dashboard`: the page of several servers.

use std::net::SocketAddr;
use std::process::ExitCode;

use ebbtide_server::ebbtide::message;
use ebbtide_server::{FleetOptions, run_fleet};

use crate::flags::DEFAULT_PORT;

/// Exit code where the page has no address: EX_IOERR, as of the lab's commands.
const CANNOT_LISTEN: u8 = 74;

/// The arguments of `ebbtide dashboard`.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetArgs {
    /// Addresses of the nodes' admin HTTP, with commas between them; the port is 11212 unless one is given
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', required = true, value_parser = node)]
    nodes: Vec<String>,
    /// Where the page is
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:11300")]
    listen: SocketAddr,
}

fn node(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(char::is_whitespace) || text.contains('/') {
        return Err("give HOST:PORT, as 10.0.0.1:11212".to_owned());
    }
    match text.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => match port.parse::<u16>() {
            Ok(1..) => Ok(text.to_owned()),
            _ => Err(format!("{port} is no port")),
        },
        _ => Ok(format!("{text}:{DEFAULT_PORT}")),
    }
}

/// Serves the page until the process is stopped.
pub fn run(args: FleetArgs) -> ExitCode {
    let options = FleetOptions { listen: args.listen, nodes: args.nodes };
    let count = options.nodes.len();
    let started = |address| message!("the page of {count} nodes is at http://{address}/");
    match run_fleet(&options, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            message!("ebbtide: {error}; --listen puts the page elsewhere");
            ExitCode::from(CANNOT_LISTEN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::node;

    #[test]
    fn a_node_without_port_gets_the_usual_one() {
        assert_eq!(node("cache1").as_deref(), Ok("cache1:11212"));
        assert_eq!(node("10.0.0.1:99").as_deref(), Ok("10.0.0.1:99"));
        assert_eq!(node("[::1]").as_deref(), Ok("[::1]:11212"));
        for bad in ["", "a:0", "a:x", "http://a:1", "a b"] {
            assert!(node(bad).is_err(), "{bad}");
        }
    }
}

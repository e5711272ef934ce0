//! A server for the tests of reloads and sweeps.

use std::net::Ipv4Addr;

use ebbtide::memcached::{ByteSize, Cache};

use super::PoolRule;
use crate::{Listen, Server, ServerOptions};

/// A server with the pools `default` and `a`, and their rules.
pub fn server() -> (Cache, Server, [PoolRule; 2]) {
    let rules = [PoolRule::named("default"), PoolRule { prefixes: vec![b"a:".into()], ..PoolRule::named("a") }];
    let cache = Cache::builder().memory(ByteSize::mib(16)).pool(rules[1].options()).build().expect("a cache");
    let options = ServerOptions {
        listeners: vec![Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())],
        pools: rules.to_vec(),
        ..ServerOptions::default()
    };
    let server = Server::bind(options, cache.clone()).expect("a server");
    (cache, server, rules)
}

//! Words of other caches, and plain words, for flags that are named otherwise here: "did you mean" finds no misspelling
//! in them.

/// Words in small letters without signs between them, and the long name of the flag.
const OTHER_WORDS: &[(&[&str], &str)] = &[
    (
        &["memory", "mem", "maxmemory", "memorylimit", "cachesize", "cachesizemb", "size", "capacity", "ram", "dram"],
        "memory-limit",
    ),
    (&["maxmemorypolicy", "eviction", "evictionpolicy", "alloctype", "allocator", "algorithm"], "policy"),
    (&["maxvalue", "valuesize", "maxvaluesize", "maxobjectsize", "protomaxbulklen", "maxallocsize"], "max-item-size"),
    (&["tcpport", "portnumber", "serverport"], "port"),
    (&["udp"], "udp-port"),
    (&["bind", "host", "address", "addr", "interface", "ip"], "listen"),
    (&["socket", "unixsocket", "sock"], "unix-socket"),
    (&["unixsocketperm", "unixsocketmode"], "unix-mask"),
    (&["maxclients", "clients", "connections", "maxconnections", "maxconns", "connlimit"], "conn-limit"),
    (&["backlog", "tcpbacklog"], "listen-backlog"),
    (&["iothreads", "workers", "workerthreads", "numthreads"], "threads"),
    (&["requirepass", "password", "passwordfile", "passwords", "auth", "aclfile"], "auth-file"),
    (&["sasl"], "enable-sasl"),
    (&["tls", "ssl", "tlsport", "enabletls"], "enable-ssl"),
    (&["daemonize", "background", "fork"], "daemon"),
    (&["loglevel", "log", "debug"], "verbose"),
    (&["pid"], "pidfile"),
    (&["save", "dbfilename", "persistence", "cachedir", "shmfile", "warmrestart", "appendonly"], "memory-file"),
    (
        &[
            "nvmcache",
            "nvmcachepath",
            "nvmcachepaths",
            "nvm",
            "ssd",
            "disk",
            "extpath",
            "extstore",
            "navy",
            "flashfile",
        ],
        "flash",
    ),
    (&["admissionpolicy", "navyadmissionpolicy", "admission"], "flash-admission"),
    (&["pools", "poolsizes", "numpools"], "pool"),
    (&["rebalance", "rebalancing", "poolrebalance"], "controller"),
    (&["adminport", "http", "httpport", "metrics", "metricsport", "dashboard", "prometheus"], "admin"),
    (&["configfile", "conf", "settings"], "config"),
    (&["maxmemoryreserve", "autoresize"], "memory-monitor"),
];

/// The long name of the flag that another word may mean.
pub fn meant(word: &str) -> Option<&'static str> {
    let plain: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    OTHER_WORDS.iter().find(|(words, _)| words.contains(&plain.as_str())).map(|(_, long)| *long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Flag;

    #[test]
    fn every_word_means_one_flag_that_exists() {
        let mut seen = std::collections::HashSet::new();
        for (words, long) in OTHER_WORDS {
            assert!(Flag::by_exact_long(long).is_some_and(|flag| !flag.is_hidden()), "{long}");
            for word in *words {
                assert!(seen.insert(*word), "{word} twice");
                assert!(Flag::by_exact_long(word).is_none(), "{word} is a flag");
                assert!(word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{word}");
            }
        }
    }

    #[test]
    fn words_are_found_in_every_spelling() {
        for word in ["max-memory", "maxmemory", "MaxMemory", "max_memory", "cacheSizeMB", "cache-size", "memory"] {
            assert_eq!(meant(word), Some("memory-limit"), "{word}");
        }
        assert_eq!((meant("requirepass"), meant("frobnicate"), meant("")), (Some("auth-file"), None, None));
    }
}

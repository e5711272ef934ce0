//! Every flag of memcached 1.6, in its spelling, with its effect here.

/// Group of a flag in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Network,
    Memory,
    Pools,
    Flash,
    Secrets,
    Observation,
    Commands,
    Process,
}

impl Group {
    /// In the order of the help.
    pub const ALL: [Self; 8] = [
        Self::Network,
        Self::Memory,
        Self::Pools,
        Self::Flash,
        Self::Secrets,
        Self::Observation,
        Self::Commands,
        Self::Process,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Network => "Network",
            Self::Memory => "Memory",
            Self::Pools => "Pools",
            Self::Flash => "Flash",
            Self::Secrets => "TLS and passwords",
            Self::Observation => "Observation",
            Self::Commands => "What clients may do",
            Self::Process => "Process and settings",
        }
    }
}

/// Effect of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The flag changes a setting.
    Used,
    /// The flag requests the fixed behaviour of this server.
    Given,
    /// Accepted without effect, and one line on stderr gives the reason.
    Ignored(&'static str),
    /// Refused: a start without its effect would be unsafe or useless.
    Refused(&'static str),
    /// As `Used`, and one line on stderr names the spelling that takes its place.
    Old(&'static str),
}

#[derive(Debug)]
pub struct Flag {
    /// `None` for our own flags, which have only a long form.
    pub short: Option<char>,
    pub long: &'static str,
    /// Name of the value in the help; `None` for a flag without a value.
    pub value: Option<&'static str>,
    pub meaning: Meaning,
    pub help: &'static str,
}

use Meaning::{Given, Ignored, Old, Used};

const SLABS: &str = "segments take the place of slab classes";

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    flag('p', "port", Some("num"), Used, "TCP port to listen on (default: 11211)"),
    flag('U', "udp-port", Some("num"), Used, "UDP port to listen on, for the text protocol: without passwords,\n\
        and answers can be sent to forged addresses (default: 0, off)"),
    flag('s', "unix-socket", Some("file"), Used, "unix socket to listen on (then no TCP)"),
    flag('a', "unix-mask", Some("mask"), Used, "access mode of the unix socket, octal (default: 700)"),
    flag('A', "enable-shutdown", None, Used, "allow the command \"shutdown\""),
    flag('l', "listen", Some("addr"), Used, "address to listen on: host, host:port, [v6]:port, a list\n\
        with commas, or the flag several times (default: all)"),
    flag('d', "daemon", None, Used, "run in the background once the port is open"),
    flag('r', "enable-coredumps", None, Used, "increase the limit on core files"),
    flag('u', "user", Some("user"), Used, "run as this user (only when started as root)"),
    flag('m', "memory-limit", Some("num"), Used, "all memory of the cache, in megabytes (default: 64)"),
    flag('M', "disable-evictions", None, Used, "a full cache refuses writes instead of evicting"),
    flag('c', "conn-limit", Some("num"), Used, "connections at a time (default: 1024)"),
    flag('k', "lock-memory", None, Used, "lock all memory"),
    flag('v', "verbose", None, Used, "say what goes wrong; -vv: connections too"),
    flag('h', "help", None, Used, "print this help"),
    flag('i', "license", None, Used, "print the licence"),
    flag('V', "version", None, Used, "print the version"),
    flag('P', "pidfile", Some("file"), Used, "write the process id into this file"),
    flag('f', "slab-growth-factor", Some("num"), Ignored(SLABS), ""),
    flag('n', "slab-min-size", Some("bytes"), Ignored(SLABS), ""),
    flag('L', "enable-largepages", None, Given, "huge pages are always asked for"),
    flag('D', "stats-delimiter", Some("char"), Used, "what ends the key prefixes of \"stats detail\", which is\n\
        then on from the start (default: a colon, and off)"),
    flag('t', "threads", Some("num"), Used, "worker threads (default: the cores, at most 4)"),
    flag('R', "max-reqs-per-event", Some("num"), Used, "requests of one connection before the others have their turn\n\
        (default: 20)"),
    flag('C', "disable-cas", None, Ignored("cas tokens cost no memory here"), ""),
    flag('b', "listen-backlog", Some("num"), Used, "connections that wait to be accepted (default: 1024)"),
    flag('B', "protocol", Some("name"), Used, "ascii, binary or auto (default: auto)"),
    flag('I', "max-item-size", Some("num"), Used, "largest value, with k or m (default: 1m, min: 1k, max: 1024m,\n\
        at most half of -m)"),
    flag('S', "enable-sasl", None, Used, "ask every client for a password, with SASL in the binary protocol;\n\
        users: -Y, or the file in the variable MEMCACHED_SASL_PWDB"),
    flag('F', "disable-flush-all", None, Used, "refuse the command \"flush_all\""),
    flag('X', "disable-dumping", None, Used, "refuse to list the keys"),
    flag('W', "disable-watch", None, Used, "refuse the command \"watch\""),
    flag('Y', "auth-file", Some("file"), Used, "ask every client for a password, with a set in the text protocol;\n\
        lines of user:password, read again on SIGHUP"),
    flag('e', "memory-file", Some("file"), Used, "file that takes the whole cache at a clean stop; the next start\n\
        begins with it"),
    flag('Z', "enable-ssl", None, Used, "TLS on all TCP addresses but those of -l that begin with notls:;\n\
        needs -o ssl_chain_cert=<file>,ssl_key=<file>"),
    flag('o', "extended", Some("list"), Used, "options with commas; idle_timeout=<seconds> and ssl_... have a\n\
        meaning, most others of memcached 1.6 give a warning"),
    flag('N', "napi-ids", Some("num"), Ignored("connections are dealt to the workers in turn"), ""),
    own("admin", "addr:port|off", "HTTP with metrics and the dashboard (default:\n\
        127.0.0.1:11212 for a server on port 11211, else off)"),
    own("history-file", "file", "file that keeps the dashboard's history of a week over a restart\n\
        (default: in memory only)"),
    own("controller", "auto|dry-run|off", "move memory between pools to where it earns hits; needs the\n\
        admin HTTP (default: auto)"),
    own("controller-policies", "list", "eviction policies that the controller may give to pools, with commas\n\
        between them; it does where models of them say that fewer gets would\n\
        miss (default: none)"),
    own("config", "file", "settings in TOML: long names of flags as keys; the command line\nwins over files"),
    own("flags-file", "file", "flags in a file, as Debian's /etc/memcached.conf"),
    Flag { short: None, long: "check", value: None, meaning: Used, help: "only say whether the\n\
        server would start with these settings, and what they come to" },
    Flag { short: None, long: "test-clock", value: None, meaning: Used, help: "" },
    own("busy-poll", "when", "when a worker asks for news, for microseconds and as long as that is rarely\n\
        in vain, instead of sleeping: auto (while it reads flash), always or\n\
        never (default: auto; never with more workers than cores)"),
    own("save-seconds", "num", "seconds in which a clean stop writes the file of -e; if that is not enough\n\
        the next start is cold (default: 60)"),
    own("memory-monitor", "how", "give memory back while the host or control group is short of it, or this\n\
        process is too large: free,lower=SIZE,upper=SIZE or resident,lower=SIZE,\n\
        upper=SIZE; with step=5%, floor=25%, stall=10% if wanted (default: off)"),
    own("pool", "name:options", "memory of its own for some keys, several times for several pools:\n\
        NAME:prefix=users:,prefix=sess/ and, if wanted, min=64m,max=1g,weight=2,\n\
        policy=NAME,flash=20%, or kind=compact,key=16,value=0 for small objects; other keys are\n\
        in the pool default (default: one pool)"),
    own("policy", "name", "eviction policy, one of s3fifo lru lru:insertion=1/2 lru:insertion=1/4\n\
        lru:insertion=1/8 2q merge fifo random cte utilization merge-sketch (default:\n\
        s3fifo)"),
    own("objective", "name", "what evictions, and the division of the controller, maximize: objects\n\
        (hits) or bytes (the bytes that hits serve) (default: objects)"),
    own("merge-run", "num", "segments that one merge eviction reads (default: 4)"),
    own("segment-size", "num", "values in a segment, with k or m (default: by -m, 4k to 1m)"),
    own("flash", "path:size", "what memory has no space for goes to this file, which is created, or\n\
        block device; several times for several"),
    own("flash-admission", "policy", "which evicted objects are written: all, probability:0.5,\n\
        reject-first:TIMES:KEYS or history:KEYS_PER_HOUR[:READS_PER_HOUR],\n\
        then, if wanted, ,budget:10m (bytes a second) or ,budget:3dwpd, and\n\
        ,min-ttl:SECONDS (default: all,min-ttl:10)"),
    own("flash-reinsertion", "which", "objects of a reclaimed region that are written again: auto (objects that\n\
        were read, while copies are read more than new objects) or none\n\
        (default: auto)"),
    own("flash-reclaim", "order", "region that is reclaimed first: lru (oldest last hit) or fifo (oldest);\n\
        with ,discard a block device is told of it (default: lru)"),
    own("flash-promotion", "which", "which hits on flash come back to memory: auto (of a key that was hit\n\
        there before memory turned over), always, second-hit (within a minute),\n\
        never, or one-in:N of those (default: auto)"),
    own("flash-demotion-wait", "num", "milliseconds that a write waits until flash takes what it evicts,\n\
        before that is lost; others are served meanwhile (default: 50)"),
    own("flash-drain-seconds", "num", "seconds in which a clean stop without -e writes what is in memory to flash,\n\
        the most frequent objects first; 0 for not at all (default: 30)"),
    own("flash-small-threshold", "num", "min objects for which a page of small objects is rewritten; with\n\
        ,share:PERCENT of flash for objects under 2 KiB (default: automatic) and ,log:PERCENT of that for\n\
        their log, 0 to 50 (default: 2,log:10)"),
    own("flash-deletion-log", "file", "log of deletions, which keeps deleted objects deleted after a crash\n\
        (default: the first path with .removals; of a block device none)"),
    own("flash-endurance", "rating", "rated writes of the drive: terabytes, as 600tbw, or drive writes a day over\n\
        five years, as 1dwpd; with ,spare:PERCENT of the capacity in use that the drive has\n\
        beside it (default: 1dwpd,spare:7)"),
    old("flash-discard", None, "--flash-reclaim ORDER,discard"),
    old("flash-least-ttl", Some("num"), "--flash-admission POLICY,min-ttl:SECONDS"),
    old("flash-small-share", Some("num"), "--flash-small-threshold OBJECTS,share:PERCENT"),
    old("flash-small-log", Some("num"), "--flash-small-threshold OBJECTS,log:PERCENT"),
    old("flash-removals", Some("file"), "--flash-deletion-log FILE"),
    old("flash-spare", Some("num"), "--flash-endurance RATING,spare:PERCENT"),
];

const fn flag(
    short: char,
    long: &'static str,
    value: Option<&'static str>,
    meaning: Meaning,
    help: &'static str,
) -> Flag {
    Flag { short: Some(short), long, value, meaning, help }
}

const fn own(long: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { short: None, long, value: Some(value), meaning: Used, help }
}

const fn old(long: &'static str, value: Option<&'static str>, new: &'static str) -> Flag {
    Flag { short: None, long, value, meaning: Old(new), help: "" }
}

impl Flag {
    pub fn by_short(short: char) -> Option<&'static Self> {
        FLAGS.iter().find(|flag| flag.short == Some(short))
    }

    /// The flag of this long name, or the only one in the help that begins with it.
    pub fn by_long(name: &str) -> Option<&'static Self> {
        let mut fits = FLAGS.iter().filter(|flag| flag.long.starts_with(name) && !flag.is_hidden());
        Self::by_exact_long(name).or_else(|| fits.next().filter(|_| fits.next().is_none()))
    }

    /// The flag of this long name, spelled out.
    pub fn by_exact_long(name: &str) -> Option<&'static Self> {
        FLAGS.iter().find(|flag| flag.long == name)
    }

    /// Whether the flag prints a text instead of starting a server.
    pub fn is_question(&self) -> bool {
        matches!(self.long, "help" | "version" | "license")
    }

    /// Whether it is for tests of programs that use the server: spelled out on the command line, and nowhere else.
    fn is_for_tests(&self) -> bool {
        self.long == "test-clock"
    }

    /// Whether the help does not name it.
    pub fn is_hidden(&self) -> bool {
        self.is_for_tests() || matches!(self.meaning, Old(_))
    }

    /// Whether a file of settings may contain the flag.
    pub fn is_for_files(&self) -> bool {
        !self.is_question() && !self.is_for_tests() && !matches!(self.long, "config" | "flags-file" | "check")
    }

    pub fn group(&self) -> Group {
        match self.long {
            "port" | "udp-port" | "unix-socket" | "unix-mask" | "listen" | "conn-limit" | "threads" => Group::Network,
            "max-reqs-per-event" | "listen-backlog" | "protocol" | "busy-poll" => Group::Network,
            "memory-limit" | "disable-evictions" | "lock-memory" | "max-item-size" | "policy" => Group::Memory,
            "objective" | "merge-run" | "segment-size" | "memory-file" | "memory-monitor" => Group::Memory,
            "pool" => Group::Pools,
            "enable-sasl" | "auth-file" | "enable-ssl" => Group::Secrets,
            "verbose" | "admin" | "history-file" | "stats-delimiter" => Group::Observation,
            "enable-shutdown" | "disable-flush-all" | "disable-dumping" | "disable-watch" => Group::Commands,
            _ if self.is_about_flash() => Group::Flash,
            _ => Group::Process,
        }
    }

    /// The help in one line.
    pub fn text(&self) -> String {
        self.help.replace('\n', " ")
    }

    /// The default as the help prints it; `None` prints nothing.
    pub fn default_text(&self) -> Option<String> {
        let text = self.text();
        let (_, rest) = text.rsplit_once("(default: ")?;
        let ends = [")", ", ", ";"].map(|end| rest.find(end).unwrap_or(rest.len()));
        Some(rest[..ends.into_iter().min().unwrap_or(rest.len())].to_owned())
    }

    pub fn is_about_flash(&self) -> bool {
        self.long.starts_with("flash")
    }

    /// How messages name it: `-p`, or `--policy`.
    pub fn name(&self) -> String {
        match self.short {
            Some(short) => format!("-{short}"),
            None => format!("--{}", self.long),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_prefixes_of_long_names_are_accepted() {
        assert_eq!(Flag::by_long("port").unwrap().short, Some('p'));
        assert_eq!(Flag::by_long("memory-l").unwrap().short, Some('m'));
        assert!(Flag::by_long("disable").is_none());
        assert!(Flag::by_long("frob").is_none());
        assert_eq!(Flag::by_long("t").unwrap().short, Some('t'));
        assert_eq!(Flag::by_long("flash-small").unwrap().long, "flash-small-threshold", "old spellings are none");
        assert_eq!(Flag::by_long("flash-spare").unwrap().long, "flash-spare");
        assert!(Flag::by_long("test").is_none() && Flag::by_long("test-clock").unwrap().is_hidden());
    }

    #[test]
    fn every_flag_is_named_once() {
        for (at, flag) in FLAGS.iter().enumerate() {
            for other in &FLAGS[at + 1..] {
                assert_ne!(flag.long, other.long);
                assert!(flag.short.is_none() || flag.short != other.short);
            }
        }
    }
}

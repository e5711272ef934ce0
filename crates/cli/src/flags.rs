//! The command line of the server, as memcached 1.6 spells it: clusters (`-vvd`), attached values (`-m64`), long names
//! (`--memory-limit=64`, or as much of one as is clear), flags in any order.

mod admin;
mod auth;
#[cfg(test)]
mod documented;
mod extended;
mod flash;
mod line;
mod other_words;
mod paths;
mod pools;
pub mod pressure;
mod table;
mod tls;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use ebbtide_server::ebbtide::memcached::ControllerMode;
use ebbtide_server::ebbtide::{Objective, Policy, PressureOptions};
use ebbtide_server::{BusyPoll, PoolRule, Protocol};

use self::admin::AdminFlag;
use self::flash::FlashFlags;
use crate::error::Error;

pub use self::admin::DEFAULT_PORT;
pub use self::auth::auth;
pub use self::extended::OPTIONS;
pub use self::line::{Given, read as read_line};
pub use self::other_words::meant as meant_flag;
pub use self::pools::escape as escape_pool_text;
pub use self::table::{FLAGS, Flag, Group, Meaning};
pub use self::tls::Tls;

const MIB: u64 = 1 << 20;
/// memcached's bounds of `-I`.
const MIN_VALUE_LIMIT: u64 = 1024;
const MAX_VALUE_LIMIT: u64 = 1 << 30;
/// From here on memcached thinks that the number of threads is a mistake.
const MANY_THREADS: usize = 64;
/// A day: no service manager waits for longer.
const SAVE_SECONDS_MAX: u64 = 86_400;

/// Settings from flags, in the units of the engine; the defaults are memcached's.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub port: u16,
    /// Whether `port` was given.
    pub port_given: bool,
    /// 0: no UDP.
    pub udp_port: u16,
    /// With a Unix socket there is no TCP.
    pub unix_socket: Option<PathBuf>,
    pub unix_mode: u32,
    /// The lists of all `-l`, split; empty for all addresses.
    pub listen: Vec<String>,
    pub backlog: u32,
    pub requests_per_event: usize,
    pub connections: usize,
    pub threads: usize,
    pub busy_poll: BusyPoll,
    pub memory_bytes: u64,
    pub max_value_bytes: u64,
    pub idle_timeout: Option<Duration>,
    pub verbosity: u8,
    pub allow_shutdown: bool,
    pub allow_flush: bool,
    pub allow_dump: bool,
    pub allow_watch: bool,
    pub test_clock: bool,
    pub tls: Tls,
    pub admin: AdminFlag,
    pub history_file: Option<PathBuf>,
    /// None where the flag is not given.
    pub controller: Option<ControllerMode>,
    pub controller_policies: Vec<Policy>,
    /// `None`: the protocol of the authentication, or all.
    pub protocol: Option<Protocol>,
    pub sasl: bool,
    pub auth_file: Option<PathBuf>,
    pub daemon: bool,
    pub pid_file: Option<PathBuf>,
    pub memory_file: Option<PathBuf>,
    /// Of the save at a stop; `None` for the default of the library.
    pub save_limit: Option<Duration>,
    pub memory_monitor: Option<PressureOptions>,
    pub user: Option<String>,
    pub core_dumps: bool,
    pub lock_memory: bool,
    /// Byte that ends a key's prefix, if statistics are kept by prefix from the start.
    pub prefix_delimiter: Option<u8>,
    pub pools: Vec<PoolRule>,
    pub policy: Option<String>,
    /// Whether a full cache evicts.
    pub evicts: bool,
    /// The objective of evictions.
    pub objective: Objective,
    pub merge_run: Option<u32>,
    pub segment_bytes: Option<u64>,
    pub flash: FlashFlags,
    /// One line for each flag that changes nothing here.
    pub warnings: Vec<String>,
    /// The settings given, in the order in which they apply.
    pub origins: Vec<Origin>,
}

/// A flag that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its long name.
    pub flag: &'static str,
    pub value: String,
    /// File and line; `None` for the command line.
    pub place: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 11211,
            port_given: false,
            udp_port: 0,
            unix_socket: None,
            unix_mode: 0o700,
            listen: Vec::new(),
            backlog: 1024,
            requests_per_event: 20,
            connections: 1024,
            // More workers than cores only take time from each other.
            threads: std::thread::available_parallelism().map_or(4, |cores| cores.get().min(4)),
            busy_poll: BusyPoll::Auto,
            memory_bytes: 64 * MIB,
            max_value_bytes: MIB,
            idle_timeout: None,
            verbosity: 0,
            allow_shutdown: false,
            allow_flush: true,
            allow_dump: true,
            allow_watch: true,
            test_clock: false,
            tls: Tls::default(),
            admin: AdminFlag::default(),
            history_file: None,
            controller: None,
            controller_policies: Vec::new(),
            protocol: None,
            sasl: false,
            auth_file: None,
            daemon: false,
            pid_file: None,
            memory_file: None,
            save_limit: None,
            memory_monitor: None,
            user: None,
            core_dumps: false,
            lock_memory: false,
            prefix_delimiter: None,
            pools: Vec::new(),
            policy: None,
            evicts: true,
            objective: Objective::default(),
            merge_run: None,
            segment_bytes: None,
            flash: FlashFlags::default(),
            warnings: Vec::new(),
            origins: Vec::new(),
        }
    }
}

/// A count that must not be 0, with memcached's words and exit code.
fn positive(flag: &str, text: &str, what: &str) -> Result<usize, Error> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Error::Illegal(format!("{flag} {text}: {what} must be greater than 0; give a number from 1"))),
    }
}

impl Settings {
    /// Takes one flag.
    pub fn apply(&mut self, flag: &Flag, value: &str) -> Result<(), Error> {
        let name = &flag.name();
        match flag.meaning {
            Meaning::Refused(reason) => {
                return Err(Error::Limit(format!(
                    "{name}: {reason}; start without {name} only if that is what you want"
                )));
            }
            Meaning::Ignored(reason) => {
                self.warn(format!("{name} is ignored: {reason}"));
            }
            Meaning::Given => {}
            Meaning::Used => self.set(flag, name, value)?,
            Meaning::Old(new) => {
                self.warn(format!("{name} is an old spelling: write {new}"));
                self.set(flag, name, value)?;
            }
        }
        Ok(())
    }

    /// Adds a warning, unless it exists.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn set(&mut self, flag: &Flag, name: &str, value: &str) -> Result<(), Error> {
        match flag.long {
            "port" => {
                self.port = port(name, value)?;
                self.port_given = true;
            }
            "udp-port" => self.udp_port = port(name, value)?,
            "unix-socket" => self.unix_socket = Some(value.into()),
            "unix-mask" => self.unix_mode = values::octal(name, value)?,
            "listen" => {
                let hosts = value.split([',', ';']).map(str::trim);
                self.listen.extend(hosts.filter(|host| !host.is_empty()).map(str::to_owned));
            }
            "listen-backlog" => {
                self.backlog = values::number(name, value, 1..=i32::MAX as u64)? as u32;
            }
            "conn-limit" => self.connections = positive(name, value, "Maximum connections")?,
            "max-reqs-per-event" => {
                self.requests_per_event = positive(name, value, "Number of requests per event")?;
            }
            "threads" => {
                self.threads = positive(name, value, "Number of threads")?;
                if self.threads > MANY_THREADS {
                    self.warnings.push(format!("{name} {value}: more threads than cores take time from each other"));
                }
            }
            "busy-poll" => self.busy_poll = busy_poll(name, value)?,
            "memory-limit" => self.memory_bytes = values::megabytes(name, value)?,
            "max-item-size" => self.max_value_bytes = values::size(name, value)?,
            "protocol" => self.protocol = Some(auth::protocol(name, value)?),
            "enable-sasl" => self.sasl = true,
            "auth-file" => self.auth_file = Some(value.into()),
            "extended" => extended::parse(value, self)?,
            "verbose" => self.verbosity = self.verbosity.saturating_add(1),
            "enable-shutdown" => self.allow_shutdown = true,
            "disable-flush-all" => self.allow_flush = false,
            "disable-dumping" => self.allow_dump = false,
            "disable-watch" => self.allow_watch = false,
            "test-clock" => {
                self.test_clock = true;
                self.warn(format!("{name}: clients can move the time on (debugtime); for tests only"));
            }
            "enable-ssl" => self.tls.enabled = true,
            "disable-evictions" => self.evicts = false,
            "daemon" => self.daemon = true,
            "pidfile" => self.pid_file = Some(value.into()),
            "memory-file" => self.memory_file = Some(value.into()),
            "save-seconds" => {
                self.save_limit = Some(Duration::from_secs(values::number(name, value, 1..=SAVE_SECONDS_MAX)?));
            }
            "memory-monitor" => self.memory_monitor = pressure::parse(name, value)?,
            "user" => self.user = Some(value.to_owned()),
            "enable-coredumps" => self.core_dumps = true,
            "lock-memory" => self.lock_memory = true,
            "admin" => self.admin = AdminFlag::parse(name, value)?,
            "history-file" => self.history_file = Some(value.into()),
            "controller" | "controller-policies" => self.set_controller(flag.long, name, value)?,
            "stats-delimiter" => self.prefix_delimiter = Some(values::character(name, value)?),
            "pool" => self.add_pool(name, value)?,
            "policy" => self.policy = Some(self.policy_name(value).to_owned()),
            "objective" => self.objective = objective(name, value)?,
            "merge-run" => self.merge_run = Some(values::number(name, value, 2..=64)? as u32),
            "segment-size" => self.segment_bytes = Some(values::size(name, value)?),
            long if flag.is_about_flash() => self.flash.set(long, name, value)?,
            // Read before the flags are taken, because they say where more of them stand, or what to do with them.
            "flags-file" | "config" | "check" => {}
            other => unreachable!("{other} is in the table as used"),
        }
        Ok(())
    }

    fn add_pool(&mut self, name: &str, value: &str) -> Result<(), Error> {
        self.pools.push(pools::parse(name, value)?);
        for policy in value.split(',').filter_map(|option| option.strip_prefix("policy=")) {
            self.policy_name(policy);
        }
        Ok(())
    }

    /// The name of a policy that may be written by an alias, which warns.
    fn policy_name<'a>(&mut self, written: &'a str) -> &'a str {
        let Some(policy) = Policy::of_alias(written) else { return written };
        let name = policy.name();
        self.warn(format!("the policy {written} is named {name}: it is not W-TinyLFU; write {name}"));
        name
    }

    fn set_controller(&mut self, long: &str, name: &str, value: &str) -> Result<(), Error> {
        match long {
            "controller" => self.controller = Some(controller(name, value)?),
            _ => self.controller_policies = self.policies(name, value)?,
        }
        Ok(())
    }

    /// Policies with commas between them.
    fn policies(&mut self, flag: &str, value: &str) -> Result<Vec<Policy>, Error> {
        let policy = |written: &str| {
            let named = self.policy_name(written.trim()).parse();
            named.map_err(|error| Error::Limit(format!("{flag} {value}: {error}")))
        };
        value.split(',').map(policy).collect()
    }

    pub fn policy(&self) -> Result<Policy, Error> {
        let Some(name) = &self.policy else { return Ok(Policy::default()) };
        name.parse().map_err(|error| Error::Limit(format!("--policy {name}: {error}")))
    }

    /// The pools of the server, the pool `default` first, each with its policy.
    pub fn pool_rules(&self) -> Result<Vec<PoolRule>, Error> {
        self.policy().map(|policy| pools::rules(&self.pools, policy))
    }

    /// Settings that depend on several flags; call it when all flags are applied.
    pub fn finish(&mut self) -> Result<(), Error> {
        // As in memcached, UDP brings TCP to its port.
        if self.udp_port != 0 && !self.port_given {
            self.port = self.udp_port;
        }
        self.check()?;
        self.make_paths_absolute();
        if self.udp_port != 0 && self.unix_socket.is_some() {
            self.warn(format!("-U {} is ignored: with -s there is only the unix socket", self.udp_port));
        }
        self.warnings.extend(self.tls.warning());
        self.warnings.extend(self.flash.warning());
        if self.flash.paths.is_empty() {
            self.warnings.extend(pools::bounds_warning(&self.pools, self.memory_bytes));
        }
        if let Some(pool) = self.pools.iter().find(|pool| pool.flash_percent.is_some() && self.flash.paths.is_empty()) {
            self.warn(format!(
                "flash=... of --pool {} changes nothing without flash; give --flash <path:size>",
                pool.name
            ));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        auth::check(self)?;
        pools::check(&self.pools)?;
        let (memory, max_value) = (self.memory_bytes, self.max_value_bytes);
        let advice = if max_value < MIN_VALUE_LIMIT {
            "Item max size cannot be less than 1024 bytes. Increase -I to 1k or more."
        } else if max_value > MAX_VALUE_LIMIT {
            "Cannot set item size limit higher than a gigabyte. Lower -I to 1024m or less."
        } else if max_value > memory / 2 {
            "Cannot set item size limit higher than 1/2 of memory max. Increase -m or lower -I."
        } else {
            return self.check_port();
        };
        Err(Error::Limit(format!("-m {} -I {max_value}: {advice}", memory / MIB)))
    }

    fn check_port(&self) -> Result<(), Error> {
        if self.udp_port != 0
            && self.unix_socket.is_none()
            && (self.sasl || self.auth_file.is_some() || self.tls.enabled)
        {
            return Err(Error::Limit(format!(
                "-U {}: Cannot use UDP with -S, -Y or -Z: it has neither passwords nor TLS; leave -U out, or give -U 0",
                self.udp_port
            )));
        }
        if self.port == 0 && self.udp_port == 0 && self.unix_socket.is_none() && self.listen.is_empty() {
            return Err(Error::Limit(
                "-p 0: nothing to listen on; give a port from 1 to 65535, or -s <file>".to_owned(),
            ));
        }
        Ok(())
    }
}

fn port(name: &str, value: &str) -> Result<u16, Error> {
    value.parse().map_err(|_| Error::Limit(format!("{name} {value}: Invalid port number; give one from 0 to 65535")))
}

fn objective(name: &str, text: &str) -> Result<Objective, Error> {
    values::objective(text).map_err(|error| Error::Limit(format!("{name} {text}: {error}")))
}

fn controller(name: &str, value: &str) -> Result<ControllerMode, Error> {
    match value {
        "auto" => Ok(ControllerMode::Auto),
        "dry-run" => Ok(ControllerMode::DryRun),
        "off" => Ok(ControllerMode::Off),
        _ => Err(Error::Limit(format!("{name} {value}: give auto, dry-run or off"))),
    }
}

fn busy_poll(name: &str, value: &str) -> Result<BusyPoll, Error> {
    match value.trim() {
        "auto" => Ok(BusyPoll::Auto),
        "always" => Ok(BusyPoll::Always),
        "never" => Ok(BusyPoll::Never),
        _ => Err(Error::Limit(format!("{name} {value}: give auto, always or never"))),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::config::{self, Request};

    fn read(line: &[&str]) -> Result<Settings, Error> {
        match config::read(line.iter().map(OsString::from))? {
            Request::Serve(settings) => Ok(*settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_spelling_is_read() {
        for line in [
            &["-p", "1234", "-m", "100", "-vv"][..],
            &["-p1234", "-vm100", "-v"],
            &["--port=1234", "--memory-limit", "100", "--verbose", "-v"],
            &["--por=1234", "-m 100", "-vv"],
        ] {
            let settings = read(line).unwrap();
            assert_eq!((settings.port, settings.memory_bytes, settings.verbosity), (1234, 100 * MIB, 2), "{line:?}");
        }
    }

    #[test]
    fn every_used_flag_of_the_table_sets_something() {
        for flag in FLAGS.iter().filter(|flag| flag.meaning == Meaning::Used) {
            if matches!(flag.long, "help" | "version" | "license" | "flags-file" | "config" | "check") {
                continue;
            }
            let value = match flag.long {
                "unix-mask" => "7",
                "max-item-size" => "2k",
                "extended" => "idle_timeout=9",
                "stats-delimiter" => "#",
                "admin" => "off",
                "controller" => "auto",
                "controller-policies" => "s3fifo,lru",
                "objective" => "bytes",
                "protocol" => "binary",
                "busy-poll" => "never",
                "flash" => "/f:1g",
                "flash-admission" => "history:1m",
                "flash-endurance" => "63tbw",
                "flash-reinsertion" => "none",
                "flash-reclaim" => "fifo",
                "flash-promotion" => "never",
                "flash-small-log" => "37",
                "pool" => "users:prefix=users:",
                "memory-monitor" => "free,lower=1g,upper=2g",
                _ => "63",
            };
            let mut settings = Settings::default();
            settings.apply(flag, value).unwrap();
            assert_ne!(settings, Settings::default(), "{}", flag.long);
        }
    }

    #[test]
    fn an_alias_of_a_policy_warns_once() {
        let settings = read(&["--policy", "tinylfu", "--pool", "a:prefix=a,policy=tinylfu"]).unwrap();
        assert_eq!(settings.policy(), Ok(Policy::MergeSketch));
        assert_eq!(
            settings.warnings,
            ["the policy tinylfu is named merge-sketch: it is not W-TinyLFU; write merge-sketch"]
        );
        assert_eq!(settings.pools[0].policy, Some(Policy::MergeSketch));
        assert!(read(&["--policy", "lru"]).unwrap().warnings.is_empty());
    }

    #[test]
    fn old_spellings_work_and_warn_once() {
        for flag in FLAGS {
            let Meaning::Old(new) = flag.meaning else { continue };
            let value = if flag.value.is_some() { "20" } else { "" };
            let mut settings = Settings::default();
            for _ in 0..2 {
                settings.apply(flag, value).unwrap();
            }
            let warning = format!("--{} is an old spelling: write {new}", flag.long);
            assert_eq!(settings.warnings, [warning], "{}", flag.long);
            assert_ne!(settings.flash, FlashFlags::default(), "{}", flag.long);
        }
        let flags = |line: &[&str]| read(line).map(|settings| settings.flash.options());
        let old = flags(&["--flash-least-ttl=60", "--flash-small-share=20", "--flash-removals=/r", "--flash-discard"]);
        let new = flags(&[
            "--flash-admission=all,min-ttl:60",
            "--flash-small-threshold=2,share:20",
            "--flash-deletion-log=/r",
            "--flash-reclaim=lru,discard",
        ]);
        assert_eq!(format!("{:?}", old.unwrap()), format!("{:?}", new.unwrap()));
    }

    #[test]
    fn listeners_add_up() {
        let settings = read(&["-l", "127.0.0.1,[::1]:12", "--listen=localhost:99"]).unwrap();
        assert_eq!(settings.listen, ["127.0.0.1", "[::1]:12", "localhost:99"]);
    }

    #[test]
    fn flags_without_a_meaning_warn() {
        let settings = read(&["-f", "1.5", "-N", "4", "-n20"]).unwrap();
        assert_eq!(settings.warnings.len(), 3);
        assert_eq!(read(&["-U", "0", "-L"]).unwrap().warnings, [""; 0]);
    }

    #[test]
    fn pools_that_leave_memory_unused_warn() {
        let warnings = |default: &str, more: &[&str]| {
            let line = [&["-m", "64", "--pool", "a:prefix=a,max=16m", "--pool", default], more].concat();
            read(&line).unwrap().warnings
        };
        let warned = warnings("default:max=40m", &[]);
        assert!(warned.len() == 1 && warned[0].contains("56 MiB") && warned[0].contains("64 MiB"), "{warned:?}");
        assert_eq!([warnings("default:max=48m", &[]), warnings("default:min=1m", &[])].concat(), [""; 0]);
        assert_eq!(warnings("default:max=40m", &["--flash", "f:1g"]), [""; 0], "flash may use the rest");
    }

    #[test]
    fn blanks_behind_flags_and_blank_words_are_skipped() {
        for line in [&["-M "][..], &["-M", "", "-v "], &["", "-M"], &[" ", "-M\t"], &["--disable-evictions "]] {
            assert!(!read(line).unwrap().evicts, "{line:?}");
        }
        assert_eq!(read(&["-D", " "]).map(|settings| settings.prefix_delimiter).ok(), None, "a blank value is missing");
    }

    #[test]
    fn udp_sets_the_tcp_port_and_refuses_secrets() {
        let ports = |line: &[&str]| read(line).map(|settings| (settings.port, settings.udp_port));
        assert_eq!(ports(&[]), Ok((11211, 0)));
        assert_eq!(ports(&["-U", "12"]), Ok((12, 12)));
        assert_eq!(ports(&["-U", "12", "-p", "13"]), Ok((13, 12)));
        assert_eq!(ports(&["-p", "0", "-U", "12"]), Ok((0, 12)));
        for more in [&["-Y", "f"][..], &["-S"], &["-Z"]] {
            let line = [&["-U", "12"], more].concat();
            assert!(matches!(read(&line), Err(Error::Limit(message)) if message.contains("-U 12")), "{more:?}");
            assert!(read(&[&["-U", "0"], more].concat()).is_ok(), "{more:?}");
        }
        assert_eq!(read(&["-U", "12", "-s", "f"]).unwrap().warnings.len(), 1);
    }

    #[test]
    fn unknown_flags_and_missing_values_are_illegal() {
        for line in
            [&["-Q"][..], &["--frob"], &["-p"], &["-m", ""], &["-c", "0"], &["-t", "abc"], &["stray"], &["--daemon=1"]]
        {
            assert!(matches!(read(line), Err(Error::Illegal(_))), "{line:?}");
        }
    }

    #[test]
    fn values_outside_of_their_limits_are_refused() {
        for (line, part) in [
            (&["-m", "0"][..], "1/2 of memory"),
            (&["-m", "1"], "1/2 of memory"),
            (&["-I", "10"], "less than 1024"),
            (&["-I", "2g", "-m", "9000"], "a gigabyte"),
            (&["-I", "33m"], "1/2 of memory"),
            (&["-p", "70000"], "-p 70000"),
            (&["-p", "0"], "nothing to listen on"),
            (&["-a", "9"], "octal"),
            (&["-D", "ab"], "one character"),
            (&["-o", "proxy_config=f"], "proxy"),
        ] {
            match read(line) {
                Err(Error::Limit(message)) => assert!(message.contains(part), "{message}"),
                other => panic!("{line:?}: {other:?}"),
            }
        }
        assert!(read(&["-I", "32m"]).is_ok());
    }
}

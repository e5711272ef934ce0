//! Messages of a start on standard error: a summary line of the server, a warning if everyone may use it, and with `-v`
//! the origin of each setting.

use std::net::IpAddr;

use ebbtide_server::ebbtide::memcached::{Cache, MemoryStart};
use ebbtide_server::ebbtide::{ByteSize, Policy};
use ebbtide_server::{Admin, ClientCertificates, Listen, ServerOptions};

use crate::flags::{DEFAULT_PORT, FLAGS, Flag, Settings};
use crate::process;

/// The server in one line.
pub fn summary(settings: &Settings, options: &ServerOptions, cache: &Cache) -> String {
    let memory = ByteSize::bytes(settings.memory_bytes);
    let policy = match settings.evicts {
        true => settings.policy.clone().unwrap_or_else(|| Policy::default().name().to_owned()),
        false => "no evictions".to_owned(),
    };
    let mut parts = vec![format!("{} on {}", version(), addresses(options)), format!("memory {memory}, {policy}")];
    let pools = cache.pools().len();
    if pools > 1 {
        parts.push(format!("{pools} pools"));
    }
    for (path, bytes) in &settings.flash.paths {
        parts.push(format!("flash {} of {}", ByteSize::bytes(*bytes), path.display()));
    }
    if let (Some(path), Some(start)) = (&settings.memory_file, cache.memory_start()) {
        let warm = if matches!(start, MemoryStart::Warm { .. }) { "warm" } else { "cold" };
        let mode = cache.memory_file_mode().map_or(String::new(), |mode| format!(", {mode}"));
        parts.push(format!("memory file {} ({warm}){mode}", path.display()));
    }
    parts.push(match options.admin {
        Some(admin) => format!("dashboard http://{}/", admin.address),
        None => "no dashboard".to_owned(),
    });
    parts.join("; ")
}

fn version() -> String {
    format!("ebbtide {} (memcached {})", env!("CARGO_PKG_VERSION"), ebbtide_server::VERSION)
}

/// The addresses as a list.
pub fn addresses(options: &ServerOptions) -> String {
    let with_kind = |listen: &Listen| match listen {
        Listen::Tcp(_) => listen.to_string(),
        Listen::Tls(_) => format!("{listen} (TLS)"),
        Listen::Udp(_) => format!("{listen} (UDP)"),
        Listen::Unix { mode, .. } => format!("{listen} (mode {mode:o})"),
    };
    options.listeners.iter().map(with_kind).collect::<Vec<_>>().join(", ")
}

/// The warning, if a server listens on all addresses without passwords or client certificates.
pub fn exposure(options: &ServerOptions) -> Option<String> {
    let asks_certificates = options.tls.as_ref().is_some_and(|tls| {
        matches!(tls.client_certificates, ClientCertificates::Required | ClientCertificates::RequiredOnce)
    });
    let is_open = |listen: &&Listen| match listen {
        Listen::Tcp(address) | Listen::Udp(address) => is_everywhere(address.ip()),
        Listen::Tls(address) => is_everywhere(address.ip()) && !asks_certificates,
        Listen::Unix { .. } => false,
    };
    let open = options.listeners.iter().find(is_open).filter(|_| options.auth.is_none())?;
    Some(format!(
        "no password is asked, and {open} is reached from every network of this host: every client that connects can \
         read and change the cache; -l 127.0.0.1 listens on this host only, -Y FILE asks for passwords"
    ))
}

fn is_everywhere(address: IpAddr) -> bool {
    address.is_unspecified()
}

/// The warning, if `--history-file` is given without an admin HTTP that shows the history.
pub fn unseen_history(settings: &Settings, options: &ServerOptions) -> Option<String> {
    let path = settings.history_file.as_deref().filter(|_| options.admin.is_none())?;
    Some(format!(
        "--history-file {} is ignored: the dashboard that shows the history is off; give --admin 127.0.0.1:{DEFAULT_PORT}, \
         or leave --history-file out",
        path.display()
    ))
}

/// The warning about the user that the process runs as; call it after `-u` has been obeyed.
pub fn user_warning(settings: &Settings) -> Option<String> {
    match &settings.user {
        None if process::is_root() => {
            Some("running as root; -u <user> gives that up once the addresses are open".to_owned())
        }
        Some(user) if is_user_ignored(settings) => {
            Some(format!("-u {user} is ignored: only root can become somebody else"))
        }
        _ => None,
    }
}

/// Whether `-u` changes nothing, because the process was not started by root.
fn is_user_ignored(settings: &Settings) -> bool {
    settings.user.as_deref().is_some_and(|user| !process::is_root() && !process::is_user(user))
}

/// Defaults that depend on other settings or on the machine.
#[derive(Clone, Copy, Default)]
pub struct Derived {
    pub admin: Option<Admin>,
    /// Bytes of values in a segment.
    pub segment_bytes: u64,
}

impl Derived {
    pub fn new(options: &ServerOptions, cache: &Cache) -> Self {
        // A segment is a 64th part longer than the bytes of values for which it is made.
        Self { admin: options.admin, segment_bytes: cache.stats().segment_bytes / 65 * 64 }
    }

    fn default_text(self, flag: &Flag) -> Option<String> {
        match flag.long {
            "admin" => Some(self.admin.map_or("off".to_owned(), |admin| admin.address.to_string())),
            "threads" => Some(Settings::default().threads.to_string()),
            "segment-size" => Some(match self.segment_bytes {
                bytes if bytes % (1 << 20) == 0 => format!("{}m", bytes >> 20),
                bytes => format!("{}k", bytes >> 10),
            }),
            _ => flag.default_text(),
        }
    }
}

/// A line for each setting: flag, value, and where that is from.
pub fn settings_table(settings: &Settings, derived: Derived) -> Vec<String> {
    let is_told = |flag: &&Flag| !flag.is_hidden() && !flag.is_question() && flag.long != "check";
    FLAGS.iter().filter(is_told).flat_map(|flag| rows(settings, flag, derived)).collect()
}

fn rows(settings: &Settings, flag: &Flag, derived: Derived) -> Vec<String> {
    let given: Vec<_> = settings.origins.iter().filter(|origin| origin.flag == flag.long).collect();
    if given.is_empty() {
        let default = derived.default_text(flag);
        return default.map(|value| format!("--{} {value} (default)", flag.long)).into_iter().collect();
    }
    let ignored = if flag.long == "user" && is_user_ignored(settings) { "; ignored" } else { "" };
    let row = |origin: &&crate::flags::Origin| {
        let place = origin.place.as_deref().unwrap_or("command line");
        let space = if origin.value.is_empty() { "" } else { " " };
        format!("--{}{space}{} ({place}{ignored})", flag.long, origin.value)
    };
    given.iter().map(row).collect()
}

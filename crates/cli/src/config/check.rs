//! `--check`: whether the server would start with these settings, and the resulting configuration. It binds no port and
//! changes nothing, so it can run beside a server with the same settings; it then reports flash as in use.

use std::fmt::Write;

use ebbtide_server::ebbtide::memcached::{ByteSize, Cache, Policy, PressureOptions, is_memory_file_held};
use ebbtide_server::{ServerOptions, UNSENT_BYTES_MAX};

use crate::error::Error;
use crate::flags::{self, Settings};
use crate::process::{self, PidFile};
use crate::startup::Derived;
use crate::{serve, startup};

/// Bytes of values for which the report says how many fit.
const SAMPLE_VALUES: [u64; 4] = [25, 230, 1000, 4000];
/// Bytes of the keys that go with them.
const SAMPLE_KEY: u64 = 20;
/// Bytes of an object beside its key and value: its header, its slot at the usual load of the index, and its share of
/// the open and free segments.
const OVERHEAD: u64 = 16;

/// The report, or the error with which the server would not start.
pub fn run(settings: &Settings) -> Result<String, Error> {
    let auth = flags::auth(settings)?;
    process::allow_files(settings.connections, settings.threads)?;
    let user = serve::other_user(settings)?;
    let options = ServerOptions { auth, ..serve::options(settings, user.as_ref())? };
    options.check().map_err(|error| serve::not_bound(settings, error))?;
    if let Some(user) = &user {
        process::become_user(user)?;
    }
    let no_lock = settings.lock_memory.then(process::try_lock_memory).and_then(Result::err);
    let (cache, for_flash) = serve::cache_without_flash(settings)?;
    let memory_file = memory_file(settings)?;
    let stats = cache.stats();
    let mut report = Report::default();
    for warning in warnings(settings, &options).into_iter().chain(no_lock) {
        report.line("warning", warning);
    }
    report.line("listen", startup::addresses(&options));
    report.line("admin", options.admin.map_or("off".to_owned(), |admin| admin.address.to_string()));
    report.line("tls", tls(&options));
    report.line("passwords", if options.auth.is_some() { "needed" } else { "none" });
    report.line("threads", options.threads);
    report.line("connections", settings.connections);
    report.line("memory", memory(settings.memory_bytes));
    report.line("  segments", format!("{} of {}", stats.segments_total, ByteSize::bytes(stats.segment_bytes)));
    report.line("  index at start", format!("{}; it grows as objects come", ByteSize::bytes(stats.index_bytes)));
    report
        .line("  kept free", format!("{} segments for writers, 1 for evictions", (stats.segments_total / 200).max(2)));
    report.line("  largest value", cache.max_value());
    report.line("  in one piece", format!("values up to {}", ByteSize::bytes(cache.contiguous_limit() as u64)));
    let lent = (stats.memory_limit_bytes / 4).max(cache.max_value().as_bytes() + 2 * stats.segment_bytes);
    report.line("  lent to answers", format!("{} at most", ByteSize::bytes(lent)));
    report.line("  unsent answers", unsent_answers(settings));
    for (path, bytes) in &settings.flash.paths {
        report.line("flash", format!("{} of {}", ByteSize::bytes(*bytes), path.display()));
    }
    if !settings.flash.paths.is_empty() {
        let (at_start, planned) = (for_flash.at_start, for_flash.planned);
        let growth = "more for many small objects; items have the rest";
        report
            .line("  of the memory", format!("{at_start} at the start, up to {planned} as its indexes grow, {growth}"));
    }
    report.line("memory-file", memory_file);
    report.line("history-file", history_file(&options));
    let stop = serve::close_limit(settings)?;
    report.line("stop", format!("at most {}s; systemd is told, other managers must wait as long", stop.as_secs()));
    report.line("memory-monitor", settings.memory_monitor.map_or("off".to_owned(), |options| format!("{options}")));
    let needed_bytes = cache.min_memory().as_bytes() + for_flash.planned.as_bytes();
    if let Some(options) = &settings.memory_monitor {
        report.line("  its floor", floor(settings, options, needed_bytes));
    }
    pools(settings, &cache, &mut report)?;
    let for_items = settings.memory_bytes - for_flash.planned.as_bytes();
    for bytes in SAMPLE_VALUES {
        let objects = for_items / (SAMPLE_KEY + bytes + OVERHEAD);
        report
            .line("  space for", format!("about {objects} objects with {SAMPLE_KEY} B of key and {bytes} B of value"));
    }
    report.line(
        "evictions",
        if settings.evicts { settings.policy.as_deref().unwrap_or(Policy::default().name()) } else { "none" },
    );
    for row in startup::settings_table(settings, Derived::new(&options, &cache)) {
        report.line("set", row);
    }
    Ok(report.0)
}

/// Memory beside `-m` for clients that do not read their answers.
fn unsent_answers(settings: &Settings) -> String {
    let each = UNSENT_BYTES_MAX as u64;
    let all = ByteSize::bytes(each * settings.connections as u64);
    let close = match settings.idle_timeout {
        Some(limit) => format!("closed after {}s", limit.as_secs()),
        None => "-o idle_timeout=SECONDS closes them".to_owned(),
    };
    format!(
        "up to {} beyond the memory for each client that does not read, {all} for all; {close}",
        ByteSize::bytes(each)
    )
}

/// Warnings of a start that need no bound address.
fn warnings(settings: &Settings, options: &ServerOptions) -> Vec<String> {
    let mut warnings = settings.warnings.clone();
    warnings.extend(options.risks());
    warnings.extend(startup::unseen_history(settings, options));
    warnings.extend(startup::user_warning(settings));
    warnings.extend(settings.pid_file.as_deref().and_then(PidFile::refusal));
    warnings.extend(startup::exposure(options));
    warnings
}

/// Minimum to which the memory monitor lowers the memory. `needed_bytes`: minimum memory of pools and flash.
fn floor(settings: &Settings, options: &PressureOptions, needed_bytes: u64) -> String {
    let floor_bytes = options.floor_bytes(settings.memory_bytes);
    let (floor, needed) = (ByteSize::bytes(floor_bytes), ByteSize::bytes(needed_bytes));
    match needed_bytes > floor_bytes {
        true => format!(
            "{floor}, but minimums of pools and flash need {needed}: it stops there; lower min, or increase floor"
        ),
        false => format!("{floor}; minimums of pools and flash need {needed}"),
    }
}

/// Memory and keys of each pool.
fn pools(settings: &Settings, cache: &Cache, report: &mut Report) -> Result<(), Error> {
    for rule in &settings.pools {
        let stats = match rule.compact {
            Some(_) => cache.compact_pool(&rule.name).map(|pool| (pool.stats(), Some(pool.compact_stats()))),
            None => cache.pool(&rule.name).map(|pool| (pool.stats(), None)),
        };
        let (stats, compact) = stats.map_err(|error| Error::System(error.to_string()))?;
        let prefixes: Vec<String> = rule.prefixes.iter().map(|prefix| prefix.escape_ascii().to_string()).collect();
        let keys = if prefixes.is_empty() { "all other keys".to_owned() } else { prefixes.join(" ") };
        let memory = ByteSize::bytes(stats.memory_limit_bytes);
        let entries = compact.map_or(String::new(), |compact| format!(", compact, {} entries", compact.capacity));
        report.line("pool", format!("{}: {memory} for {keys}{entries}", rule.name));
    }
    Ok(())
}

#[derive(Default)]
struct Report(String);

impl Report {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        writeln!(self.0, "{name:<18} {value}").expect("a String takes all that is written to it");
    }
}

fn tls(options: &ServerOptions) -> String {
    match &options.tls {
        None => "off".to_owned(),
        Some(tls) => format!("{}, clients' certificates {:?}", tls.chain_cert.display(), tls.client_certificates),
    }
}

/// The limit, beside the memory of the machine.
fn memory(limit: u64) -> String {
    let limit_text = ByteSize::bytes(limit);
    match process::machine_memory() {
        None => limit_text.to_string(),
        Some(machine) if limit > machine => {
            format!("{limit_text}: more than the {} that there are here; lower -m", ByteSize::bytes(machine))
        }
        Some(machine) => format!("{limit_text} of {} that there are here", ByteSize::bytes(machine)),
    }
}

/// The path of the history file, and whether a start would get it.
fn history_file(options: &ServerOptions) -> String {
    let Some(path) = options.history_in_use() else { return "none".to_owned() };
    let holder = match options.is_history_held() {
        true => "; in use: a start is refused until the server that writes it has stopped",
        false => "",
    };
    format!("{}{holder}", path.display())
}

/// The path of the memory file, and how a start would use it.
fn memory_file(settings: &Settings) -> Result<String, Error> {
    let mode = serve::cache_builder(settings)?.check_memory_file();
    let mode = mode.map_err(|error| serve::not_made(settings, error))?;
    let (Some(path), Some(mode)) = (&settings.memory_file, mode) else { return Ok("none".to_owned()) };
    let holder = match is_memory_file_held(path) {
        true => "; in use: a start waits up to 30s for the process that holds it",
        false => "",
    };
    Ok(format!("{}, {mode}{holder}", path.display()))
}

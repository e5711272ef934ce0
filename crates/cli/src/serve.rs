//! Starts the server: limits, then resources that only root may open (files of passwords and certificates, addresses),
//! then the other user, then the cache; and stops it on a signal.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ebbtide_server::ebbtide::memcached::{Cache, CacheBuilder, ControllerMode, FlashMemory, is_memory_file_held};
use ebbtide_server::ebbtide::{self, ByteSize, message};
use ebbtide_server::{BoundServer, PoolRule, Protocol, ReloadHandle, ServerOptions, StopHandle};
use nix::unistd::User;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::error::Error;
use crate::flags::{self, DEFAULT_PORT, Settings};
use crate::listeners::Addresses;
use crate::notify::Supervisor;
use crate::process::{self, PidFile};
use crate::startup::Derived;
use crate::{daemon, listeners, startup};

/// Serves until a signal or a client that may ends it. `pools` reads the pools of the settings again.
pub fn run(settings: Settings, pools: impl Fn() -> Result<Vec<PoolRule>, Error> + Send + 'static) -> Result<(), Error> {
    for warning in &settings.warnings {
        message!("ebbtide: warning: {warning}");
    }
    if daemon::is_copy() {
        daemon::detach()?;
    }
    let auth = flags::auth(&settings)?;
    allow(&settings)?;
    let user = other_user(&settings)?;
    let options = ServerOptions { auth, ..options(&settings, user.as_ref())? };
    let opened = BoundServer::new(options.clone()).map_err(|error| not_bound(&settings, error))?;
    let options = ServerOptions { listeners: opened.listeners().to_vec(), ..options };
    let exposure = startup::exposure(&options);
    for warning in opened.warnings().iter().cloned().chain(startup::unseen_history(&settings, &options)) {
        message!("ebbtide: warning: {warning}");
    }
    become_other(&settings, user.as_ref())?;
    let cache = cache(&settings)?;
    if let Some(start) = cache.memory_start() {
        message!("ebbtide: {start}");
    }
    for notice in cache.flash_stats().iter().flat_map(|flash| &flash.notices) {
        message!("ebbtide: flash: {notice}");
    }
    if cache.is_rerouting() {
        message!(
            "ebbtide: pools: the prefixes have changed since the last run; entries whose keys belong to another pool \
             now are misses, and are deleted in the background"
        );
    }
    // Threads that wait for signals hold the server's to the end.
    let kept = cache.clone();
    let mut server = opened.into_server(cache).map_err(|error| not_bound(&settings, error))?;
    let pid_file = settings.pid_file.as_deref().and_then(|path| {
        PidFile::write(path)
            .inspect_err(|error| {
                message!("ebbtide: warning: -P {}: Could not write the pid file: {error}", path.display());
            })
            .ok()
    });
    // A starter in the background is silent, as memcached's is.
    if !daemon::is_copy() {
        announce(&settings, &options, &kept, exposure);
    }
    let supervisor = Supervisor::from_environment();
    let handles = (server.stop_handle(), server.reload_handle());
    obey_signals(handles, supervisor.clone(), close_limit(&settings)?, pools)?;
    // After the lines of the start are printed and a signal ends in a clean stop: a client relies on both.
    server.listen().map_err(|error| not_bound(&settings, error))?;
    if daemon::is_copy() {
        daemon::ready(settings.verbosity > 0)?;
    }
    supervisor.ready();
    let result = server.run();
    let is_undrained = kept.flash_stats().is_some() && settings.flash.drain_limit() == Some(Duration::ZERO);
    let items = kept.stats().items;
    let closed = kept.close();
    drop(pid_file);
    if let Ok(report) = &closed {
        report.saved.iter().for_each(|saved| message!("ebbtide: {saved}"));
        report.drained.iter().for_each(|drained| message!("ebbtide: {drained}"));
        if is_undrained && report.saved.is_none() && items > 0 {
            message!("ebbtide: {items} objects in memory are lost, but those that flash has: --flash-drain-seconds 0");
        }
    }
    result.map_err(|error| Error::System(error.to_string()))?;
    closed.map(drop).map_err(|error| Error::System(error.to_string()))
}

/// Prints the summary of the server, and with `-v` its settings.
fn announce(settings: &Settings, options: &ServerOptions, cache: &Cache, exposure: Option<String>) {
    if let Some(warning) = exposure {
        message!("ebbtide: warning: {warning}");
    }
    message!("{}", startup::summary(settings, options, cache));
    if settings.verbosity > 0 {
        let derived = Derived::new(options, cache);
        startup::settings_table(settings, derived).iter().for_each(|row| message!("  {row}"));
    }
}

/// Sets the limits.
fn allow(settings: &Settings) -> Result<(), Error> {
    if settings.core_dumps {
        process::allow_core_dumps()?;
    }
    process::allow_files(settings.connections, settings.threads)
}

/// The user that root switches to.
pub fn other_user(settings: &Settings) -> Result<Option<User>, Error> {
    let name = settings.user.as_deref().filter(|_| process::is_root());
    name.map(process::find_user).transpose()
}

/// Gives up root for this user, and locks memory.
fn become_other(settings: &Settings, user: Option<&User>) -> Result<(), Error> {
    if let Some(user) = user {
        process::become_user(user)?;
    }
    if let Some(warning) = startup::user_warning(settings) {
        message!("ebbtide: warning: {warning}");
    }
    if settings.lock_memory
        && let Err(refusal) = process::lock_memory()
    {
        message!("ebbtide: warning: {refusal}");
    }
    Ok(())
}

/// The longest time that a stop keeps the cache.
pub fn close_limit(settings: &Settings) -> Result<Duration, Error> {
    cache_builder(settings).map(|builder| builder.close_limit())
}

pub fn cache_builder(settings: &Settings) -> Result<CacheBuilder, Error> {
    let mut builder = with_flash(settings, builder(settings, settings.memory_bytes)?);
    if let Some(path) = &settings.memory_file {
        builder = builder.memory_file(path);
    }
    if let Some(limit) = settings.save_limit {
        builder = builder.save_limit(limit);
    }
    if let Some(limit) = settings.flash.drain_limit() {
        builder = builder.flash_drain(limit);
    }
    Ok(builder)
}

pub fn cache(settings: &Settings) -> Result<Cache, Error> {
    let builder = cache_builder(settings)?;
    memory_for_flash(settings, &builder)?;
    if settings.flash.paths.is_empty() {
        // A start with flash does so by itself.
        ebbtide::flash::remove_stale_wal_buffers();
    }
    if let Some(path) = settings.memory_file.as_deref().filter(|path| is_memory_file_held(path)) {
        message!("ebbtide: -e {}: waiting up to 30s for the process that holds it", path.display());
    }
    builder.build().map_err(|error| not_made(settings, error))
}

/// The cache as at a start, without its flash, whose files are not touched; and the memory of flash.
pub fn cache_without_flash(settings: &Settings) -> Result<(Cache, FlashMemory), Error> {
    let for_flash = memory_for_flash(settings, &with_flash(settings, builder(settings, settings.memory_bytes)?))?;
    let cache = builder(settings, settings.memory_bytes - for_flash.at_start.as_bytes())?.build();
    let cache = cache.map_err(|error| not_made(settings, error))?;
    Ok((cache, for_flash))
}

/// Memory of flash, if the largest value fits into the rest.
fn memory_for_flash(settings: &Settings, builder: &CacheBuilder) -> Result<FlashMemory, Error> {
    let for_flash = builder.check_flash().map_err(|error| not_made(settings, error))?;
    let (memory, value) = (settings.memory_bytes, settings.max_value_bytes);
    let rest = memory - for_flash.planned.as_bytes();
    if value <= rest / 2 {
        return Ok(for_flash);
    }
    // Of more memory flash takes no larger part.
    let enough = (2 * u128::from(value) * u128::from(memory)).div_ceil(rest.into()).div_ceil(1 << 20);
    Err(Error::Limit(format!(
        "-m {} -I {value}: with --flash, {} of the memory are for the indexes and buffers of flash, and a value may take \
         at most half of the rest: increase -m to {enough} or more, or lower -I to {}k or less",
        memory >> 20,
        for_flash.planned,
        rest >> 11
    )))
}

fn builder(settings: &Settings, memory_bytes: u64) -> Result<CacheBuilder, Error> {
    let mut builder = Cache::builder()
        .memory(ByteSize::bytes(memory_bytes))
        .max_value(ByteSize::bytes(settings.max_value_bytes))
        .evict(settings.evicts)
        .bytes_beside_pools(ServerOptions::bytes_of_pool(settings.threads));
    builder = builder.policy(settings.policy()?).objective(settings.objective);
    builder = builder.controller_policies(&settings.controller_policies);
    builder = settings.pools.iter().fold(builder, |builder, rule| builder.pool(rule.options()));
    builder = builder.key_routing(&PoolRule::routing(&settings.pools));
    if let Some(options) = settings.memory_monitor {
        builder = builder.memory_monitor(options);
    }
    if let Some(segments) = settings.merge_run {
        builder = builder.merge_run(segments);
    }
    if let Some(bytes) = settings.segment_bytes {
        builder = builder.segment_size(ByteSize::bytes(bytes));
    }
    Ok(builder)
}

fn with_flash(settings: &Settings, builder: CacheBuilder) -> CacheBuilder {
    let add = |builder: CacheBuilder, (path, bytes): &(PathBuf, u64)| builder.flash(path, ByteSize::bytes(*bytes));
    let builder = settings.flash.paths.iter().fold(builder, add);
    let builder = builder.flash_max_idle(settings.flash.max_idle_seconds());
    let builder = builder.flash_options(settings.flash.options()).flash_promotion(settings.flash.promotion());
    match settings.flash.demotion_wait() {
        Some(wait) => builder.flash_demotion_wait(wait),
        None => builder,
    }
}

pub fn not_made(settings: &Settings, error: ebbtide::Error) -> Error {
    Error::Limit(match error {
        ebbtide::Error::Configuration { option: "flash", reason, .. } => format!("flash: {reason}"),
        ebbtide::Error::Configuration { option: "pool", value, reason } => format!(
            "--pool {value}: {reason} (-m is the memory of all pools, {}; a pool needs twice -I, {})",
            ByteSize::bytes(settings.memory_bytes),
            ByteSize::bytes(2 * settings.max_value_bytes)
        ),
        other => format!("the cache cannot be made with these flags: {other}"),
    })
}

/// `user`: the user that root switches to, and owner of the sockets' files.
pub fn options(settings: &Settings, user: Option<&User>) -> Result<ServerOptions, Error> {
    settings.check_paths()?;
    let Addresses { listeners, alternatives } = listeners::resolve(settings)?;
    settings.admin.check(&listeners)?;
    let admin = settings.admin.resolve(&listeners);
    if settings.controller == Some(ControllerMode::Auto) && admin.is_none() {
        let advice = format!("give --admin 127.0.0.1:{DEFAULT_PORT}, or --controller off");
        return Err(Error::Limit(format!(
            "--controller auto: the controller runs with the admin HTTP, which is off; {advice}"
        )));
    }
    if !settings.controller_policies.is_empty() && settings.controller == Some(ControllerMode::Off) {
        return Err(Error::Limit(
            "--controller-policies: the controller that chooses among them is off; give --controller auto, or leave \
             the policies out"
                .to_owned(),
        ));
    }
    Ok(ServerOptions {
        controller: settings.controller.unwrap_or_default(),
        admin,
        history_file: settings.history_file.clone(),
        listeners,
        alternatives,
        socket_owner: user.map(|user| (user.uid.as_raw(), user.gid.as_raw())),
        threads: settings.threads,
        max_connections: settings.connections,
        requests_per_event: settings.requests_per_event,
        busy_poll: settings.busy_poll,
        backlog: settings.backlog,
        idle_timeout: settings.idle_timeout,
        verbosity: settings.verbosity.into(),
        allow_shutdown: settings.allow_shutdown,
        allow_flush: settings.allow_flush,
        allow_dump: settings.allow_dump,
        allow_watch: settings.allow_watch,
        test_clock: settings.test_clock,
        prefix_delimiter: settings.prefix_delimiter.unwrap_or(b':'),
        count_prefixes: settings.prefix_delimiter.is_some(),
        tls: settings.tls.options()?,
        pools: settings.pool_rules()?,
        flash_rating: settings.flash.rating(),
        flash_paths: settings.flash.paths.iter().map(|(path, _)| path.clone()).collect(),
        protocol: settings.protocol.unwrap_or(Protocol::Auto),
        ..ServerOptions::default()
    })
}

/// Names the flag that the address came from, with memcached's words.
pub fn not_bound(settings: &Settings, error: ebbtide_server::Error) -> Error {
    use ebbtide_server::Error as E;
    Error::System(match error {
        E::Listen { address, source } => {
            if let Some(path) = &settings.unix_socket {
                format!(
                    "-s {0}: failed to listen on UNIX socket: {0}: {source}; give a path in a folder that can be written",
                    path.display()
                )
            } else if settings.listen.is_empty() {
                let holder = match settings.port {
                    DEFAULT_PORT => " (the admin HTTP of a server on port 11211 does, unless --admin moves it)",
                    _ => "",
                };
                format!(
                    "-p {0}: failed to listen on TCP port {0}: {source}; stop what listens there{holder}, or give another \
                     port",
                    settings.port
                )
            } else {
                format!(
                    "-l {address}: failed to listen on one of interface(s) {}: {source}; give another address or port",
                    settings.listen.join(",")
                )
            }
        }
        E::ListenUdp { address, source } => {
            format!("-U: failed to listen on UDP {address}: {source}; give another port, or -U 0")
        }
        E::Certificate { .. } | E::Ciphers { .. } | E::NoCaCertificate => return Error::Limit(format!("-Z: {error}")),
        E::Admin { address, source } => {
            format!("--admin {address}: failed to listen: {source}; give another address or port, or off")
        }
        E::History { path, source } => format!("--history-file {}: {source}", path.display()),
        E::NotASocket { path } => {
            format!("-s {path}: the file is there and is no socket; give another path")
        }
        other => other.to_string(),
    })
}

/// SIGTERM, SIGINT and, as memcached's graceful stop, SIGUSR1 stop the server; on SIGHUP it reads its files again.
fn obey_signals(
    (stop, reload): (StopHandle, ReloadHandle),
    supervisor: Supervisor,
    close_limit: Duration,
    pools: impl Fn() -> Result<Vec<PoolRule>, Error> + Send + 'static,
) -> Result<(), Error> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])
        .map_err(|error| Error::System(format!("cannot wait for signals: {error}")))?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    if let Err(error) = supervisor.reloading(|| reload_all(&reload, &pools)) {
                        message!("ebbtide: SIGHUP: what is refused stays as it was: {error}");
                    }
                    continue;
                }
                if signal == SIGUSR1 {
                    message!("Gracefully stopping");
                } else {
                    message!("Signal handled: {}.", signal_hook::low_level::signal_name(signal).unwrap_or("unknown"));
                }
                supervisor.stopping(close_limit);
                stop.stop();
            }
        })
        .map(drop)
        .map_err(|error| Error::System(format!("cannot start a thread: {error}")))
}

/// Reads certificates, users and pools again.
fn reload_all(reload: &ReloadHandle, pools: impl Fn() -> Result<Vec<PoolRule>, Error>) -> Result<(), String> {
    let files = reload.reload().map_err(|error| error.to_string());
    let pools = pools().map_err(|error| error.to_string());
    let pools = pools.and_then(|rules| reload.reload_pools(&rules).map_err(|error| error.to_string()));
    let pools = pools.map(|changes| {
        if !changes.is_empty() {
            message!("ebbtide: reload: {changes}");
        }
    });
    match (files, pools) {
        (Err(files), Err(pools)) => Err(format!("{files}; {pools}")),
        (files, pools) => files.and(pools),
    }
}

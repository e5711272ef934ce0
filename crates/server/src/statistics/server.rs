//! Statistics of the server: connections and commands, since its start.

use std::time::Duration;

use super::Metric::{And, Counter, CounterBy, Gauge};
use super::{Readings, Row, row};

const COMMANDS: &str = "Keys asked for, by command and result; gat counts as touch.";

#[rustfmt::skip]
pub const SERVER: &[Row<Readings>] = &[
    row("", Gauge("ebbtide_connections", "Connections that are open."), "connections.open", |r| r.connections.into()),
    row("", Gauge("ebbtide_connections_limit", "Connections that may be open (-c)."), "connections.limit", |r| r.connections_limit.into()),
    row("", Counter("ebbtide_connections_accepted_total", "Connections taken."), "connections.accepted_total", |r| r.accepted.into()),
    row("", Counter("ebbtide_connections_rejected_total", "Connections refused above the limit."), "connections.rejected_total", |r| r.rejected.into()),
    row("", Counter("ebbtide_connections_idle_closed_total", "Connections closed because they were idle."), "", |r| r.totals.idle_kicks.into()),
    row("", Counter("ebbtide_busy_poll_seconds_total", "Time in which workers asked for news instead of sleeping (--busy-poll), of all together."), "", |r| Duration::from_nanos(r.totals.busy_poll_ns).as_secs_f64().into()),
    row("", Counter("ebbtide_memory_waits_total", "Commands put off because they would have waited for memory."), "", |r| r.totals.memory_waits.into()),
    row("", Counter("ebbtide_network_received_bytes_total", "Bytes read from clients."), "network.bytes_read_total", |r| r.totals.bytes_read.into()),
    row("", Counter("ebbtide_network_sent_bytes_total", "Bytes written to clients."), "network.bytes_written_total", |r| r.totals.bytes_written.into()),
    row("", CounterBy("ebbtide_commands_total", COMMANDS, "command=get,result=hit"), "commands.get.hits", |r| r.totals.get_hits.into()),
    row("", And("command=get,result=miss"), "commands.get.misses", |r| r.totals.get_misses.into()),
    row("", And("command=touch,result=hit"), "commands.touch.hits", |r| r.totals.touch_hits.into()),
    row("", And("command=touch,result=miss"), "commands.touch.misses", |r| r.totals.touch_misses.into()),
    row("", And("command=delete,result=hit"), "commands.delete.hits", |r| r.totals.delete_hits.into()),
    row("", And("command=delete,result=miss"), "commands.delete.misses", |r| r.totals.delete_misses.into()),
    row("", And("command=incr,result=hit"), "commands.incr.hits", |r| r.totals.incr_hits.into()),
    row("", And("command=incr,result=miss"), "commands.incr.misses", |r| r.totals.incr_misses.into()),
    row("", And("command=decr,result=hit"), "commands.decr.hits", |r| r.totals.decr_hits.into()),
    row("", And("command=decr,result=miss"), "commands.decr.misses", |r| r.totals.decr_misses.into()),
    row("", And("command=cas,result=hit"), "commands.cas.hits", |r| r.totals.cas_hits.into()),
    row("", And("command=cas,result=miss"), "commands.cas.misses", |r| r.totals.cas_misses.into()),
    row("", And("command=cas,result=mismatch"), "commands.cas.mismatches", |r| r.totals.cas_badval.into()),
    row("", CounterBy("ebbtide_stores_total", "Storage commands by result.", "result=stored"), "commands.set.stored", |r| r.cache.stored_total.into()),
    row("", And("result=not_stored"), "commands.set.not_stored", |r| r.totals.not_stored.into()),
    row("", And("result=too_large"), "commands.set.too_large", |r| r.totals.store_too_large.into()),
    row("", And("result=out_of_memory"), "commands.set.out_of_memory", |r| r.totals.store_no_memory.into()),
    row("", CounterBy("ebbtide_dead_found_total", "Lookups that missed because what they found had expired or was flushed.", "reason=expired"), "commands.get.expired", |r| r.cache.expired_found.into()),
    row("", And("reason=flushed"), "commands.get.flushed", |r| r.cache.flushed_found.into()),
    row("", Counter("ebbtide_flushes_total", "flush_all commands."), "commands.flush", |r| r.totals.flush_commands.into()),
];

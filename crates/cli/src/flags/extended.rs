//! The options of `-o`: `name` or `name=value`, separated by commas.

use super::table::Meaning::{self, Given, Ignored, Refused, Used};
use super::{Settings, values};
use crate::error::Error;
use crate::similar::hint;
use std::time::Duration;

const SLABS: &str = "segments take the place of slab classes";
const LRU: &str = "segments take the place of the LRU lists and their crawler";
const INDEX: &str = "the index sizes itself";
const BUFFERS: &str = "buffers are bounded without it";
const REGIONS: &str = "regions of flash follow its size";
const RECLAIM: &str = "flash is taken back by whole regions, and nothing is compacted";
const PROXY: &str = "this is no proxy; run memcached or twemproxy as one, in front of it";
const WATCH: &str = "a watcher has a buffer of 256 KiB";

/// Name, whether it needs a value, its effect here.
#[rustfmt::skip]
pub const OPTIONS: &[(&str, bool, Meaning)] = &[
    ("idle_timeout", true, Used),
    ("maxconns_fast", false, Given), ("modern", false, Given),
    ("no_maxconns_fast", false, Ignored("connections over -c are answered and closed at once")),
    ("no_modern", false, Ignored("there is one set of defaults")),
    ("hashpower", true, Ignored(INDEX)), ("no_hashexpand", false, Ignored(INDEX)),
    ("hash_algorithm", true, Ignored(INDEX)),
    ("tail_repair_time", true, Ignored(LRU)), ("temporary_ttl", true, Ignored(LRU)),
    ("lru_crawler", false, Ignored(LRU)), ("no_lru_crawler", false, Ignored(LRU)),
    ("lru_crawler_sleep", true, Ignored(LRU)), ("lru_crawler_tocrawl", true, Ignored(LRU)),
    ("lru_maintainer", false, Ignored(LRU)), ("no_lru_maintainer", false, Ignored(LRU)),
    ("hot_lru_pct", true, Ignored(LRU)), ("warm_lru_pct", true, Ignored(LRU)),
    ("hot_max_factor", true, Ignored(LRU)), ("warm_max_factor", true, Ignored(LRU)),
    ("slab_reassign", false, Ignored(SLABS)), ("no_slab_reassign", false, Ignored(SLABS)),
    ("slab_automove", false, Ignored(SLABS)), ("no_slab_automove", false, Ignored(SLABS)),
    ("slab_automove_ratio", true, Ignored(SLABS)), ("slab_automove_window", true, Ignored(SLABS)),
    ("slab_automove_freeratio", true, Ignored(SLABS)), ("slab_chunk_max", true, Ignored(SLABS)),
    ("slab_sizes", true, Ignored(SLABS)), ("no_chunked_items", false, Ignored(SLABS)),
    ("read_buf_mem_limit", true, Ignored(BUFFERS)), ("resp_obj_mem_limit", true, Ignored(BUFFERS)),
    ("watcher_logbuf_size", true, Ignored(WATCH)), ("worker_logbuf_size", true, Ignored(WATCH)),
    ("track_sizes", false, Ignored("stats sizes is not kept")),
    ("inline_ascii_resp", false, Ignored("how answers are written is not a choice")),
    ("no_inline_ascii_resp", false, Ignored("how answers are written is not a choice")),
    ("drop_privileges", false, Ignored("system calls are not filtered")),
    ("no_drop_privileges", false, Given),
    ("meta_response_old", false, Ignored("only HD is answered")),
    ("sock_cookie_id", true, Ignored("sockets carry no cookie")),
    ("ext_path", true, Used), ("ext_threads", true, Used), ("ext_recache_rate", true, Used),
    ("ext_page_size", true, Ignored(REGIONS)), ("ext_wbuf_size", true, Ignored(REGIONS)),
    ("ext_io_depth", true, Ignored("as much is under way as drives need")),
    ("ext_item_size", true, Used), ("ext_item_age", true, Used), ("ext_low_ttl", true, Used),
    ("ext_compact_under", true, Ignored(RECLAIM)), ("ext_drop_under", true, Ignored(RECLAIM)),
    ("ext_max_sleep", true, Ignored(RECLAIM)), ("ext_max_frag", true, Ignored(RECLAIM)),
    ("ext_drop_unread", false, Given),
    ("proxy_config", true, Refused(PROXY)), ("proxy_arg", true, Refused(PROXY)), ("proxy_uring", false, Refused(PROXY)),
    ("ssl_chain_cert", true, Used), ("ssl_key", true, Used), ("ssl_keyformat", true, Used),
    ("ssl_verify_mode", true, Used), ("ssl_ca_cert", true, Used), ("ssl_ciphers", true, Used),
    ("ssl_wbuf_size", true, Used), ("ssl_session_cache", false, Used), ("ssl_min_version", true, Used),
    ("ssl_kernel_tls", false, Ignored("the kernel is not asked to encrypt")),
];

/// Reads one list into `settings`.
pub fn parse(list: &str, settings: &mut Settings) -> Result<(), Error> {
    for option in list.split(',').map(str::trim).filter(|o| !o.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let Some((_, needs_value, meaning)) = OPTIONS.iter().find(|o| o.0 == name) else {
            return Err(Error::Illegal(format!(
                "-o {option}: Illegal suboption \"{option}\"; `ebbtide -h` tells which there are{}",
                hint(name, OPTIONS.iter().map(|(known, ..)| *known))
            )));
        };
        if *needs_value && value.is_none() {
            return Err(Error::Illegal(format!(
                "-o {name}: Missing numeric argument for {name}; write {name}=<value>"
            )));
        }
        let value = value.unwrap_or_default();
        match meaning {
            Meaning::Refused(reason) => return Err(Error::Limit(format!("-o {name}: {reason}"))),
            Meaning::Ignored(_) if name.starts_with("ext_") && !is_number(name, value) => {
                return Err(Error::Illegal(format!("-o {option}: could not parse argument to {name}; give a number")));
            }
            Meaning::Ignored(reason) => settings.warn(format!("-o {name} is ignored: {reason}")),
            Meaning::Used if name.starts_with("ssl_") => {
                settings.tls.set(name, value)?.into_iter().for_each(|warning| settings.warn(warning));
            }
            Meaning::Used if name.starts_with("ext_") => settings.flash.set_extended(name, value)?,
            Meaning::Used => {
                let seconds = values::number("-o idle_timeout", value, 0..=u32::MAX.into())?;
                settings.idle_timeout = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            Meaning::Given | Meaning::Old(_) => {}
        }
    }
    Ok(())
}

/// Whether memcached would take it, too.
fn is_number(name: &str, value: &str) -> bool {
    let value = value.trim();
    if name == "ext_max_frag" { value.parse::<f64>().is_ok() } else { value.parse::<u64>().is_ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &str) -> Result<Settings, Error> {
        let mut settings = Settings::default();
        parse(list, &mut settings).map(|()| settings)
    }

    #[test]
    fn idle_timeout_is_read_and_hashpower_warned_about() {
        let settings = read("modern,maxconns_fast,idle_timeout=30,hashpower=20").unwrap();
        assert_eq!(settings.idle_timeout, Some(Duration::from_secs(30)));
        assert_eq!(settings.warnings.len(), 1);
        assert!(settings.warnings[0].contains("hashpower"));
        assert_eq!(read("idle_timeout=0").unwrap().idle_timeout, None);
    }

    #[test]
    fn unknown_and_incomplete_options_are_refused() {
        for bad in ["frob", "modern,frob=1", "idle_timeout", "hashpower"] {
            assert!(matches!(read(bad), Err(Error::Illegal(_))), "{bad}");
        }
        assert!(matches!(read("idle_timeout=x"), Err(Error::Limit(_))));
        for (name, _, meaning) in OPTIONS.iter().filter(|option| option.0.starts_with("ext_") && option.1) {
            for bad in ["a", "", "1k", "-x"].iter().filter(|_| matches!(meaning, Ignored(_))) {
                let refusal = read(&format!("{name}={bad}")).unwrap_err().to_string();
                assert!(refusal.contains(&format!("could not parse argument to {name}")), "{refusal}");
            }
        }
        assert_eq!(read("ext_max_frag=0.5,ext_io_depth=4,ext_wbuf_size=9").unwrap().warnings.len(), 3);
        for bad in ["a", "", "1k", "-x", "4294967296"] {
            for name in ["ext_item_size", "ext_item_age", "ext_low_ttl"] {
                assert!(read(&format!("{name}={bad}")).is_err(), "{name}={bad}");
            }
        }
    }
}

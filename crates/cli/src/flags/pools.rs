//! `--pool`: a name and its options, `users:prefix=users:,prefix=sess/,min=64m,max=1g,weight=2,policy=s3fifo,flash=20%`
//! or
//! `absent:prefix=no:,kind=compact,key=16,value=0,ttl=on`.
//!
//! The first colon ends the name, so prefixes may have colons. A backslash takes the next character as it is: a comma
//! of a prefix, or a colon of a name.

use ebbtide_server::PoolRule;
use ebbtide_server::ebbtide::ByteSize;
use ebbtide_server::ebbtide::memcached::{CompactSizes, HitRatio, Policy};

use super::values;
use crate::error::Error;
use crate::similar::hint;

/// The keys of a rule.
const KEYS: [&str; 13] = [
    "prefix",
    "min",
    "max",
    "weight",
    "hit_value",
    "target_hit_ratio",
    "policy",
    "objective",
    "flash",
    "kind",
    "key",
    "value",
    "ttl",
];

const USAGE: &str = "give NAME:prefix=TEXT, with prefix=TEXT again, min=SIZE, max=SIZE, weight=NUM, hit_value=NUM, target_hit_ratio=RATIO, policy=NAME, objective=NAME, flash=PERCENT% if wanted; a compact \
     pool is NAME:prefix=TEXT,kind=compact,key=NUM,value=NUM, with ttl=on if its entries expire";
/// The largest entry of a compact pool.
const ENTRY_BYTES_MAX: usize = 128;
/// With it and one pool of weight 1 the smaller one gets a millionth.
const WEIGHT_MAX: u32 = 1_000_000;
/// A hit that is worth as many others decides alone.
const HIT_VALUE_MAX: u32 = 1_000_000;

pub fn parse(flag: &str, text: &str) -> Result<PoolRule, Error> {
    pool(text).map_err(|why| Error::Limit(format!("{flag} {}: {why}", text.escape_debug())))
}

fn pool(text: &str) -> Result<PoolRule, String> {
    let (name, options) = match find_plain(text, ':') {
        Some(colon) => (&text[..colon], &text[colon + 1..]),
        None => (text, ""),
    };
    let mut rule = PoolRule::named(unescape(name));
    if rule.name.is_empty() {
        return Err(format!("the name is missing; {USAGE}"));
    }
    let mut compact = CompactOptions::default();
    let mut given: Vec<&str> = Vec::new();
    let mut rest = Some(options).filter(|options| !options.is_empty());
    while let Some(text) = rest {
        let (option, behind) = match find_plain(text, ',') {
            Some(comma) => (&text[..comma], Some(&text[comma + 1..])),
            None => (text, None),
        };
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        if name != "prefix" && given.contains(&name) {
            return Err(format!("{name} is given twice; only prefix may be"));
        }
        given.push(name);
        set(&mut rule, &mut compact, option)?;
        rest = behind;
    }
    rule.compact = compact.sizes(&rule)?;
    Ok(rule)
}

/// The options of a compact pool.
#[derive(Default)]
struct CompactOptions {
    is_compact: bool,
    key_bytes: Option<usize>,
    value_bytes: Option<usize>,
    has_ttl: Option<bool>,
}

impl CompactOptions {
    /// The lengths of a compact pool; `None` for another one.
    fn sizes(&self, rule: &PoolRule) -> Result<Option<CompactSizes>, String> {
        let Self { is_compact, key_bytes, value_bytes, has_ttl } = *self;
        match (is_compact, key_bytes) {
            (false, None) if value_bytes.is_none() && has_ttl.is_none() => Ok(None),
            (false, _) => Err("key, value and ttl are options of compact pools; give kind=compact".to_owned()),
            (true, None) => Err(format!("the length of the keys is missing, key=NUM; {USAGE}")),
            (true, Some(_)) if rule.policy.is_some() || rule.objective.is_some() => {
                Err("a compact pool evicts what was used longest ago; leave policy and objective out".to_owned())
            }
            (true, Some(_)) if rule.target_hit_ratio.is_some() => {
                Err("the controller leaves compact pools as they are; leave target_hit_ratio out".to_owned())
            }
            (true, Some(key_bytes)) => Ok(Some(CompactSizes {
                key_bytes,
                value_bytes: value_bytes.unwrap_or(0),
                has_ttl: has_ttl.unwrap_or(false),
            })),
        }
    }
}

/// A length in bytes.
fn length(name: &str, value: &str) -> Result<usize, String> {
    value.parse().ok().filter(|length| *length <= ENTRY_BYTES_MAX).ok_or_else(|| {
        format!("{name}={value}: give a number of bytes, {ENTRY_BYTES_MAX} at most for key and value together")
    })
}

fn set(rule: &mut PoolRule, compact: &mut CompactOptions, option: &str) -> Result<(), String> {
    let (name, value) = option.split_once('=').ok_or_else(|| format!("`{option}` has no value; {USAGE}"))?;
    let size = || values::bytes(value).map_err(|why| format!("{name}={value}: {why}"));
    match name {
        "prefix" => rule.prefixes.push(unescape(value).into_bytes()),
        "min" => rule.min_bytes = size()?,
        "max" => rule.max_bytes = Some(size()?),
        "weight" => {
            let weight = value.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
            rule.weight =
                weight.ok_or_else(|| format!("weight={value}: give a whole number from 1 to {WEIGHT_MAX}"))?;
        }
        "hit_value" => {
            let worth = value.parse().ok().filter(|worth| *worth <= HIT_VALUE_MAX);
            rule.hit_value =
                worth.ok_or_else(|| format!("hit_value={value}: give a whole number from 0 to {HIT_VALUE_MAX}"))?;
        }
        "target_hit_ratio" => {
            rule.target_hit_ratio = Some(value.parse::<HitRatio>().map_err(|error| format!("{name}={error}"))?);
        }
        "policy" => {
            rule.policy = Some(value.parse::<Policy>().map_err(|error| format!("policy={value}: {error}"))?);
        }
        "objective" => {
            let parsed = values::objective(value).map_err(|error| format!("objective={value}: {error}"));
            rule.objective = Some(parsed?);
        }
        "flash" => {
            let percent = value.strip_suffix('%').unwrap_or(value).parse().ok();
            let percent = percent.filter(|percent| (1..=100).contains(percent));
            rule.flash_percent =
                Some(percent.ok_or_else(|| format!("flash={value}: give a whole number of percent from 1 to 100"))?);
        }
        "kind" => {
            compact.is_compact = match value {
                "compact" => true,
                "store" => false,
                _ => return Err(format!("kind={value}: give store or compact")),
            }
        }
        "key" => compact.key_bytes = Some(length(name, value)?),
        "value" => compact.value_bytes = Some(length(name, value)?),
        "ttl" => {
            compact.has_ttl = match value {
                "on" => Some(true),
                "off" => Some(false),
                _ => return Err(format!("ttl={value}: give on or off")),
            }
        }
        _ => return Err(format!("{name} is unknown{}; {USAGE}", hint(name, KEYS))),
    }
    Ok(())
}

/// Where this character is without a backslash.
fn find_plain(text: &str, wanted: char) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, character)| {
        let is_plain = !is_escaped;
        is_escaped = is_plain && character == '\\';
        (is_plain && character == wanted).then_some(at)
    })
}

fn unescape(text: &str) -> String {
    let mut characters = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.push(characters.next().unwrap_or('\\')),
            other => plain.push(other),
        }
    }
    plain
}

/// A text as a name or prefix that `parse` reads.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '\\' | ',' | ':') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Whether the pools fit together.
pub fn check(pools: &[PoolRule]) -> Result<(), Error> {
    PoolRule::check_all(pools).map_err(|error| Error::Limit(format!("--pool: {error}")))
}

/// Warns if the pools leave memory unused for ever. Flash may use it, and a pool without `max`.
pub fn bounds_warning(pools: &[PoolRule], memory_bytes: u64) -> Option<String> {
    let has_default = pools.iter().any(|rule| rule.name == "default");
    let bounds: Option<u64> = pools.iter().map(|rule| rule.max_bytes).try_fold(0_u64, |sum, max| sum.checked_add(max?));
    let used_bytes = bounds.filter(|bytes| has_default && *bytes < memory_bytes)?;
    let (used, all) = (ByteSize::bytes(used_bytes), ByteSize::bytes(memory_bytes));
    Some(format!(
        "the max= of all pools together are {used}, and the rest of -m {all} stays unused: increase one, or lower -m"
    ))
}

/// The rules of the server: those of the flags, each with its policy, and one of the pool `default`.
pub fn rules(pools: &[PoolRule], policy: Policy) -> Vec<PoolRule> {
    let mut rules = pools.to_vec();
    if rules.iter().all(|rule| rule.name != "default") {
        rules.push(PoolRule::named("default"));
    }
    rules.sort_by_key(|rule| rule.name != "default");
    let stores = rules.iter_mut().filter(|rule| rule.compact.is_none());
    stores.for_each(|rule| rule.policy = rule.policy.or(Some(policy)));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_server::ebbtide::Objective;

    #[test]
    fn a_name_and_its_options_are_understood() {
        let text = "users:prefix=users:,prefix=a=b\\,c,min=64m,max=1g,weight=2,hit_value=5,target_hit_ratio=95%,policy=lru,objective=bytes,flash=20%";
        let expected = PoolRule {
            name: "users".to_owned(),
            prefixes: vec![b"users:".to_vec(), b"a=b,c".to_vec()],
            min_bytes: 64 << 20,
            max_bytes: Some(1 << 30),
            weight: 2,
            hit_value: 5,
            target_hit_ratio: HitRatio::new(0.95).ok(),
            policy: Some(Policy::Lru),
            objective: Some(Objective::Bytes),
            flash_percent: Some(20),
            compact: None,
        };
        assert_eq!(parse("--pool", text).unwrap(), expected);
        assert_eq!(parse("--pool", "default").unwrap(), PoolRule::named("default"));
        let sizes = |text| parse("--pool", text).unwrap().compact.unwrap();
        let (key_bytes, value_bytes) = (16, 0);
        let expected = CompactSizes { key_bytes, value_bytes, has_ttl: false };
        assert_eq!(sizes("no:prefix=n:,kind=compact,key=16,value=0"), expected);
        assert_eq!(sizes("no:key=16,kind=compact,ttl=on"), CompactSizes { has_ttl: true, ..expected });
        assert_eq!(parse("--pool", "users:prefix=u,kind=store").unwrap().compact, None);
        let middle = parse("--pool", "a:prefix=a,policy=lru:insertion=1/2").unwrap().policy;
        assert_eq!(middle.map(Policy::name), Some("lru:insertion=1/2"));
        let odd = "a:b\\c,d";
        let rule = parse("--pool", &format!("{}:prefix={}", escape(odd), escape(odd))).unwrap();
        assert_eq!((rule.name.as_str(), &rule.prefixes[0][..]), (odd, odd.as_bytes()));
    }

    #[test]
    fn mistakes_name_the_pool_and_the_option() {
        for (text, part) in [
            (":prefix=x", "the name is missing"),
            ("a:prefix", "`prefix` has no value"),
            ("a:prefix=x,", "`` has no value"),
            ("a:prefix=x,size=1m", "size is unknown"),
            ("a:prefix=x,wieght=3", "wieght is unknown; did you mean weight?"),
            ("a:min=1x", "min=1x"),
            ("a:weight=0", "from 1 to 1000000"),
            ("a:prefix=x,weight=1,weight=2", "weight is given twice"),
            ("a:kind=compact,key=16,key=16", "key is given twice"),
            ("a:target_hit_ratio=95", "target_hit_ratio=`95`: give a share of all gets above 0 and below 1"),
            ("a:hit_value=-1", "from 0 to 1000000"),
            ("a:policy=best", "policy=best"),
            ("a:objective=cost", "objective=cost"),
            ("a:flash=101%", "percent from 1 to 100"),
            ("a:kind=tiny", "kind=tiny"),
            ("a:kind=compact", "key=NUM"),
            ("a:key=16", "give kind=compact"),
            ("a:kind=compact,key=16,policy=lru", "leave policy and objective out"),
            ("a:kind=compact,key=16,target_hit_ratio=0.9", "leave target_hit_ratio out"),
            ("a:kind=compact,key=129", "128 at most"),
            ("a:kind=compact,key=16,value=x", "value=x"),
            ("a:kind=compact,key=16,ttl=60", "ttl=60"),
        ] {
            let message = parse("--pool", text).unwrap_err().to_string();
            assert!(message.starts_with(&format!("--pool {text}: ")) && message.contains(part), "{message}");
        }
    }
}

//! The file of `--pools`: one table for each pool.
//!
//! ```toml
//! [[pool]]
//! name = "users"
//! prefix = ["users:", "sess/"]    # or one string; for traces whose keys are text
//! min = "64m"
//! max = "1g"
//! weight = 2
//! hit_value = 5
//! target_hit_ratio = 0.95
//! policy = "s3fifo"
//! ```
//! Only `name` is required. A mistake is refused with file and line.

use std::collections::HashMap;
use std::path::Path;

use ebbtide::{ByteSize, Policy};
use ebbtide_control::{HitRatio, POOLS_MAX, Share, check_name};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Error;

/// The largest weight: with it and one pool of weight 1 the smaller one gets a millionth.
const WEIGHT_MAX: u32 = 1_000_000;

/// A hit that is worth as many others decides alone.
const HIT_VALUE_MAX: u32 = 1_000_000;

/// A pool as the file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolSpec {
    /// Name, bounds, weight and value of hits; the floor is not the file's.
    pub(super) share: Share,
    pub(super) prefixes: Vec<Vec<u8>>,
    pub(super) policy: Option<Policy>,
}

type Cell<'t> = Spanned<DeValue<'t>>;

/// An error in the file, with its byte offset.
#[derive(Debug)]
struct Fault {
    offset: usize,
    reason: String,
}

/// Reads the pools of a file, at least one, in its order.
pub(super) fn read(path: &Path) -> Result<Vec<PoolSpec>, Error> {
    let refuse = |value: String, reason: String| Error::Configuration { option: "--pools", value, reason };
    let text = std::fs::read_to_string(path).map_err(|error| refuse(path.display().to_string(), error.to_string()))?;
    parse(&text).map_err(|Fault { offset, reason }| {
        let line = 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
        refuse(format!("{}:{line}", path.display()), reason)
    })
}

fn parse(text: &str) -> Result<Vec<PoolSpec>, Fault> {
    let table = DeTable::parse(text).map_err(|error| Fault {
        offset: error.span().map_or(0, |span| span.start),
        reason: error.message().replace('\n', " "),
    })?;
    let mut pools: Vec<PoolSpec> = Vec::new();
    let mut owners: HashMap<Vec<u8>, String> = HashMap::new();
    for (key, value) in table.get_ref() {
        let (DeValue::Array(tables), "pool") = (value.get_ref(), key.get_ref().as_ref()) else {
            return Err(Fault { offset: key.span().start, reason: "only tables [[pool]] are expected".into() });
        };
        for table in tables {
            let offset = table.span().start;
            let pool = pool(table)?;
            let name = &pool.share.name;
            if pools.iter().any(|other| other.share.name == *name) {
                return Err(Fault { offset, reason: format!("two pools have the name `{name}`") });
            }
            for prefix in &pool.prefixes {
                if let Some(owner) = owners.insert(prefix.clone(), name.clone()) {
                    let prefix = prefix.escape_ascii();
                    let reason = format!("the prefix `{prefix}` belongs to the pools `{owner}` and `{name}`");
                    return Err(Fault { offset, reason });
                }
            }
            pools.push(pool);
        }
    }
    match pools.len() {
        0 => Err(Fault { offset: 0, reason: "there is no table [[pool]]".into() }),
        count if count > POOLS_MAX => {
            Err(Fault { offset: 0, reason: format!("{count} pools; at most {POOLS_MAX} can share a memory") })
        }
        _ => Ok(pools),
    }
}

fn pool(table: &Cell<'_>) -> Result<PoolSpec, Fault> {
    let whole = table.span().start;
    let DeValue::Table(fields) = table.get_ref() else {
        return Err(Fault { offset: whole, reason: "a pool is a table [[pool]]".into() });
    };
    let mut pool = PoolSpec { share: Share::named(""), prefixes: Vec::new(), policy: None };
    for (key, value) in fields {
        let fault = |reason: String| Fault { offset: key.span().start, reason };
        let wanted = |what: &str| fault(format!("{}: give {what}", key.get_ref()));
        let share = &mut pool.share;
        match key.get_ref().as_ref() {
            "name" => {
                share.name = text(value).ok_or_else(|| wanted("a string"))?.to_owned();
                check_name(&share.name).map_err(|error| fault(error.to_string()))?;
            }
            "prefix" => {
                pool.prefixes = prefixes(value).ok_or_else(|| wanted("a string or a list of strings, none empty"))?;
            }
            "min" => share.min_bytes = size(value).map_err(|reason| fault(format!("min: {reason}")))?,
            "max" => share.max_bytes = size(value).map_err(|reason| fault(format!("max: {reason}")))?,
            "weight" => {
                let weight = integer(value).and_then(|weight| u32::try_from(weight).ok());
                let is_allowed = |weight: &u32| (1..=WEIGHT_MAX).contains(weight);
                share.weight = weight
                    .filter(is_allowed)
                    .ok_or_else(|| wanted(&format!("a whole number from 1 to {WEIGHT_MAX}")))?;
            }
            "hit_value" => {
                let worth = integer(value).and_then(|worth| u32::try_from(worth).ok());
                share.hit_value = worth
                    .filter(|worth| *worth <= HIT_VALUE_MAX)
                    .ok_or_else(|| wanted(&format!("a whole number from 0 to {HIT_VALUE_MAX}")))?;
            }
            "target_hit_ratio" => {
                share.target_hit_ratio = Some(hit_ratio(value).ok_or_else(|| wanted("a share of all gets, as 0.95"))?);
            }
            "policy" => {
                let policy = text(value).ok_or_else(|| wanted("a string"))?.parse();
                pool.policy = Some(policy.map_err(|error: ebbtide::UnknownPolicy| fault(error.to_string()))?);
            }
            other => {
                let known = "name, prefix, min, max, weight, hit_value, target_hit_ratio and policy";
                let reason = format!("{other}: unknown key; {known} are known");
                return Err(fault(reason));
            }
        }
    }
    if pool.share.name.is_empty() {
        return Err(Fault { offset: whole, reason: "a pool needs a name".into() });
    }
    Ok(pool)
}

fn text<'v>(value: &'v Cell<'_>) -> Option<&'v str> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.as_ref()),
        _ => None,
    }
}

fn prefixes(value: &Cell<'_>) -> Option<Vec<Vec<u8>>> {
    let prefix = |value: &Cell<'_>| text(value).filter(|text| !text.is_empty()).map(|text| text.as_bytes().to_vec());
    match value.get_ref() {
        DeValue::Array(list) => list.iter().map(prefix).collect(),
        _ => prefix(value).map(|prefix| vec![prefix]),
    }
}

/// A hit ratio as a number or as text, `0.95` or `"95%"`.
fn hit_ratio(value: &Cell<'_>) -> Option<HitRatio> {
    match value.get_ref() {
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => text(value)?.parse().ok(),
    }
}

fn integer(value: &Cell<'_>) -> Option<u64> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        _ => None,
    }
}

/// A size as a flag takes it, or a number of bytes.
fn size(value: &Cell<'_>) -> Result<u64, String> {
    if let Some(bytes) = integer(value) {
        return Ok(bytes);
    }
    let text = text(value).ok_or("give a size, as in \"64m\"")?;
    text.parse().map(ByteSize::as_bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_needs_only_a_name() {
        let text = "[[pool]]\nname = \"users\"\nprefix = [\"users:\", \"sess/\"]\nmin = \"64m\"\nmax = 1073741824\n\
            weight = 2\nhit_value = 5\ntarget_hit_ratio = 0.95\npolicy = \"lru\"\n\n[[pool]]\nname = \"default\"\nprefix = \"x\"\n";
        let pools = parse(text).unwrap_or_else(|fault| panic!("{}", fault.reason));
        assert_eq!(
            pools[0].share,
            Share {
                min_bytes: 64 << 20,
                max_bytes: 1 << 30,
                weight: 2,
                hit_value: 5,
                target_hit_ratio: HitRatio::new(0.95).ok(),
                ..Share::named("users")
            }
        );
        assert_eq!((pools[0].prefixes.len(), pools[0].policy), (2, Some(Policy::Lru)));
        assert_eq!(pools[1].share, Share::named("default"));
        assert_eq!((pools[1].prefixes.clone(), pools[1].policy), (vec![b"x".to_vec()], None));
    }

    #[test]
    fn mistakes_are_refused_with_their_line() {
        for (text, line, part) in [
            ("", 1, "there is no table"),
            ("[pool]\nname = \"a\"\n", 1, "only tables [[pool]]"),
            ("[[pools]]\nname = \"a\"\n", 1, "only tables [[pool]]"),
            ("[[pool]]\nmin = \"1m\"\n", 1, "needs a name"),
            ("[[pool]]\nname = \"a b\"\n", 2, "has a blank"),
            ("[[pool]]\nname = \"a\"\nsize = 1\n", 3, "size: unknown key"),
            ("[[pool]]\nname = \"a\"\nmin = \"much\"\n", 3, "min: \"much\" is not a size"),
            ("[[pool]]\nname = \"a\"\nmax = true\n", 3, "max: give a size"),
            ("[[pool]]\nname = \"a\"\nweight = 0\n", 3, "from 1 to 1000000"),
            ("[[pool]]\nname = \"a\"\nweight = 1.5\n", 3, "from 1 to 1000000"),
            ("[[pool]]\nname = \"a\"\ntarget_hit_ratio = 95\n", 3, "as 0.95"),
            ("[[pool]]\nname = \"a\"\nhit_value = -1\n", 3, "from 0 to 1000000"),
            ("[[pool]]\nname = \"a\"\nprefix = \"\"\n", 3, "none empty"),
            ("[[pool]]\nname = \"a\"\npolicy = \"frob\"\n", 3, "frob"),
            ("[[pool]]\nname = \"a\"\n[[pool]]\nname = \"a\"\n", 3, "two pools have the name `a`"),
            ("[[pool]]\nname = \"a\"\nprefix = \"x\"\n[[pool]]\nname = \"b\"\nprefix = \"x\"\n", 4, "`x` belongs to"),
            ("[[pool]]\nname = \n", 2, ""),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let message = read(file.path()).unwrap_err().to_string();
            let place = format!("--pools {}:{line}: ", file.path().display());
            assert!(message.starts_with(&place) && message.contains(part), "{text}: {message}");
        }
        assert!(read(Path::new("/nonexistent/pools.toml")).unwrap_err().to_string().contains("No such file"));
        let many: String = (0..=POOLS_MAX).map(|number| format!("[[pool]]\nname = \"p{number}\"\n")).collect();
        let fault = parse(&many).unwrap_err();
        assert!(fault.reason.starts_with("4097 pools"), "{}", fault.reason);
    }
}

//! `cache_config`: memory of the cache and of its pools. Its other keys configure CacheLib's cache; the report lists
//! them.

use serde_json::Value;

use super::refusal::Refusal;

/// Memory of the configured cache.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CacheConfig {
    /// `cacheSizeMB`; `None` where the configuration has none.
    pub(super) memory_bytes: Option<u64>,
    /// Shares of the pools, `poolSizes`; one pool has all.
    pub(super) pool_sizes: Vec<f64>,
}

/// Keys that are read.
const KEYS: [&str; 3] = ["cacheSizeMB", "numPools", "poolSizes"];

/// Above 1 by rounding only.
const MAX_SUM: f64 = 1.0 + 1e-6;

impl CacheConfig {
    /// Reads the section, and lists its keys that mean nothing here.
    pub(super) fn read(section: Option<&Value>) -> Result<(Self, Vec<String>), Refusal> {
        let refused = |key: &str, reason: String| Refusal::new(key, reason).within("cache_config");
        let empty = Value::Object(serde_json::Map::new());
        let keys = section.unwrap_or(&empty).as_object();
        let keys = keys.ok_or_else(|| refused("", "cache_config is no object".to_owned()))?;
        let count = |name: &str| match keys.get(name).map(|value| (value, value.as_u64())) {
            None => Ok(None),
            Some((_, Some(number))) => Ok(Some(number)),
            Some((value, None)) => Err(refused(name, format!("{name} {value}: give a whole number from 0 on"))),
        };
        let memory_bytes = count("cacheSizeMB")?.filter(|size| *size > 0).map(|size| size.saturating_mul(1 << 20));
        let pool_sizes = match keys.get("poolSizes") {
            None => vec![1.0],
            Some(sizes) => shares(sizes).ok_or_else(|| {
                let remedy = "give a share above 0 for each pool, together at most 1";
                refused("poolSizes", format!("poolSizes {sizes}: {remedy}"))
            })?,
        };
        let pools = count("numPools")?.unwrap_or(1);
        if pools != pool_sizes.len() as u64 {
            let sizes = pool_sizes.len();
            let reason = format!("numPools {pools} and {sizes} poolSizes; give a size for each pool");
            return Err(refused("numPools", reason));
        }
        let other = keys.keys().filter(|key| !KEYS.contains(&key.as_str()));
        Ok((Self { memory_bytes, pool_sizes }, other.map(|key| format!("cache_config.{key}")).collect()))
    }
}

fn shares(sizes: &Value) -> Option<Vec<f64>> {
    let sizes: Vec<f64> = sizes.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
    let is_share = sizes.iter().all(|size| *size > 0.0) && sizes.iter().sum::<f64>() <= MAX_SUM;
    (is_share && !sizes.is_empty()).then_some(sizes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn memory_and_pools_are_read_others_are_listed() {
        let section = json!({"cacheSizeMB": 512, "numPools": 2, "poolSizes": [0.25, 0.75], "htBucketPower": 20});
        let (config, ignored) = CacheConfig::read(Some(&section)).unwrap();
        assert_eq!(config, CacheConfig { memory_bytes: Some(512 << 20), pool_sizes: vec![0.25, 0.75] });
        assert_eq!(ignored, ["cache_config.htBucketPower"]);
        let none = CacheConfig { memory_bytes: None, pool_sizes: vec![1.0] };
        assert_eq!(CacheConfig::read(None), Ok((none, vec![])));
    }

    #[test]
    fn pools_without_sizes_are_refused() {
        for (section, part) in [
            (json!({"numPools": 2}), "numPools 2 and 1 poolSizes"),
            (json!({"poolSizes": [0.5, 0.5]}), "numPools 1 and 2 poolSizes"),
            (json!({"numPools": 2, "poolSizes": [0.5, 0.6]}), "poolSizes [0.5,0.6]: give a share"),
            (json!({"poolSizes": [-1.0]}), "give a share"),
            (json!({"cacheSizeMB": "much"}), "cacheSizeMB \"much\": give a whole number"),
            (json!([]), "no object"),
        ] {
            let error = CacheConfig::read(Some(&section)).unwrap_err().to_string();
            assert!(error.contains(part), "{section}: {error}");
        }
    }
}

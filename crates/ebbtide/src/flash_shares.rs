//! The shares of pools on flash.
//!
//! A share that is set is a part of the capacity. The rest is divided among the other pools in proportion to their
//! memory. Shares hold while flash is full: `ebbtide_flash` refuses objects beyond them.

use crate::error::Error;

/// Whether these shares, each with the name of its pool, can be had together.
pub(crate) fn check(shares: &[(&str, Option<u8>)]) -> Result<(), Error> {
    let refuse = |name: &str, reason: String| {
        Err(Error::Configuration { option: "pool", value: name.escape_debug().to_string(), reason })
    };
    let mut sum = 0_u32;
    for (name, share) in shares {
        let Some(percent) = *share else { continue };
        if !(1..=100).contains(&percent) {
            return refuse(name, format!("its share of flash is {percent} percent, and can be 1 to 100"));
        }
        sum += u32::from(percent);
    }
    let Some((name, _)) = shares.iter().rfind(|(_, share)| share.is_some()) else { return Ok(()) };
    if sum > 100 {
        let listed: Vec<_> = shares.iter().filter_map(|(name, share)| Some(format!("{name} {}", (*share)?))).collect();
        let reason = format!("the pools' shares of flash are {sum} percent ({}): lower some", listed.join(", "));
        return refuse(name, reason);
    }
    let without = shares.iter().find(|(_, share)| share.is_none());
    match without {
        Some((other, _)) if sum == 100 => refuse(
            name,
            format!("the pools' shares of flash are 100 percent, which leaves nothing to {other}: lower one"),
        ),
        _ => Ok(()),
    }
}

/// Bytes of each pool on flash. `pools` has the share that is set, and the memory.
pub(crate) fn divide(capacity_bytes: u64, pools: &[(Option<u8>, u64)]) -> Vec<u64> {
    if pools.len() == 1 && pools[0].0.is_none() {
        return vec![u64::MAX];
    }
    let part = |bytes: u64, of: u64, all: u64| (u128::from(bytes) * u128::from(of) / u128::from(all.max(1))) as u64;
    let set: u64 = pools.iter().filter_map(|(share, _)| *share).map(u64::from).sum();
    let left = part(capacity_bytes, 100_u64.saturating_sub(set), 100);
    let memory: u64 = pools.iter().filter(|(share, _)| share.is_none()).map(|(_, bytes)| bytes).sum();
    let bytes = |(share, bytes): &(Option<u8>, u64)| match share {
        Some(percent) => part(capacity_bytes, (*percent).into(), 100),
        None => part(left, *bytes, memory),
    };
    pools.iter().map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_beyond_shares_is_divided_like_memory() {
        assert_eq!(divide(1000, &[(None, 5)]), [u64::MAX], "a pool alone has no bound");
        assert_eq!(divide(1000, &[(Some(40), 5)]), [400]);
        assert_eq!(divide(1000, &[(Some(40), 5), (None, 10), (None, 50)]), [400, 100, 500]);
        assert_eq!(divide(1000, &[(None, 1), (None, 3)]), [250, 750]);
    }

    #[test]
    fn excessive_shares_are_refused_with_all_numbers() {
        let refusal = |shares: &[(&str, Option<u8>)]| check(shares).unwrap_err().to_string();
        assert!(refusal(&[("a", Some(60)), ("b", None), ("c", Some(41))]).contains("are 101 percent (a 60, c 41)"));
        assert!(refusal(&[("a", Some(0))]).contains("is 0 percent, and can be 1 to 100"));
        assert!(refusal(&[("a", Some(100)), ("b", None)]).contains("leaves nothing to b"));
        assert_eq!(check(&[("a", Some(50)), ("b", Some(50))]), Ok(()));
        assert_eq!(check(&[("a", None)]), Ok(()));
    }
}

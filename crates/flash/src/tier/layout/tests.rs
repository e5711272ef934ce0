use super::*;
use crate::admission::{AdmissionOptions, AdmissionPolicy, WriteBudget};
use crate::device::STRIPE;
use crate::large::{Reclaim, Reinsertion};

const MIB: u64 = 1 << 20;

#[test]
fn boundary_and_region_size_follow_the_capacity() {
    for (capacity, share, region, boundary) in [
        (1 << 40, 0.5, 16 << 20, 1 << 39),
        (1 << 40, 0.01, 16 << 20, 656 * STRIPE),
        (96 * MIB, 0.1, 1 << 20, 10 * MIB),
        (31 * MIB, 0.5, 128 << 10, 31 * MIB / 2),
        (3 * MIB, 0.5, 16 << 10, 3 * MIB / 2),
    ] {
        let options = TierOptions { small_share: Some(share), ..TierOptions::default() };
        let layout = TierLayout::new(capacity, &options).unwrap();
        assert_eq!((layout.large_options.region_bytes, layout.boundary), (region, boundary));
        assert_eq!(layout.large_options.first_region as u64, boundary / region as u64);
        let end = capacity - (capacity / 128).max(64 << 10) - pool_table::BYTES;
        assert_eq!((layout.small_area(), layout.large_area()), (4096..boundary, 0..end));
        assert_eq!(layout.tail, end..capacity);
        let volatile = TierLayout::new(capacity, &TierOptions { warm_restart: false, ..options }).unwrap();
        assert_eq!((volatile.large_area(), volatile.tail), (0..capacity, capacity..capacity));
    }
    let small_regions = TierOptions { region_bytes: 1 << 20, ..TierOptions::default() };
    assert_eq!(TierLayout::new(1 << 40, &small_regions).unwrap().large_options.region_bytes, 1 << 20);
}

#[test]
fn both_stores_are_told_what_was_chosen() {
    let chosen = TierOptions {
        reclaim: Reclaim::Lru,
        reinsertion: Reinsertion::Forced(2),
        discard: true,
        warm_restart: false,
        seal_seconds: 7,
        log_percent: 20,
        rewrite_threshold: 3,
        small_share: Some(0.5),
        ..TierOptions::default()
    };
    let TierLayout { large_options: large, small_options, .. } = TierLayout::new(64 * MIB, &chosen).unwrap();
    let small = small_options.unwrap();
    assert_eq!((large.reclaim, large.reinsertion), (Reclaim::Lru, Reinsertion::Forced(2)));
    assert_eq!((large.discard, large.seal_seconds, large.max_buffer_wait), (true, 7, Duration::ZERO));
    assert!(!large.recovers && TierLayout::new(64 * MIB, &TierOptions::default()).unwrap().large_options.recovers);
    assert_eq!((small.log_percent, small.rewrite_threshold), (20, 3));
}

#[test]
fn zeros_ahead_needs_large_area_and_no_budget() {
    let budget = AdmissionOptions { budget: Some(WriteBudget::BytesPerSecond(1 << 20)), ..AdmissionOptions::default() };
    for (capacity, admission, zeros_ahead) in [
        (4 << 30, AdmissionOptions::default(), true),
        (1 << 30, AdmissionOptions::default(), false),
        (4 << 30, budget, false),
    ] {
        let options = TierOptions { small_share: Some(0.5), admission, ..TierOptions::default() };
        let layout = TierLayout::new(capacity, &options).unwrap();
        assert_eq!(layout.small_options.unwrap().zeros_ahead, zeros_ahead, "{capacity} bytes, {admission:?}");
    }
}

#[test]
fn options_out_of_range_are_refused_with_limits() {
    let base = TierOptions::default();
    for (options, capacity, part) in [
        (TierOptions { small_share: Some(0.0), ..base.clone() }, 64 * MIB, "0.01 to 0.99"),
        (TierOptions { small_share: Some(f64::NAN), ..base.clone() }, 64 * MIB, "0.01 to 0.99"),
        (TierOptions { region_bytes: 3 << 20, ..base.clone() }, 64 * MIB, "a power of two"),
        (TierOptions { region_bytes: 32 << 20, ..base.clone() }, 64 * MIB, "16384 to 16777216"),
        (TierOptions { small_share: Some(0.99), ..base.clone() }, 4 * MIB, "lower the share"),
        (TierOptions { small_share: Some(0.5), ..base }, MIB / 4, "increase its size to 1048576 bytes"),
    ] {
        let open_error = TierLayout::new(capacity, &options).unwrap_err().to_string();
        assert!(open_error.contains(part), "{open_error}");
    }
}

#[test]
fn the_small_area_is_bounded_by_future_memory() {
    let with =
        |memory_bytes, memory_growth_bytes| TierOptions { memory_bytes, memory_growth_bytes, ..TierOptions::default() };
    let memory = MIB + MIB / 64;
    let unsplit = TierLayout::new(80 * MIB, &with(memory, 0)).unwrap();
    let boundary = |later| {
        let split_at_share = unsplit.split_up_to(79 * MIB, &with(memory, later)).unwrap();
        assert!(split_at_share.small_options.unwrap().index_bytes > 400_000);
        split_at_share.boundary
    };
    assert!(boundary(0) < 72 * MIB, "{}", boundary(0));
    assert!(boundary(MIB / 64) > boundary(0) && boundary(MIB / 64) < 79 * MIB);
    assert_eq!(boundary(MIB / 4), 79 * MIB);
    let half = unsplit.split_up_to(79 * MIB, &with(memory - MIB / 4, u64::MAX / 2)).unwrap();
    assert!(half.boundary < 79 * MIB, "half of the indexes would have no memory now");
    let split_at_share = unsplit.split_up_to(77 * MIB, &with(memory, MIB / 4)).unwrap();
    let again =
        |memory, later| TierLayout::as_before(&Partition::of(7, &split_at_share), &with(memory, later)).is_some();
    let min = |later: u64| (1..=16).find(|&part| again(memory / 16 * part, later)).unwrap();
    assert!(min(MIB / 4) < min(0) && min(MIB) > 1, "what is fixed must be there");
}

#[test]
fn more_memory_adds_no_groups_beyond_regions() {
    let little = TierOptions { memory_bytes: 500 << 10, ..TierOptions::default() };
    let unsplit = TierLayout::new(8 * MIB, &little).unwrap();
    let region_bytes = unsplit.large_options.region_bytes;
    let min = (unsplit.large_options.min_regions() * region_bytes) as u64;
    let split_at_share = unsplit.split_up_to(unsplit.capacity - min, &little).unwrap();
    let again = TierLayout::as_before(&Partition::of(7, &split_at_share), &TierOptions::default()).unwrap();
    let regions = (again.capacity - again.boundary) as usize / region_bytes;
    assert!(again.large_options.min_regions() <= regions, "{regions} {:?}", again.large_options);
}

#[test]
fn memory_is_divided_or_refused_with_the_minimum() {
    let policy = AdmissionPolicy::RejectFirst { times: 1, keys: 1000 };
    let admission = AdmissionOptions { policy, ..AdmissionOptions::default() };
    let with = |memory_bytes| TierOptions { memory_bytes, admission, small_share: Some(0.5), ..TierOptions::default() };
    let layout = |capacity, memory| TierLayout::new(capacity, &with(memory));
    let (capacity, memory) = (64 << 30, 512 * MIB);
    let options = layout(capacity, memory).unwrap();
    let (large, small) = (&options.large_options, options.small_options.as_ref().unwrap());
    let fixed = LargeLog::fixed_bytes(&options.large_area(), large)
        + small.fixed_bytes(&options.small_area()).unwrap().1
        + admission.memory_bytes();
    let total = (fixed - LargeLog::min_index_bytes() + large.index_bytes + small.index_bytes) as u64;
    assert!(total <= memory && total > memory - 10, "{total} of {memory}");
    assert_eq!(large.region_bytes, 4 << 20);
    let less = layout(16 << 30, 128 * MIB).unwrap().large_options;
    assert_eq!((less.region_bytes, less.buffers), (1 << 20, 10), "ten buffers take 8 % at most");
    let little = layout(2 << 30, 32 * MIB).unwrap().large_options;
    assert_eq!((little.region_bytes, little.buffers), (512 << 10, 11), "or 8 MiB");

    let open_error = layout(capacity, 100 * MIB).unwrap_err().to_string();
    let number = |before: &str| -> u64 {
        let rest = open_error.split(before).nth(1).unwrap_or_else(|| panic!("{open_error}"));
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let (needed, fits) = (number("increase that to ") * MIB, number("size of flash to ") * MIB);
    assert!(layout(capacity, needed).is_ok() && needed < 300 * MIB, "{open_error}");
    assert!(layout(fits, 100 * MIB).is_ok() && fits > capacity / 8, "{open_error}");
    let open_error = layout(capacity, 1000).unwrap_err().to_string();
    assert!(open_error.ends_with(" MiB") && !open_error.contains("lower"), "{open_error}");
}

#[test]
fn equal_options_divide_as_before() {
    let mut lost = Vec::new();
    let mut tried = 0;
    for capacity_mib in [16, 64, 100, 256, 1000, 4096, 20_000, 100_000, 1 << 20] {
        for step in 0..200 {
            let capacity = capacity_mib * MIB;
            let memory_bytes = (capacity as f64 / 600.0 * 1.025_f64.powi(step)) as u64;
            let options = TierOptions { memory_bytes, ..TierOptions::default() };
            let Ok(unsplit) = TierLayout::new(capacity, &options) else { continue };
            for (share, memory_growth_bytes) in [(0.05, 0), (0.5, 0), (0.95, 0), (0.95, memory_bytes)] {
                let boundary = (unsplit.capacity as f64 * share) as u64;
                let options = TierOptions { memory_growth_bytes, ..options.clone() };
                let Some(split_at_share) = unsplit.split_up_to(boundary, &options) else { continue };
                tried += 1;
                if TierLayout::as_before(&Partition::of(7, &split_at_share), &options).is_none() {
                    lost.push((capacity_mib, memory_bytes, share, split_at_share.large_options.region_bytes));
                }
            }
            if TierLayout::as_before(&Partition::of(7, &unsplit), &options).is_none() {
                lost.push((capacity_mib, memory_bytes, 0.0, unsplit.large_options.region_bytes));
            }
        }
    }
    assert!(tried > 4000, "{tried}");
    assert!(lost.is_empty(), "{} of {tried}: {:?}", lost.len(), &lost[..lost.len().min(40)]);
}

#[test]
fn who_restarts_with_more_memory_divides_as_before() {
    let (mut lost, mut tried) = (Vec::new(), 0);
    for capacity_mib in [16, 64, 256, 1000, 4096, 100_000] {
        for step in 0..120 {
            let capacity = capacity_mib * MIB;
            let with = |memory_bytes: f64, small_share| TierOptions {
                memory_bytes: memory_bytes as u64,
                small_share,
                ..TierOptions::default()
            };
            let memory = capacity as f64 / 600.0 * 1.04_f64.powi(step);
            for small_share in [None, Some(0.5)] {
                let Ok(unsplit) = TierLayout::new(capacity, &with(memory, small_share)) else { continue };
                for share in [0.0, 0.05, 0.5, 0.95, 0.99] {
                    // As a log is narrowed: the groups have their regions.
                    let large = &unsplit.large_options;
                    let min = (large.min_regions() * large.region_bytes) as u64;
                    let boundary = ((unsplit.capacity as f64 * share) as u64).min(unsplit.capacity - min);
                    let split_at_share = match small_share {
                        None if share > 0.0 => unsplit.split_up_to(boundary, &with(memory, small_share)),
                        _ => Some(unsplit.clone()),
                    };
                    let Some(split_at_share) = split_at_share else { continue };
                    for more in [1.05, 1.3, 2.0, 4.0, 16.0] {
                        tried += 1;
                        let options = with(memory * more, small_share);
                        if TierLayout::as_before(&Partition::of(7, &split_at_share), &options).is_none() {
                            lost.push((capacity_mib, memory as u64, more, small_share, share));
                        }
                    }
                }
            }
        }
    }
    assert!(tried > 20_000, "{tried}");
    assert!(lost.is_empty(), "{} of {tried}: {:?}", lost.len(), &lost[..lost.len().min(30)]);
}

#[test]
fn many_terabytes_are_divided_to_their_last_page() {
    for (terabytes, share) in [1, 4, 15, 16].into_iter().flat_map(|size| [0.01, 0.5, 0.99].map(|share| (size, share))) {
        let options = TierOptions { small_share: Some(share), ..TierOptions::default() };
        let layout = TierLayout::new(terabytes << 40_u64, &options).unwrap();
        let (small, large) = (layout.small_area(), layout.large_area());
        assert_eq!((small.end, large.end, layout.tail.end), (layout.boundary, layout.tail.start, terabytes << 40));
        let region_bytes = layout.large_options.region_bytes as u64;
        assert_eq!(u64::from(layout.large_options.first_region) * region_bytes, layout.boundary);
        assert!(u32::try_from(large.end / region_bytes).is_ok(), "regions have numbers");
        let area = layout.small_options.as_ref().unwrap().divide(&small).unwrap();
        let pages = small.end / BLOCK as u64 - 1;
        let log_pages = u64::from(area.log.segments) * u64::from(area.log.pages_per_segment);
        assert!(u64::from(area.first_set) >= log_pages && u64::from(area.first_set) < pages, "{terabytes} {share}");
    }
    let beyond = TierOptions { small_share: Some(0.99), ..TierOptions::default() };
    let refused = TierLayout::new(17 << 40_u64, &beyond).map(drop).unwrap_err().to_string();
    assert!(refused.contains("below 16 TiB"), "{refused}");
}

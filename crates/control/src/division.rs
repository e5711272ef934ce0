//! Division: which of several tenants gets how much of one memory, so that the most is earned.
//!
//! ```text
//! value      _____ a      greedy: the next step goes where it earns most
//!   |     __/             hull of a:  3 3 2 1 1 0
//!   |   _/     ..... b    hull of b:  2 1 0 0 0 0
//!   |  /   ..'            total 5:    a a b/a a ...
//!   +---------------> memory
//! ```
//! Each tenant has a miss-ratio curve. Its concave hull gives the value of memory, and on concave curves a greedy
//! division by steps is optimal (Dynacache, HotCloud'15, section 3.1, solves the same problem by a linear program).
//! Where a curve has a cliff the hull promises more than the curve holds: a tenant that would end inside a cliff is
//! tried at the foot of it, the memory goes to the others, and the better of the two divisions by the real curves
//! counts.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::Curve;

/// A claimant of memory.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Miss ratio by memory.
    pub curve: Curve,
    /// Gets in a unit of time.
    pub gets: f64,
    /// Value of a hit, relative to the hits of others. With 1 the division maximizes hits, with the mean size of an
    /// object it maximizes bytes, and with the cost of a miss it saves money.
    pub value: f64,
    pub min_bytes: u64,
    pub max_bytes: u64,
}

impl Tenant {
    /// Value that the tenant earns in a unit of time.
    fn earns(&self, memory_bytes: u64) -> f64 {
        let miss_ratio = self.curve.miss_ratio_at(memory_bytes).unwrap_or(1.0);
        self.gets * self.value * (1.0 - miss_ratio)
    }
}

/// Memory for each tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// In the order of the tenants; in sum at most the total.
    pub bytes: Vec<u64>,
    /// Value in a unit of time, by the curves.
    pub earned: f64,
    /// Tenants that ended inside a cliff: more memory earns them little until the cliff is passed.
    pub in_cliff: Vec<usize>,
}

/// Why a memory cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DivisionError {
    #[error("memory cannot be divided among no tenants")]
    NoTenants,
    #[error("a step of 0 bytes divides nothing")]
    NoStep,
    #[error("tenant {tenant}: the minimum of {min_bytes} bytes is above the maximum of {max_bytes}")]
    Bounds { tenant: usize, min_bytes: u64, max_bytes: u64 },
    #[error("tenant {tenant}: gets and value must be finite numbers from 0 up")]
    Value { tenant: usize },
    #[error("the minimums need {needed_bytes} bytes and there are {total_bytes}: lower a minimum, or give more memory")]
    TooLittle { needed_bytes: u128, total_bytes: u64 },
}

/// Divides `total_bytes` in steps of `step_bytes` such that the value of all hits is maximal.
///
/// Memory from which no tenant gains is divided in proportion to the gets, up to the maximums: a curve ends where its
/// profile ends, and the load may change.
///
/// # Errors
/// The numbers that contradict each other.
pub fn divide(tenants: &[Tenant], total_bytes: u64, step_bytes: u64) -> Result<Division, DivisionError> {
    check(tenants, total_bytes, step_bytes)?;
    let mut caps: Vec<u64> = tenants.iter().map(|tenant| tenant.max_bytes).collect();
    let mut best = greedy(tenants, &caps, total_bytes, step_bytes);
    // Each round caps one tenant at the foot of one cliff, and none twice at the same: it ends with the cliffs.
    let cliffs: usize = tenants.iter().map(|tenant| tenant.curve.cliffs().len()).sum();
    for _ in 0..cliffs {
        let Some((tenant, foot)) =
            inside_cliff(tenants, &best.bytes).into_iter().find(|(tenant, foot)| *foot < caps[*tenant])
        else {
            break;
        };
        let cap = std::mem::replace(&mut caps[tenant], foot);
        let other = greedy(tenants, &caps, total_bytes, step_bytes);
        if other.earned > best.earned {
            best = other;
        } else {
            caps[tenant] = cap;
            break;
        }
    }
    // A cap at a cliff bounds memory that gains hits, not the remainder.
    spread(tenants, &mut best.bytes, total_bytes);
    best.earned = earned(tenants, &best.bytes);
    best.in_cliff = inside_cliff(tenants, &best.bytes).into_iter().map(|(tenant, _)| tenant).collect();
    Ok(best)
}

fn check(tenants: &[Tenant], total_bytes: u64, step_bytes: u64) -> Result<(), DivisionError> {
    if tenants.is_empty() {
        return Err(DivisionError::NoTenants);
    }
    if step_bytes == 0 {
        return Err(DivisionError::NoStep);
    }
    for (tenant, &Tenant { min_bytes, max_bytes, gets, value, .. }) in tenants.iter().enumerate() {
        if min_bytes > max_bytes {
            return Err(DivisionError::Bounds { tenant, min_bytes, max_bytes });
        }
        if !(gets.is_finite() && value.is_finite() && gets >= 0.0 && value >= 0.0) {
            return Err(DivisionError::Value { tenant });
        }
    }
    let needed_bytes: u128 = tenants.iter().map(|tenant| u128::from(tenant.min_bytes)).sum();
    if needed_bytes > total_bytes.into() {
        return Err(DivisionError::TooLittle { needed_bytes, total_bytes });
    }
    Ok(())
}

/// The next step of one tenant.
struct Step {
    gain_per_byte: f64,
    bytes: u64,
    tenant: usize,
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Step {}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        // Equal gains go to the first tenant, so that a division does not depend on the heap.
        self.gain_per_byte.total_cmp(&other.gain_per_byte).then(other.tenant.cmp(&self.tenant))
    }
}

/// Gives each step where it earns most, by the hulls, up to these caps.
fn greedy(tenants: &[Tenant], caps: &[u64], total_bytes: u64, step_bytes: u64) -> Division {
    let hulls: Vec<Curve> = tenants.iter().map(|tenant| Curve::new(tenant.curve.hull())).collect();
    let mut bytes: Vec<u64> = tenants.iter().map(|tenant| tenant.min_bytes).collect();
    let mut left = total_bytes - bytes.iter().sum::<u64>();
    let next = |tenant: usize, has: u64, left: u64| {
        let step = step_bytes.min(caps[tenant].saturating_sub(has)).min(left);
        let ratio = |at: u64| hulls[tenant].miss_ratio_at(at).unwrap_or(1.0);
        let gain = tenants[tenant].gets * tenants[tenant].value * (ratio(has) - ratio(has + step));
        (step > 0 && gain > 0.0).then(|| Step { gain_per_byte: gain / step as f64, bytes: step, tenant })
    };
    let mut heap: BinaryHeap<Step> =
        (0..tenants.len()).filter_map(|tenant| next(tenant, bytes[tenant], left)).collect();
    while let Some(step) = heap.pop() {
        // The last step may be smaller, because others have taken memory since it was queued.
        let taken = step.bytes.min(left);
        bytes[step.tenant] += taken;
        left -= taken;
        heap.extend(next(step.tenant, bytes[step.tenant], left));
    }
    let earned = earned(tenants, &bytes);
    Division { bytes, earned, in_cliff: Vec::new() }
}

fn earned(tenants: &[Tenant], bytes: &[u64]) -> f64 {
    tenants.iter().zip(bytes).map(|(tenant, bytes)| tenant.earns(*bytes)).sum()
}

/// Tenants inside a cliff of their curve, with the foot of it.
fn inside_cliff(tenants: &[Tenant], bytes: &[u64]) -> Vec<(usize, u64)> {
    let foot = |(tenant, bytes): (&Tenant, &u64)| {
        let cliffs = tenant.curve.cliffs();
        let cliff = cliffs.iter().find(|cliff| cliff.from_bytes < *bytes && *bytes < cliff.to_bytes)?;
        Some(cliff.from_bytes.max(tenant.min_bytes))
    };
    let feet = tenants.iter().zip(bytes).map(foot).enumerate();
    feet.filter_map(|(tenant, foot)| Some((tenant, foot?))).collect()
}

/// Divides the remainder in proportion to the gets.
fn spread(tenants: &[Tenant], bytes: &mut [u64], total_bytes: u64) {
    // Each round ends with nothing left, or with one more tenant at its maximum.
    for _ in 0..=tenants.len() {
        let left = total_bytes - bytes.iter().sum::<u64>();
        let open: Vec<usize> = (0..tenants.len()).filter(|&tenant| bytes[tenant] < tenants[tenant].max_bytes).collect();
        let gets: f64 = open.iter().map(|&tenant| tenants[tenant].gets).sum();
        if left == 0 || open.is_empty() {
            return;
        }
        let mut given = 0;
        for (at, &tenant) in open.iter().enumerate() {
            let part = if gets > 0.0 { tenants[tenant].gets / gets } else { 1.0 / open.len() as f64 };
            let share =
                if at + 1 == open.len() { left - given } else { ((left as f64 * part) as u64).min(left - given) };
            let fits = share.min(tenants[tenant].max_bytes - bytes[tenant]);
            bytes[tenant] += fits;
            given += share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Point;
    use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, default_solver, variable};

    const MIB: u64 = 1 << 20;

    fn curve(points: impl IntoIterator<Item = (u64, f64)>) -> Curve {
        Curve::new(points.into_iter().map(|(mib, misses)| Point::exact(mib * MIB, misses, misses)).collect())
    }

    fn tenant(points: impl IntoIterator<Item = (u64, f64)>, gets: f64) -> Tenant {
        Tenant { curve: curve(points), gets, value: 1.0, min_bytes: 0, max_bytes: u64::MAX }
    }

    /// Random numbers from 0 up to 1.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    fn random_tenants(random: &mut Random) -> Vec<Tenant> {
        let count = 2 + (random.next() * 8.0) as usize;
        let one = |random: &mut Random| {
            let (mut ratio, mut points) = (1.0, vec![(0, 1.0)]);
            for step in 1..=10 {
                ratio *= random.next();
                points.push((step * 8, ratio));
            }
            let min_bytes = if random.next() < 0.3 { (random.next() * 8.0) as u64 * MIB } else { 0 };
            let max_bytes = if random.next() < 0.3 { min_bytes + 8 * MIB } else { u64::MAX };
            Tenant { min_bytes, max_bytes, value: 0.5 + random.next(), ..tenant(points, 1000.0 * random.next()) }
        };
        (0..count).map(|_| one(random)).collect()
    }

    /// The optimum on the hulls, by a linear program: a variable for each side of each hull.
    fn optimum(tenants: &[Tenant], total_bytes: u64) -> f64 {
        let mut variables = ProblemVariables::new();
        let (mut objective, mut all, mut bounds) = (Expression::from(0.0), Expression::from(0.0), Vec::new());
        let mut fixed = 0.0;
        for tenant in tenants {
            let mut own = Expression::from(0.0);
            let hull = tenant.curve.hull();
            fixed += tenant.gets * tenant.value * (1.0 - hull[0].miss_ratio);
            for side in hull.windows(2) {
                let width = (side[1].memory_bytes - side[0].memory_bytes) as f64 / MIB as f64;
                let slope = tenant.gets * tenant.value * (side[0].miss_ratio - side[1].miss_ratio) / width;
                let part = variables.add(variable().min(0.0).max(width));
                objective += slope * part;
                own += part;
            }
            let slack = variables.add(variable().min(0.0));
            own += slack;
            bounds.push((own.clone(), tenant.min_bytes as f64 / MIB as f64, (tenant.max_bytes / MIB) as f64));
            all += own;
        }
        let mut model = variables.maximise(objective.clone()).using(default_solver);
        model = model.with(constraint!(all <= (total_bytes / MIB) as f64));
        for (own, min, max) in bounds {
            model = model.with(constraint!(own.clone() >= min)).with(constraint!(own <= max));
        }
        fixed + model.solve().unwrap().eval(&objective)
    }

    #[test]
    fn a_division_earns_what_a_linear_program_earns() {
        for seed in 0..300 {
            let mut random = Random(seed);
            let tenants = random_tenants(&mut random);
            let min_bytes: u64 = tenants.iter().map(|tenant| tenant.min_bytes).sum();
            let total = min_bytes + (random.next() * 200.0) as u64 * MIB;
            let division = divide(&tenants, total, MIB).unwrap();
            let sum: u64 = division.bytes.iter().sum();
            let max_total: u128 = tenants.iter().map(|tenant| u128::from(tenant.max_bytes)).sum();
            assert_eq!(u128::from(sum), max_total.min(total.into()), "seed {seed}");
            for (tenant, bytes) in tenants.iter().zip(&division.bytes) {
                assert!((tenant.min_bytes..=tenant.max_bytes).contains(bytes), "seed {seed}");
            }
            let on_hulls: Vec<Tenant> = tenants
                .iter()
                .map(|tenant| Tenant { curve: Curve::new(tenant.curve.hull()), ..tenant.clone() })
                .collect();
            let reached = divide(&on_hulls, total, MIB).unwrap().earned;
            let best = optimum(&tenants, total);
            assert!((reached - best).abs() <= 1e-6 * best.max(1.0), "seed {seed}: {reached} of {best}");
            assert!(division.earned <= best + 1e-6 * best, "seed {seed}: the hull is an upper bound");
        }
    }

    #[test]
    fn a_tenant_stays_below_an_unaffordable_cliff() {
        let cliff = tenant([(0, 1.0), (1, 0.9), (99, 0.9), (100, 0.0)], 1000.0);
        let gentle = tenant([(0, 1.0), (20, 0.9), (40, 0.8), (60, 0.7)], 1000.0);
        let division = divide(&[cliff.clone(), gentle.clone()], 60 * MIB, MIB).unwrap();
        assert_eq!(division.bytes, [MIB, 59 * MIB]);
        assert_eq!(division.in_cliff, Vec::<usize>::new());
        // With enough for all of it the cliff is climbed.
        assert_eq!(divide(&[cliff, gentle], 160 * MIB, MIB).unwrap().bytes, [100 * MIB, 60 * MIB]);
    }

    #[test]
    fn value_decides_between_equal_curves() {
        let points = [(0, 1.0), (50, 0.2)];
        let cheap = tenant(points, 1000.0);
        let dear = Tenant { value: 5.0, ..cheap.clone() };
        assert_eq!(divide(&[cheap, dear], 50 * MIB, MIB).unwrap().bytes, [0, 50 * MIB]);
    }

    #[test]
    fn memory_that_earns_nothing_goes_by_gets() {
        let tenants = [tenant([(0, 1.0), (10, 0.1)], 100.0), tenant([(0, 1.0), (10, 0.1)], 300.0)];
        assert_eq!(divide(&tenants, 100 * MIB, MIB).unwrap().bytes, [30 * MIB, 70 * MIB]);
    }

    #[test]
    fn contradictions_are_refused_with_their_numbers() {
        let one = tenant([(0, 1.0), (10, 0.1)], 1.0);
        let wrong = Tenant { min_bytes: 2, max_bytes: 1, ..one.clone() };
        assert_eq!(divide(&[], 1, 1), Err(DivisionError::NoTenants));
        assert_eq!(divide(std::slice::from_ref(&one), 1, 0), Err(DivisionError::NoStep));
        assert_eq!(divide(&[wrong], 9, 1), Err(DivisionError::Bounds { tenant: 0, min_bytes: 2, max_bytes: 1 }));
        assert_eq!(divide(&[Tenant { gets: f64::NAN, ..one.clone() }], 9, 1), Err(DivisionError::Value { tenant: 0 }));
        let greedy = Tenant { min_bytes: 6, ..one };
        let expected = DivisionError::TooLittle { needed_bytes: 12, total_bytes: 9 };
        assert_eq!(divide(&[greedy.clone(), greedy], 9, 1), Err(expected));
    }
}

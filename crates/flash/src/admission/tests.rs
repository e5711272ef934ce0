use super::gate::*;
use super::rate_controller::WriteBudget;
use crate::FlashHash;
use crate::hash::mix;

fn admission(options: AdmissionOptions) -> Admission {
    Admission::new(options, 1 << 30, 1).unwrap()
}

fn with(policy: AdmissionPolicy) -> Admission {
    admission(AdmissionOptions { policy, ..AdmissionOptions::default() })
}

fn offer(i: u64) -> Offer {
    Offer { key: FlashHash(mix(i + 1)), bytes: 100, value_bytes: 90, expiry: 0 }
}

fn admitted(admission: &Admission, keys: std::ops::Range<u64>, now: u32) -> usize {
    keys.filter(|&i| admission.offer(&offer(i), now) == Decision::Admit).count()
}

#[test]
fn limits_hold_from_when_they_are_set() {
    let admission = admission(AdmissionOptions { min_value_bytes: 90, ..AdmissionOptions::default() });
    let decide = |value_bytes, expiry| admission.offer(&Offer { value_bytes, expiry, ..offer(1) }, 1000);
    assert_eq!(decide(89, 0), Decision::Refuse(Reason::TooSmall));
    assert_eq!((decide(90, 0), decide(90, 1010)), (Decision::Admit, Decision::Admit));
    admission.set_limits(Limits { min_ttl_seconds: 20, min_value_bytes: 91 });
    assert_eq!((decide(90, 0), decide(91, 1020)), (Decision::Refuse(Reason::TooSmall), Decision::Admit));
    assert_eq!(decide(91, 1019), Decision::Refuse(Reason::ExpiresSoon));
    assert_eq!(admission.limits(), Limits { min_ttl_seconds: 20, min_value_bytes: 91 });
    assert_eq!((admission.stats().refused_too_small, admission.stats().refused_expires_soon), (2, 1));
}

#[test]
fn what_expires_soon_is_refused() {
    let admission = admission(AdmissionOptions { min_ttl_seconds: 30, ..AdmissionOptions::default() });
    let decide = |expiry| admission.offer(&Offer { expiry, ..offer(1) }, 1000);
    assert_eq!(decide(1029), Decision::Refuse(Reason::ExpiresSoon));
    assert_eq!(decide(999), Decision::Refuse(Reason::ExpiresSoon));
    assert_eq!(decide(1030), Decision::Admit);
    assert_eq!(decide(0), Decision::Admit);
    let stats = admission.stats();
    assert_eq!(stats.refused_expires_soon, 2);
    assert_eq!((stats.admitted, stats.admitted_bytes, stats.share), (2, 200, 1.0));
}

#[test]
fn probability_is_kept() {
    for (probability, expected) in [(0.0, 0..1), (0.25, 2300..2700), (1.0, 10_000..10_001)] {
        let admission = with(AdmissionPolicy::Probability(probability));
        assert!(expected.contains(&admitted(&admission, 0..10_000, 0)), "{probability}");
    }
}

#[test]
fn reject_first_admits_the_next_time() {
    let admission = with(AdmissionPolicy::RejectFirst { times: 2, keys: 1000 });
    let rounds: Vec<usize> = (0..3).map(|now| admitted(&admission, 0..100, now)).collect();
    assert!(rounds[0] == 0 && rounds[1] <= 10 && rounds[2] >= 90, "{rounds:?}");
    assert!(admission.stats().refused_by_policy >= 190);
    assert!(admission.memory_bytes() > 2 * 1000 * 12 / 8);
}

#[test]
fn a_budget_holds_with_every_policy() {
    let policies = [
        AdmissionPolicy::All,
        AdmissionPolicy::Probability(0.9),
        AdmissionPolicy::RejectFirst { times: 1, keys: 100_000 },
        AdmissionPolicy::History { keys_per_hour: 100_000, min_reads: 0.0 },
    ];
    for policy in policies {
        // Objects of 100 bytes, each of which costs 150 to write.
        let budget = Some(WriteBudget::BytesPerSecond(1500));
        let admission = admission(AdmissionOptions { policy, budget, ..AdmissionOptions::default() });
        let mut at_warm = 0;
        for now in 0..8000_u64 {
            // Each key comes twice, a little later again.
            for i in (now * 50..now * 50 + 50).chain(now.saturating_sub(20) * 50..now.saturating_sub(20) * 50 + 50) {
                admission.offer(&offer(i), now as u32);
            }
            let written = admission.stats().admitted_bytes * 3 / 2;
            admission.maintain(now as u32, written);
            at_warm = if now == 4000 { written } else { at_warm };
        }
        let stats = admission.stats();
        let rate = (stats.admitted_bytes * 3 / 2 - at_warm) as f64 / 4000.0;
        assert!((1400.0..1600.0).contains(&rate), "{policy:?}: {rate}");
        assert!(stats.refused_by_budget > 0 && stats.share < 1.0, "{policy:?}: {stats:?}");
    }
}

#[test]
fn history_admits_missed_keys_and_budgets_most_missed() {
    let policy = AdmissionPolicy::History { keys_per_hour: 10_000, min_reads: 0.1 };
    let plain = with(policy);
    let budget = Some(WriteBudget::BytesPerSecond(500));
    let tight = admission(AdmissionOptions { policy, budget, ..AdmissionOptions::default() });
    for admission in [&plain, &tight] {
        for hour in 0..6 {
            admission.maintain(hour * 3600, 0);
            // All of 1000 keys are missed in the first hour, and a hundred of them in each hour.
            let missed = if hour == 0 { 0..1000 } else { 0..100 };
            missed.for_each(|i| admission.missed(offer(i).key));
        }
    }
    let now = 5 * 3600 + 1;
    assert_eq!(admitted(&plain, 0..100, now), 100);
    assert_eq!(admitted(&plain, 100..1000, now), 900, "missed in one of six hours: 0.17");
    assert!(admitted(&plain, 5000..6000, now) < 100, "not missed");
    // The budget admits a tenth of the objects that pass the policy: the hundred, and few others.
    let mut written = 0;
    for second in 0..3000_u64 {
        // The misses continue, those of the hundred a little more often.
        (0..100).filter(|i| (second + i) % 1000 == 0).for_each(|i| tight.missed(offer(i).key));
        (100..1000).filter(|i| (second + i) % 3000 == 0).for_each(|i| tight.missed(offer(i).key));
        let before = tight.stats().admitted_bytes;
        admitted(&tight, 0..1000, now + second as u32);
        written += (tight.stats().admitted_bytes - before) / 20;
        tight.maintain(now + second as u32, written);
    }
    let best = admitted(&tight, 0..100, now + 3000);
    let others = admitted(&tight, 100..1000, now + 3000);
    assert!(best >= 90 && others <= 60, "{best} of 100, {others} of 900");
}

#[test]
fn keys_near_the_threshold_pass_consistently() {
    let admission = with(AdmissionPolicy::History { keys_per_hour: 10_000, min_reads: 0.2 });
    admission.maintain(0, 0);
    (0..4000).for_each(|i| admission.missed(offer(i).key));
    let passing = || -> Vec<u64> { (0..4000).filter(|&i| admission.offer(&offer(i), 1) == Decision::Admit).collect() };
    // Each was missed once in six hours, until samples say otherwise: five sixths of the least.
    let first = passing();
    let expected = 4000.0 * (5.0_f64 / 6.0).powi(8);
    assert!((first.len() as f64 / expected - 1.0).abs() < 0.15, "{} of {expected}", first.len());
    assert!((0..20).all(|_| passing() == first), "drawn anew, all would pass in the end");
}

#[test]
fn a_longer_object_must_promise_more_reads() {
    let admission = with(AdmissionPolicy::History { keys_per_hour: 1000, min_reads: 0.3 });
    for i in (0..3).chain(0..3) {
        admission.maintain(0, 0);
        admission.missed(offer(i).key);
    }
    // Missed twice in six hours: 0.33, until samples say otherwise.
    let decide = |i, bytes| admission.offer(&Offer { bytes, ..offer(i) }, 0);
    assert_eq!(decide(0, 1000), Decision::Admit, "the mean is its own");
    assert_eq!(decide(1, 2000), Decision::Refuse(Reason::Policy));
    assert_eq!(decide(2, 1000), Decision::Admit);
    assert_eq!(decide(3, 1), Decision::Refuse(Reason::Policy), "never missed");
}

#[test]
fn invalid_admission_options_are_refused_by_name() {
    let open_error = |policy, budget| {
        let options = AdmissionOptions { policy, budget, ..AdmissionOptions::default() };
        Admission::new(options, 1 << 30, 1).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for probability in [-0.1, 1.1, f64::NAN] {
        assert!(open_error(AdmissionPolicy::Probability(probability), None).contains("0 to 1"));
    }
    assert!(open_error(AdmissionPolicy::RejectFirst { times: 0, keys: 1 }, None).contains("1 to 8"));
    assert!(open_error(AdmissionPolicy::RejectFirst { times: 9, keys: 1 }, None).contains("1 to 8"));
    assert!(open_error(AdmissionPolicy::RejectFirst { times: 1, keys: 0 }, None).contains("needs 1"));
    assert!(open_error(AdmissionPolicy::History { keys_per_hour: 0, min_reads: 1.0 }, None).contains("needs 1"));
    for keys in [(1 << 36) + 1, 1 << 62, usize::MAX] {
        for policy in [
            AdmissionPolicy::RejectFirst { times: 8, keys },
            AdmissionPolicy::History { keys_per_hour: keys, min_reads: 1.0 },
        ] {
            assert!(open_error(policy, None).contains("68719476736 at most"), "{policy:?}");
            assert!(AdmissionOptions { policy, ..AdmissionOptions::default() }.memory_bytes() >= 1 << 36);
        }
    }
    assert!(
        open_error(AdmissionPolicy::History { keys_per_hour: 1, min_reads: f64::NAN }, None).contains("least reads")
    );
    assert!(open_error(AdmissionPolicy::All, Some(WriteBudget::BytesPerSecond(0))).contains("more"));
    for writes in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        assert!(
            open_error(AdmissionPolicy::All, Some(WriteBudget::DriveWritesPerDay(writes))).contains("drive writes")
        );
    }
    assert_eq!(open_error(AdmissionPolicy::All, Some(WriteBudget::DriveWritesPerDay(1.0))), "");
}

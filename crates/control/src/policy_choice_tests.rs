use super::*;

/// A pool and the models of its policies, whose miss ratios are given.
struct Simulation {
    choice: PolicyChoice,
    present: usize,
    now_seconds: f64,
    gets: u64,
    hits: f64,
    model_hits: Vec<f64>,
    random: u64,
}

impl Simulation {
    fn new(policies: usize) -> Self {
        let names = ["a", "b", "c"][..policies].iter().map(|name| (*name).to_owned()).collect();
        Self {
            choice: PolicyChoice::new(names),
            present: 0,
            now_seconds: 0.0,
            gets: 0,
            hits: 0.0,
            model_hits: vec![0.0; policies],
            random: 7,
        }
    }

    /// About normal, of variance 1/2.
    fn noise(&mut self) -> f64 {
        let mut sum = 0.0;
        for _ in 0..6 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            sum += (self.random >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        }
        sum
    }

    /// A window with these miss ratios of the models. The measured one is that of the present policy, and `offset`.
    fn step(&mut self, misses: &[f64], offset: f64, noise: f64) -> PolicyDecision {
        const GETS: f64 = 2000.0;
        self.now_seconds += 10.0;
        self.gets += GETS as u64;
        let common = self.noise() * 0.05;
        for (at, miss_ratio) in misses.iter().enumerate() {
            let alone = self.noise() * noise;
            self.model_hits[at] += GETS * (1.0 - miss_ratio - common - alone);
        }
        let alone = self.noise() * noise;
        self.hits += GETS * (1.0 - misses[self.present] - offset - common - alone);
        let model_hits: Vec<u64> = self.model_hits.iter().map(|hits| *hits as u64).collect();
        let decision = self.choice.decide(&PolicyReading {
            now_seconds: self.now_seconds,
            present: self.present,
            gets: self.gets,
            hits: self.hits as u64,
            evictions: self.gets,
            objects: 4000,
            model_set: 1,
            model_gets: self.gets,
            model_hits: &model_hits,
        });
        if let PolicyDecision::Change(change) = &decision {
            self.present = self.choice.names().iter().position(|name| *name == change.to).unwrap();
        }
        decision
    }

    fn run(&mut self, windows: usize, misses: &[f64], offset: f64, noise: f64) -> Vec<PolicyChange> {
        let steps = (0..windows).map(|_| self.step(misses, offset, noise));
        steps
            .filter_map(|decision| if let PolicyDecision::Change(change) = decision { Some(change) } else { None })
            .collect()
    }
}

#[test]
fn the_policy_that_misses_least_is_chosen() {
    let mut simulation = Simulation::new(3);
    let changes = simulation.run(400, &[0.30, 0.28, 0.25], 0.0, 0.002);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!((changes[0].to.as_str(), changes[0].is_undo), ("c", false));
    let text = changes[0].to_string();
    assert!(text.starts_with("c instead of a: 2") && text.contains(" % with a, over "), "{text}");
    // Another load: the other way round, one change at a time.
    let changes = simulation.run(400, &[0.20, 0.28, 0.25], 0.0, 0.002);
    assert!(changes.len() == 1 && changes[0].to == "a", "{changes:?}");
}

#[test]
fn gains_within_the_noise_switch_nothing() {
    let mut simulation = Simulation::new(3);
    // 4,000 tests, each of which one of 2,000 passes by chance.
    let changes = simulation.run(2000, &[0.30, 0.30, 0.30], 0.0, 0.004);
    assert!(changes.len() <= 2, "{changes:?}");
    let mut simulation = Simulation::new(2);
    let changes = simulation.run(500, &[0.30, 0.2991], 0.0, 0.0);
    assert!(changes.is_empty(), "under half a percent of the misses: {changes:?}");
    let last = simulation.step(&[0.30, 0.2991], 0.0, 0.0);
    let PolicyDecision::Keep(reason) = last else { panic!("{last:?}") };
    assert!(reason.to_string().starts_with("b would avoid 0."), "{reason}");
}

#[test]
fn a_switch_without_gain_is_undone_and_delayed() {
    let mut simulation = Simulation::new(2);
    let (mut switched, mut undone) = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        // The model of b predicts a gain that b does not have.
        let offset = if simulation.present == 1 { 0.06 } else { 0.0 };
        match simulation.step(&[0.30, 0.27], offset, 0.002) {
            PolicyDecision::Change(change) if change.is_undo => {
                assert!(change.miss_ratio_before > change.miss_ratio_after + 0.02, "{change:?}");
                assert!(change.to_string().starts_with("undo, a instead of b: 3"), "{change}");
                undone.push(simulation.now_seconds);
            }
            PolicyDecision::Change(_) => switched.push(simulation.now_seconds),
            PolicyDecision::Keep(_) => {}
        }
    }
    assert!(undone.len() >= 3, "{switched:?} {undone:?}");
    let waits: Vec<f64> = undone.iter().zip(&switched[1..]).map(|(undo, again)| again - undo).collect();
    assert!(waits[0] >= RETRY_SECONDS && waits[1] >= 2.0 * RETRY_SECONDS, "{waits:?}");
}

#[test]
fn load_drift_does_not_undo_a_switch() {
    let mut simulation = Simulation::new(2);
    let mut changes = Vec::new();
    for window in 0..200 {
        // Ever more gets miss whatever the policy; the models are a point too low all the time.
        let drift = f64::from(window) * 0.002;
        changes.extend(simulation.run(1, &[0.30 + drift, 0.27 + drift], 0.01, 0.001));
    }
    assert!(changes.len() == 1 && changes[0].to == "b", "{changes:?}");
}

#[test]
fn new_models_and_manual_switches_start_a_window() {
    let mut simulation = Simulation::new(2);
    simulation.run(10, &[0.30, 0.30], 0.0, 0.0);
    let counters = [10, 10];
    let reading = PolicyReading {
        now_seconds: 1000.0,
        present: 0,
        gets: simulation.gets + 5000,
        hits: simulation.hits as u64,
        evictions: 0,
        objects: 1,
        model_set: 2,
        model_gets: 20,
        model_hits: &counters,
    };
    assert_eq!(simulation.choice.decide(&reading), PolicyDecision::Keep(PolicyKeepReason::Measuring));
    let mut by_hand = Simulation::new(2);
    by_hand.run(10, &[0.30, 0.20], 0.0, 0.001);
    assert_eq!(by_hand.present, 1);
    by_hand.present = 0;
    // The models still prefer b, and the trial of b has ended.
    let changes = by_hand.run(MIN_WINDOWS + 1, &[0.30, 0.20], 0.0, 0.001);
    assert!(changes.len() == 1 && changes[0].to == "b", "{changes:?}");
}

#[test]
fn an_undone_trial_leaves_no_windows_behind() {
    let mut simulation = Simulation::new(3);
    let mut changes = Vec::new();
    // The models predict gains of b and c that neither has.
    for _ in 0..100 {
        let offset = [0.0, 0.30, 0.10][simulation.present];
        changes.extend(simulation.run(1, &[0.30, 0.20, 0.25], offset, 0.002));
    }
    let named: Vec<_> = changes.iter().map(|change| (change.to.as_str(), change.is_undo)).collect();
    assert_eq!(named, [("b", false), ("a", true), ("c", false), ("a", true)]);
}

#[test]
fn a_refused_policy_waits_and_others_are_tried() {
    let mut simulation = Simulation::new(3);
    let mut tried = Vec::new();
    for _ in 0..2 * RETRY_SECONDS as usize / 10 {
        let PolicyDecision::Change(change) = simulation.step(&[0.30, 0.20, 0.25], 0.0, 0.002) else { continue };
        if change.to == "b" {
            simulation.present = 0;
            simulation.choice.refuse_change(simulation.now_seconds);
        }
        tried.push((change.to, simulation.now_seconds));
    }
    let names: Vec<_> = tried.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..3], ["b", "c", "b"], "{tried:?}");
    assert!(tried[2].1 - tried[0].1 >= RETRY_SECONDS, "{tried:?}");
}

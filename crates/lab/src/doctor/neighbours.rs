//! Processor time that others take: the hypervisor's other guests, and the limit of the control group.

use super::finding::Finding;
use super::machine::Machine;

/// Shares of time from which on clients notice it in the tail of the latencies.
const MAX_STEAL: f64 = 0.01;
const MAX_THROTTLED: f64 = 0.01;

/// Time in which this machine would have run, and others did, since the start.
pub fn steal(machine: &Machine) -> Finding {
    const NAME: &str = "steal";
    let text = machine.read("proc/stat").unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
    let times: Vec<u64> = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .map(|line| line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect())
        .unwrap_or_default();
    let [_, _, _, idle, waiting, _, _, stolen] = times[..] else {
        return Finding::ok(NAME, "this system does not tell it");
    };
    let busy = times.iter().sum::<u64>() - idle - waiting;
    let share = if busy > 0 { stolen as f64 / busy as f64 } else { 0.0 };
    let found = format!("neighbours took {:.1} % of the busy time since the start", share * 100.0);
    match share > MAX_STEAL {
        true => Finding::advice(
            NAME,
            found,
            "move to a host with dedicated cores, or a larger instance; no setting of this machine helps",
        ),
        false => Finding::ok(NAME, found),
    }
}

/// Periods in which the control group had used up its processor time.
pub fn throttling(machine: &Machine) -> Finding {
    const NAME: &str = "CPU limit";
    let Some(text) = machine.group_file("cpu.stat") else {
        return Finding::ok(NAME, "no control group limits the processor");
    };
    let number = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    let (periods, throttled) = (number("nr_periods"), number("nr_throttled"));
    if periods == 0 {
        return Finding::ok(NAME, "the control group has none");
    }
    let share = throttled as f64 / periods as f64;
    let found = format!("the control group was stopped in {throttled} of {periods} periods");
    match share > MAX_THROTTLED {
        true => Finding::advice(
            NAME,
            found,
            "a stopped server answers nobody for up to 100 ms: no CPU limit (resources.limits.cpu, CPUQuota=), or as \
             many cores as -t",
        ),
        false => Finding::ok(NAME, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Advice, Ok};
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn stolen_time_is_shown_relative_to_busy_time() {
        let (_folder, crowded) = machine(&[("proc/stat", "cpu  60 0 30 900 100 0 0 10 0 0\ncpu0 1 1 1 1 1 1 1 1\n")]);
        let finding = steal(&crowded);
        assert_eq!(
            (finding.verdict, finding.found.as_str()),
            (Advice, "neighbours took 10.0 % of the busy time since the start")
        );
        let (_folder, alone) = machine(&[("proc/stat", "cpu  60 0 30 900 100 0 0 0 0 0\n")]);
        assert_eq!(steal(&alone).verdict, Ok);
        assert_eq!(steal(&machine(&[]).1).verdict, Ok);
    }

    #[test]
    fn a_group_that_is_stopped_is_told() {
        let stat = |throttled: &str| format!("usage_usec 5\nnr_periods 1000\nnr_throttled {throttled}\n");
        let path = "sys/fs/cgroup/cpu.stat";
        let (_folder, stopped) = machine(&[(path, &stat("200"))]);
        assert_eq!(throttling(&stopped).verdict, Advice);
        let (_folder, free) = machine(&[(path, &stat("3"))]);
        assert_eq!(throttling(&free).verdict, Ok);
        let (_folder, unlimited) = machine(&[(path, "nr_periods 0\nnr_throttled 0\n")]);
        assert_eq!(throttling(&unlimited).verdict, Ok);
        assert_eq!(throttling(&machine(&[]).1).verdict, Ok);
    }
}

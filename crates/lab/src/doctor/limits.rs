//! Limits of the process and of the kernel, and properties of the machine that affect the server's threads.

use rustix::process::{Resource, getrlimit};

use super::finding::Finding;
use super::machine::Machine;

/// Files that a server has open beside its connections, and for each thread.
const OTHER_FILES: u64 = 64;
const FILES_PER_THREAD: u64 = 4;

pub fn open_files(machine: &Machine, connections: u64, threads: u64) -> Finding {
    // The server increases the soft limit itself.
    let hard = getrlimit(Resource::Nofile).maximum;
    judge_files(hard, machine.number("proc/sys/fs/nr_open"), connections + threads * FILES_PER_THREAD + OTHER_FILES)
}

fn judge_files(hard: Option<u64>, kernel: Option<u64>, needed: u64) -> Finding {
    const NAME: &str = "open files";
    let hard = hard.unwrap_or(u64::MAX);
    let limit = hard.min(kernel.unwrap_or(u64::MAX));
    if limit >= needed {
        let limit = if limit == u64::MAX { "no limit".to_owned() } else { format!("a limit of {limit}") };
        return Finding::ok(NAME, format!("{needed} needed, {limit}"));
    }
    let first = match kernel.filter(|kernel| *kernel < needed) {
        Some(_) => format!("sysctl -w fs.nr_open={needed}, then "),
        None => String::new(),
    };
    Finding::problem(
        NAME,
        format!("{needed} needed, a limit of {limit}"),
        format!("{first}LimitNOFILE={needed} in the unit, ulimit -Hn {needed} in a shell, or lower -c"),
    )
}

pub fn backlog(machine: &Machine, backlog: u64) -> Finding {
    const NAME: &str = "backlog";
    match machine.number("proc/sys/net/core/somaxconn") {
        Some(max) if max < backlog => Finding::advice(
            NAME,
            format!("net.core.somaxconn={max} cuts -b {backlog} short"),
            format!("sysctl -w net.core.somaxconn={backlog}"),
        ),
        Some(max) => Finding::ok(NAME, format!("net.core.somaxconn={max}, -b {backlog}")),
        None => Finding::ok(NAME, format!("-b {backlog}; this system does not tell its limit")),
    }
}

pub fn cores(machine: &Machine, threads: u64) -> Finding {
    const NAME: &str = "threads";
    let found = format!("{threads} threads, {} cores", machine.cores);
    match threads > machine.cores {
        true => Finding::advice(NAME, found, format!("-t {}: more only take time from each other", machine.cores)),
        false => Finding::ok(NAME, found),
    }
}

pub fn nodes(machine: &Machine) -> Finding {
    const NAME: &str = "NUMA";
    match machine.count("sys/devices/system/node", "node") {
        0 | 1 => Finding::ok(NAME, "one node"),
        nodes => {
            let mut advice =
                "numactl --interleave=all ebbtide ..., or a server for each node: numactl -N 0 -m 0 ebbtide ..."
                    .to_owned();
            for (setting, harm) in [
                ("kernel/numa_balancing", "the kernel unmaps pages to see who reads them"),
                ("vm/zone_reclaim_mode", "a full node evicts pages while others have free ones"),
            ] {
                if machine.number(&format!("proc/sys/{setting}")).is_some_and(|mode| mode > 0) {
                    advice.push_str(&format!("; sysctl -w {}=0: {harm}", setting.replace('/', ".")));
                }
            }
            Finding::advice(NAME, format!("{nodes} nodes"), advice)
        }
    }
}

/// Clocks that can be read without a system call.
const QUICK: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

pub fn clock(machine: &Machine) -> Finding {
    const NAME: &str = "clock";
    let folder = "sys/devices/system/clocksource/clocksource0";
    let Some(clock) = machine.read(&format!("{folder}/current_clocksource")) else {
        return Finding::ok(NAME, "this system does not tell its clock");
    };
    if QUICK.contains(&clock.as_str()) {
        return Finding::ok(NAME, clock);
    }
    let others = machine.read(&format!("{folder}/available_clocksource")).unwrap_or_default();
    match others.split_whitespace().find(|other| QUICK.contains(other)) {
        Some(better) => {
            let advice = format!("every write reads it: echo {better} > /{folder}/current_clocksource");
            Finding::advice(NAME, format!("{clock} takes a system call"), advice)
        }
        None => Finding::ok(NAME, format!("{clock}; there is no quicker one")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Advice, Ok, Problem};
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn the_hard_limit_of_files_counts() {
        assert_eq!(judge_files(Some(2000), Some(1 << 20), 1000).verdict, Ok);
        assert_eq!(judge_files(None, None, 1000).verdict, Ok);
        let short = judge_files(Some(500), Some(1 << 20), 1000);
        assert_eq!(short.verdict, Problem);
        assert!(short.advice.unwrap().starts_with("LimitNOFILE=1000"));
        assert!(judge_files(Some(500), Some(600), 1000).advice.unwrap().starts_with("sysctl -w fs.nr_open=1000"));
    }

    #[test]
    fn the_backlog_is_held_against_the_kernels() {
        let (_folder, small) = machine(&[("proc/sys/net/core/somaxconn", "128\n")]);
        assert_eq!(backlog(&small, 1024).advice.as_deref(), Some("sysctl -w net.core.somaxconn=1024"));
        assert_eq!(backlog(&small, 128).verdict, Ok);
    }

    #[test]
    fn cores_nodes_and_clock() {
        let folder = "sys/devices/system/clocksource/clocksource0";
        let (current, available) = (format!("{folder}/current_clocksource"), format!("{folder}/available_clocksource"));
        let (_folder, slow) = machine(&[
            (&current, "hpet\n"),
            (&available, "hpet tsc acpi_pm\n"),
            ("sys/devices/system/node/node0/x", ""),
            ("sys/devices/system/node/node1/x", ""),
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("proc/sys/vm/zone_reclaim_mode", "0\n"),
        ]);
        assert_eq!(clock(&slow).verdict, Advice);
        assert!(clock(&slow).advice.unwrap().contains("echo tsc > "));
        assert_eq!(nodes(&slow).verdict, Advice);
        let advice = nodes(&slow).advice.unwrap();
        assert!(advice.contains("kernel.numa_balancing=0") && !advice.contains("zone_reclaim"), "{advice}");
        assert_eq!((cores(&slow, 2).verdict, cores(&slow, 3).verdict), (Ok, Advice));
        let (_folder, quick) = machine(&[(&current, "kvm-clock\n"), ("sys/devices/system/node/node0/x", "")]);
        assert_eq!((clock(&quick).verdict, nodes(&quick).verdict), (Ok, Ok));
    }
}

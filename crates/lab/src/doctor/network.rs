//! Network: kernel settings for connections and packets.

use super::finding::Finding;
use super::machine::Machine;

const CLASS: &str = "sys/class/net";
/// The share of the table of tracked connections from which on it is nearly full.
const CONNTRACK_PERCENT: u64 = 80;

/// Settings of the kernel for TCP.
pub fn tcp(machine: &Machine, backlog: u64) -> Finding {
    const NAME: &str = "TCP";
    let number = |name: &str| machine.number(&format!("proc/sys/net/ipv4/{name}"));
    let (mut found, mut advice) = (Vec::new(), Vec::new());
    if let Some(max) = number("tcp_max_syn_backlog") {
        found.push(format!("tcp_max_syn_backlog={max}"));
        if max < backlog {
            advice.push(format!("sysctl -w net.ipv4.tcp_max_syn_backlog={backlog}: new connections wait there, too"));
        }
    }
    if let Some(idle) = number("tcp_slow_start_after_idle") {
        found.push(format!("tcp_slow_start_after_idle={idle}"));
        if idle != 0 {
            advice.push(
                "sysctl -w net.ipv4.tcp_slow_start_after_idle=0: pooled connections keep their window while idle"
                    .to_owned(),
            );
        }
    }
    match (found.is_empty(), advice.is_empty()) {
        (true, _) => Finding::ok(NAME, "this system does not tell its settings"),
        (false, true) => Finding::ok(NAME, found.join(", ")),
        (false, false) => Finding::advice(NAME, found.join(", "), advice.join("; ")),
    }
}

/// The table of tracked connections: when it is full, packets of new ones are dropped.
pub fn conntrack(machine: &Machine, connections: u64) -> Finding {
    const NAME: &str = "conntrack";
    let number = |name: &str| machine.number(&format!("proc/sys/net/netfilter/nf_conntrack_{name}"));
    let (Some(used), Some(max)) = (number("count"), number("max")) else {
        return Finding::ok(NAME, "connections are not tracked here");
    };
    let found = format!("{used} of {max} entries, -c {connections}");
    let needed = used.max(connections);
    match needed > max / 100 * CONNTRACK_PERCENT {
        true => Finding::advice(
            NAME,
            found,
            format!(
                "sysctl -w net.netfilter.nf_conntrack_max={}, or no tracking for the port (nft: notrack): a full table \
                 drops new connections",
                (needed * 2).next_power_of_two()
            ),
        ),
        false => Finding::ok(NAME, found),
    }
}

/// Queues of the network cards, which spread packets over cores.
pub fn queues(machine: &Machine) -> Finding {
    const NAME: &str = "NIC queues";
    let cards: Vec<String> = machine.names(CLASS).into_iter().filter(|card| is_up(machine, card)).collect();
    if cards.is_empty() {
        let reason = "no network card is visible; a container hides those of its host: run this on the host";
        return Finding::ok(NAME, reason);
    }
    let (mut found, mut advice) = (Vec::new(), Vec::new());
    for card in &cards {
        let queues = machine.count(&format!("{CLASS}/{card}/queues"), "rx-").max(1) as u64;
        found.push(format!("{card}: {queues} receive queues"));
        // A mask of zeros: the core that takes the interrupt does the rest, too.
        let mask = machine.read(&format!("{CLASS}/{card}/queues/rx-0/rps_cpus")).unwrap_or_default();
        let is_spread = mask.chars().any(|digit| digit != '0' && digit != ',');
        if queues < machine.cores && !is_spread {
            let cores = machine.cores;
            let mask = format!("{:x}", (1u128 << cores.min(127)) - 1);
            advice.push(format!(
                "ethtool -L {card} combined {cores}, or where the card has no more: echo {mask} > \
                 /{CLASS}/{card}/queues/rx-0/rps_cpus"
            ));
        }
    }
    let found = format!("{}, {} cores", found.join(", "), machine.cores);
    match advice.is_empty() {
        true => Finding::ok(NAME, found),
        false => Finding::advice(NAME, found, advice.join("; ")),
    }
}

/// A card of hardware, or of a hypervisor, that is connected: bridges and tunnels have no device.
fn is_up(machine: &Machine, card: &str) -> bool {
    machine.has(&format!("{CLASS}/{card}/device"))
        && machine.read(&format!("{CLASS}/{card}/operstate")).as_deref() == Some("up")
}

/// Packets that the kernel dropped because no core took them in time.
pub fn drops(machine: &Machine) -> Finding {
    const NAME: &str = "packets";
    let Some(text) = machine.read("proc/net/softnet_stat") else {
        return Finding::ok(NAME, "this system does not tell drops");
    };
    // A line for each core, in hexadecimal: packets, drops, times that the budget was used up.
    let column = |at: usize| -> u64 {
        let words = text.lines().filter_map(|line| line.split_whitespace().nth(at));
        words.filter_map(|word| u64::from_str_radix(word, 16).ok()).sum()
    };
    let (packets, dropped, squeezed) = (column(0), column(1), column(2));
    let found = format!("{dropped} of {packets} dropped, {squeezed} times out of budget, since the start");
    match dropped > 0 {
        true => Finding::advice(NAME, found, "sysctl -w net.core.netdev_max_backlog=16384 net.core.netdev_budget=600"),
        false => Finding::ok(NAME, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Advice, Ok};
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn settings_of_tcp_have_their_commands() {
        let (syn, idle) = ("proc/sys/net/ipv4/tcp_max_syn_backlog", "proc/sys/net/ipv4/tcp_slow_start_after_idle");
        let (_folder, plain) = machine(&[(syn, "128\n"), (idle, "1\n")]);
        let advice = tcp(&plain, 1024).advice.unwrap();
        assert!(advice.contains("tcp_max_syn_backlog=1024") && advice.contains("after_idle=0"), "{advice}");
        let (_folder, tuned) = machine(&[(syn, "4096\n"), (idle, "0\n")]);
        assert_eq!(tcp(&tuned, 1024).verdict, Ok);
        assert_eq!(tcp(&machine(&[]).1, 1024).verdict, Ok);
    }

    #[test]
    fn a_conntrack_table_too_small_gives_advice() {
        let files = |used, max| {
            [("proc/sys/net/netfilter/nf_conntrack_count", used), ("proc/sys/net/netfilter/nf_conntrack_max", max)]
        };
        let (_folder, full) = machine(&files("100", "20000"));
        assert_eq!(conntrack(&full, 20_000).verdict, Advice);
        assert!(conntrack(&full, 20_000).advice.unwrap().contains("nf_conntrack_max=65536"));
        assert_eq!(conntrack(&full, 1000).verdict, Ok);
        assert_eq!(conntrack(&machine(&[]).1, 1000).verdict, Ok);
    }

    #[test]
    fn one_queue_for_two_cores_is_told() {
        let card = |name: &str, file: &str| format!("{CLASS}/{name}/{file}");
        let file = |path: &str, text: &'static str| (path.to_owned(), text);
        let mut files = vec![
            file(&card("eth0", "device/vendor"), "0x8086"),
            file(&card("eth0", "operstate"), "up"),
            file(&card("eth0", "queues/rx-0/rps_cpus"), "00000000,00000000"),
            file(&card("docker0", "operstate"), "up"),
            file(&card("docker0", "queues/rx-0/rps_cpus"), "0"),
        ];
        let look = |files: &[(String, &str)]| {
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let (_folder, machine) = machine(&files);
            queues(&machine)
        };
        let finding = look(&files);
        assert_eq!((finding.verdict, finding.found.as_str()), (Advice, "eth0: 1 receive queues, 2 cores"));
        assert!(finding.advice.unwrap().contains("echo 3 > /sys/class/net/eth0/queues/rx-0/rps_cpus"));
        files[2].1 = "00000000,00000003";
        assert_eq!(look(&files).verdict, Ok, "packets are spread by software");
        files[2].1 = "0";
        files.push(file(&card("eth0", "queues/rx-1/rps_cpus"), "0"));
        assert_eq!(look(&files).verdict, Ok, "a queue for each core");
        assert!(look(&files[3..5]).found.contains("container"));
    }

    #[test]
    fn drops_of_all_cores_are_added() {
        let (_folder, busy) =
            machine(&[("proc/net/softnet_stat", "000000ff 00000001 00000002 0\n00000001 00000010 0 0\n")]);
        let finding = drops(&busy);
        assert_eq!((finding.verdict, finding.found.split(',').next()), (Advice, Some("17 of 256 dropped")));
        let (_folder, calm) = machine(&[("proc/net/softnet_stat", "000000ff 00000000 00000002 0\n")]);
        assert_eq!(drops(&calm).verdict, Ok);
    }
}

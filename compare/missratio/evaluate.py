"""Fills the table of results: every system on every trace, at equal all-in memory."""
import hashlib

import systems
import traces
from results import Cell, Results

# What the bars are about, and the sizes at which the curves of generated workloads are taken: shares of the footprint.
TRACE_SHARES = ("0.01", "0.1", "0.3")
PRESET_SHARES = ("0.06", "0.1", "0.16", "0.25", "0.4", "0.63", "1.0", "1.6")


class Evaluation:
    def __init__(self, folder, ebbtide, peers, say=print):
        self.folder = folder
        self.binary = ebbtide
        self.peer_binary = peers
        self.say = say
        self.peers = Results(folder / "peers.csv")
        digest = hashlib.sha256(ebbtide.read_bytes()).hexdigest()[:12]
        self.ours = Results(folder / f"ebbtide-{digest}.csv")

    def everything(self):
        """The rows of the peers and those of this build of ebbtide."""
        return self.peers.ratios | self.ours.ratios

    def load(self, path):
        return traces.load(path, self.folder / "traces")

    def run(self, path, shares, ours=systems.EBBTIDE_POLICIES):
        """Ebbtide and the systems of peer-replay, as far as they are not known yet. Returns the sizes by share."""
        trace = self.load(path)
        footprint = trace.footprint_bytes()
        sizes = {share: int(footprint * float(share)) for share in shares}
        cell = lambda share, *system: Cell(trace.name, share, sizes[share], *system)
        missing = [share for share in shares if any(cell(share, "ebbtide", name, "all-in") not in self.ours for name in ours)]
        found = systems.ebbtide(self.binary, path, [sizes[share] for share in missing], ours)
        for share in missing:
            for policy in ours:
                if (sizes[share], policy) in found:
                    self.ours.add(cell(share, "ebbtide", policy, "all-in"), found[sizes[share], policy])
        missing = {sizes[share]: share for share in shares if cell(share, "proactive", "lru", str(systems.CHARGE)) not in self.peers}
        if missing:
            for *system, memory, ratio in systems.peers(self.peer_binary, path, missing):
                self.peers.add(cell(missing[memory], *system), ratio)
        self.say(f"{trace.name}: ebbtide and peer-replay done")
        return sizes

    def run_policies(self, path, sizes):
        """The policies of libcachesim, as far as they are not known yet."""
        trace = self.load(path)
        for share, memory in sizes.items():
            for system in systems.policy_systems(trace):
                cell = Cell(trace.name, share, memory, system.system, system.policy, str(system.metadata))
                if cell not in self.peers:
                    self.peers.add(cell, system.miss_ratio(trace, memory))
        self.say(f"{trace.name}: libcachesim done")

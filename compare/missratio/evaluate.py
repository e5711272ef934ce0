"""Fills the table of results: every system on every trace, at equal all-in memory."""
import hashlib

import systems
import traces
from results import Cell, Results

# What the bars are about: shares of the footprint.
TRACE_SHARES = ("0.01", "0.1", "0.3")


class Evaluation:
    def __init__(self, folder, ebbtide, peers, jobs=None, say=print):
        self.folder = folder
        self.binary = ebbtide
        self.peer_binary = peers
        self.more = ["--jobs", str(jobs)] if jobs else []
        self.say = say
        self.peers = Results(folder / "peers.csv")
        digest = hashlib.sha256(ebbtide.read_bytes()).hexdigest()[:12]
        self.ours = Results(folder / f"ebbtide-{digest}.csv")

    def everything(self):
        """The rows of the peers and those of this build of ebbtide."""
        return self.peers.ratios | self.ours.ratios

    def load(self, path):
        return traces.load(path, self.folder / "traces")

    def run(self, path, shares):
        """Ebbtide and the systems of peer-replay. Returns the sizes by share."""
        footprint = self.load(path).footprint_bytes()
        sizes = {share: int(footprint * float(share)) for share in shares}
        self.run_ours(path, sizes, systems.EBBTIDE_POLICIES)
        self.run_peers(path, sizes, systems.FAST_PEERS | systems.SLOW_PEERS)
        return sizes

    def run_ours(self, path, sizes, policies):
        """Ebbtide, as far as it is not known yet."""
        name = traces.name_of(path)
        cell = lambda share, policy: Cell(name, share, sizes[share], "ebbtide", policy, "all-in")
        missing = [share for share in sizes if any(cell(share, policy) not in self.ours for policy in policies)]
        found = systems.ebbtide(self.binary, path, [sizes[share] for share in missing], policies, self.more)
        for share in missing:
            for policy in policies:
                if (sizes[share], policy) in found:
                    self.ours.add(cell(share, policy), found[sizes[share], policy])
        self.say(f"{name}: ebbtide done")

    def run_peers(self, path, sizes, peers):
        """Systems of peer-replay, as far as they are not known yet: {as it calls them: system, policy, metadata}."""
        name = traces.name_of(path)
        for argument, system in peers.items():
            missing = {memory: share for share, memory in sizes.items() if Cell(name, share, memory, *system) not in self.peers}
            if missing:
                for memory, ratio in systems.peer(self.peer_binary, path, missing, argument):
                    self.peers.add(Cell(name, missing[memory], memory, *system), ratio)
        self.say(f"{name}: {', '.join(peers)} done")

    def run_policies(self, path, sizes):
        """The policies of libcachesim."""
        for system in systems.policy_systems(self.load(path)):
            self.run_policy(path, sizes, system)
        self.say(f"{traces.name_of(path)}: libcachesim done")

    def run_policy(self, path, sizes, system):
        """A policy of libcachesim, as far as it is not known yet."""
        cell = lambda share: Cell(traces.name_of(path), share, sizes[share], system.system, system.policy, str(system.metadata))
        missing = [share for share in sizes if cell(share) not in self.peers]
        trace = self.load(path) if missing else None
        for share in missing:
            self.peers.add(cell(share), system.miss_ratio(trace, sizes[share]))

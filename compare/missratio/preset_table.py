"""The generated workloads of the Segcache paper at the scale of the comparisons."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """Requests, as many as give it a footprint of some megabytes; at which shares of it the curve is taken; and at which
    miss ratios memory is compared: in production, and higher.

    The Segcache paper's Table 3 has the production miss ratios: c 1 to 5 %, u1 and u2 below 1 %, n about 1 %. Its authors'
    log of Segcache at a large and a medium size (benchmarks/scripts/log_all of Thesys-lab/Segcache) has c 0.0485 and
    0.0560, u1 0.0070 and 0.0185, u2 0.0128 and 0.0285, n 0.0197 and 0.0375. The large one counts as production where it
    is in the table's range; else the range's end does. Of mix nothing is published: it is compared where its curve
    flattens, as the paper's large sizes are chosen, and at half that memory.
    """

    requests: str
    shares: tuple
    miss_ratios: tuple


PRESETS = {
    "c": Preset("10m", ("0.1", "0.125", "0.16", "0.2", "0.25", "0.32", "0.4"), (0.0485, 0.0560)),
    "n": Preset("10m", ("0.1", "0.16", "0.25", "0.32", "0.4", "0.63", "1.0"), (0.0150, 0.0375)),
    "mix": Preset("6m", ("0.01", "0.016", "0.025", "0.032", "0.04", "0.063"), ()),
    "u1": Preset("30m", ("0.063", "0.1", "0.16", "0.25", "0.4"), (0.0070, 0.0185)),
    "u2": Preset("40m", ("0.16", "0.25", "0.32", "0.4", "0.5"), (0.0100, 0.0285)),
}

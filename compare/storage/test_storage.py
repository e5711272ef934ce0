"""The sizes that are compared, and the ratios within rounds. Run in compare/: `python -m pytest storage`."""
from storage import memory, speed
from storage.workloads import PRESETS


class Rounds:
    """Rows of two engines in two rounds."""

    def values(self, column, server, workload):
        assert (column, workload) == ("requests_per_processor_second", "c")
        return {"ebbtide": [2.0, 9.0], "slab": [1.0, 3.0]}[server]


def test_the_plateau_is_where_more_memory_wins_little():
    # 5 % more memory wins 0.0488 of a natural logarithm: 0.05 * 0.0488 is more than the gain, 0.005 * 0.0488 is less.
    points = [(1, 0.30), (2.718281828, 0.25), (7.389056099, 0.245)]
    assert 2.71 < memory.plateau(points) < 2.72 * memory.STEP
    assert memory.plateau(points[:2]) == points[1][0]


def test_targets_are_published_or_those_of_the_plateau():
    assert memory.targets("c", []) == PRESETS["c"].miss_ratios
    points = [(1, 0.30), (2.718281828, 0.25), (7.389056099, 0.245)]
    large, half = memory.targets("mix", points)
    assert large < half < 0.30


def test_kept_cells_are_read():
    assert memory.parsed("4280881 0.062138") == (4280881, 0.062138)


def test_ratios_are_those_within_rounds():
    assert speed.ratio(Rounds(), "ebbtide", "slab", "c") == 2.5


def test_every_workload_has_its_shares():
    assert memory.SHARES.keys() == speed.SHARES.keys() == PRESETS.keys()

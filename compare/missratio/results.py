"""The table of results, on disk: one row per trace, memory, system, policy and metadata.

Peers do not change from run to run, so a row that is there is not computed again; only ours are.
"""
import csv
from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True)
class Cell:
    trace: str
    share: str
    memory: int
    system: str
    policy: str
    metadata: str  # bytes per object; "all-in" where the system itself accounts for it


@dataclass(frozen=True)
class Row(Cell):
    miss_ratio: float


HEADER = [field.name for field in fields(Row)]


class Results:
    def __init__(self, path):
        self.path = path
        self.ratios = {}
        if path.exists():
            with open(path, newline="") as file:
                for row in csv.DictReader(file):
                    ratio = float(row.pop("miss_ratio"))
                    self.ratios[Cell(**row | {"memory": int(row["memory"])})] = ratio

    def __contains__(self, cell):
        return cell in self.ratios

    def add(self, cell, ratio):
        """Keeps the row, on disk too: a run that is cut short has lost nothing."""
        self.ratios[cell] = ratio
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(HEADER)
            writer.writerow([*astuple(cell), f"{ratio:.6f}"])


def write(ratios, path):
    """All rows in order, as one table."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        ordered = sorted(ratios.items(), key=lambda item: astuple(item[0]))
        writer.writerows([*astuple(cell), f"{ratio:.6f}"] for cell, ratio in ordered)

"""Rows of measurements: as CSV, as Markdown with medians and spread, as bars or lines in SVG."""
import collections
import csv
import statistics

from servers import ROOT

OUTPUT = ROOT / "compare/results"


class Rows:
    """One row per round; written at once, so that an interrupted run leaves what it has."""

    def __init__(self, part, name, columns):
        folder = OUTPUT / part
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.csv"
        self.columns = columns
        self.rows = []
        with open(self.path, "w", newline="") as file:
            csv.writer(file).writerow(columns)

    def add(self, **row):
        self.rows.append(row)
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, self.columns, lineterminator="\n").writerow(row)

    def values(self, column, **where):
        return [row[column] for row in self.rows if all(row[name] == value for name, value in where.items())]

    def distinct(self, column):
        return list(collections.OrderedDict.fromkeys(row[column] for row in self.rows))

    def median(self, column, **where):
        return statistics.median(self.values(column, **where))

    def spread(self, column, form="{:.0f}", scale=1.0, **where):
        """Median, and least to most of all rounds."""
        values = [value * scale for value in self.values(column, **where)]
        low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
        return f"{middle} ({low} to {high})"


def markdown(header, rows):
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print(flush=True)


def bars(rows, path, column, group, label, scale=1.0, logarithmic=False):
    """A bar per server in each group: the median, with a line from the least to the most."""
    pyplot = plotting()
    groups, servers = rows.distinct(group), rows.distinct("server")
    figure, axes = pyplot.subplots(figsize=(7, 3.2))
    width = 0.8 / len(servers)
    for place, server in enumerate(servers):
        found = [[value * scale for value in rows.values(column, server=server, **{group: name})] for name in groups]
        middle = [statistics.median(values) if values else 0 for values in found]
        below = [m - min(values, default=m) for m, values in zip(middle, found)]
        above = [max(values, default=m) - m for m, values in zip(middle, found)]
        at = [index + (place - (len(servers) - 1) / 2) * width for index in range(len(groups))]
        axes.bar(at, middle, width, yerr=[below, above], capsize=2, label=server)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(label)
    if logarithmic:
        axes.set_yscale("log")
    axes.legend(frameon=False)
    save(pyplot, figure, path)


def lines(rows, path, column, along, labels, scale=1.0):
    """A line per server through the medians, over the numbers in `along`."""
    pyplot = plotting()
    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    for server in rows.distinct("server"):
        places = rows.distinct(along)
        middle = [rows.median(column, server=server, **{along: place}) * scale for place in places]
        axes.plot(places, middle, marker="o", label=server)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    save(pyplot, figure, path)


def plotting():
    import matplotlib
    matplotlib.use("svg")
    # The same rows give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "compare"
    from matplotlib import pyplot
    return pyplot


def save(pyplot, figure, path):
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)

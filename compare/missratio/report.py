"""results.csv, the plots, and the tables for docs/benchmarks.md."""
import figures
import results
import tables


def write(evaluation, out):
    out.mkdir(parents=True, exist_ok=True)
    ratios = evaluation.everything()
    results.write(ratios, out / "results.csv")
    figures.draw(ratios, out)
    places = tables.by_place(ratios)
    parts = (
        tables.summary(places),
        tables.traces_table(places),
        tables.presets_table(ratios),
        tables.expiry_table(ratios),
        tables.decomposition_table(ratios),
    )
    text = "\n\n".join("\n".join(lines) for lines in parts)
    (out / "tables.md").write_text(text + "\n")
    print(text)

//! A table that is sorted by one of its columns and fitted to a width.
//!
//! The first column names the row. The others follow in the order of their weight: a narrow terminal leaves them out
//! from the right, but never the one that the rows are sorted by. A wide terminal adds a bar of that column.

use std::cmp::Ordering;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::format::{UNKNOWN, gauge};

/// Characters of the name that a narrow terminal still shows.
const MIN_NAME: usize = 6;
/// Characters of a bar, and between columns.
const MAX_BAR: usize = 40;
const MIN_BAR: usize = 10;
const GAP: usize = 2;

/// A value: as it is shown, and as it is sorted.
#[derive(Clone, Debug, PartialEq)]
pub struct TableCell {
    pub text: String,
    /// `None` sorts after every number.
    pub order: Option<f64>,
}

impl TableCell {
    pub fn new(order: Option<f64>, text: String) -> Self {
        Self { text, order }
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    /// One for each column after the name.
    pub cells: Vec<TableCell>,
}

/// Rows under a head. Column 0 is the name.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Row>,
    /// The text in place of rows.
    pub empty: String,
}

/// The column that rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub column: usize,
    pub is_descending: bool,
}

impl Sort {
    /// Names from A, numbers from the largest.
    pub fn by(column: usize) -> Self {
        Self { column, is_descending: column > 0 }
    }
}

impl Table {
    pub fn sort(&mut self, sort: Sort) {
        let by_value = |a: &Row, b: &Row| {
            let order = |row: &Row| row.cells.get(sort.column.wrapping_sub(1)).and_then(|cell| cell.order);
            match (order(a), order(b)) {
                (Some(a), Some(b)) if sort.is_descending => b.total_cmp(&a),
                (Some(a), Some(b)) => a.total_cmp(&b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => Ordering::Equal,
            }
        };
        match (sort.column, sort.is_descending) {
            (0, false) => self.rows.sort_by(|a, b| a.name.cmp(&b.name)),
            (0, true) => self.rows.sort_by(|a, b| b.name.cmp(&a.name)),
            // Stable, so that equal rows keep the order of the table.
            _ => self.rows.sort_by(by_value),
        }
    }

    /// The head, and a line for each row from `first` on.
    pub fn lines(&self, sort: Sort, width: usize, first: usize) -> Vec<Line<'static>> {
        if self.rows.is_empty() {
            return vec![Line::raw(self.empty.clone())];
        }
        let shown = self.fitting(sort.column, width);
        let widths: Vec<usize> = shown.iter().map(|&column| self.column_width(column)).collect();
        let taken: usize = widths.iter().map(|width| width + GAP).sum();
        let longest = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let longest = longest.max(self.name.chars().count() + 2);
        let name = longest.min(width.saturating_sub(taken));
        let bar = width.saturating_sub(taken + name + GAP).min(MAX_BAR);
        let bar = if bar < MIN_BAR || sort.column == 0 { 0 } else { bar };
        let mut lines = vec![self.head(sort, &shown, &widths, name)];
        let max = self.rows.iter().filter_map(|row| order(row, sort.column)).fold(0.0, f64::max);
        lines.extend(self.rows.iter().skip(first).map(|row| {
            let mut text = fitted(&row.name, name);
            for (&column, &width) in shown.iter().zip(&widths) {
                let cell = row.cells.get(column - 1).map_or(UNKNOWN, |cell| &cell.text);
                text.push_str(&format!("{:GAP$}{cell:>width$}", ""));
            }
            let mut spans = vec![Span::raw(text)];
            if let Some(value) = order(row, sort.column).filter(|_| bar > 0 && max > 0.0) {
                spans.push(Span::raw(" ".repeat(GAP)));
                let filled = gauge(value / max, bar).replace('░', "");
                spans.push(Span::styled(filled, Style::new().fg(Color::Cyan)));
            }
            Line::from(spans)
        }));
        lines
    }

    fn head(&self, sort: Sort, shown: &[usize], widths: &[usize], name: usize) -> Line<'static> {
        let dim = Style::new().add_modifier(Modifier::DIM);
        let chosen = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        let style = |column| if column == sort.column { chosen } else { dim };
        let title = |column: usize, text: &str| match (column == sort.column, sort.is_descending) {
            (false, _) => text.to_owned(),
            (true, true) => format!("{text} v"),
            (true, false) => format!("{text} ^"),
        };
        let mut spans = vec![Span::styled(fitted(&title(0, self.name), name), style(0))];
        for (&column, &width) in shown.iter().zip(widths) {
            let text = title(column, self.columns[column - 1]);
            spans.push(Span::raw(" ".repeat((GAP + width).saturating_sub(text.chars().count()))));
            spans.push(Span::styled(text, style(column)));
        }
        Line::from(spans)
    }

    /// The columns that fit beside the name.
    fn fitting(&self, sorted: usize, width: usize) -> Vec<usize> {
        let mut left = width.saturating_sub(MIN_NAME);
        let mut shown: Vec<usize> = Vec::new();
        let others = (1..=self.columns.len()).filter(|column| *column != sorted);
        // The sorted column first: it is never the one that is left out.
        for column in (1..=self.columns.len()).filter(|column| *column == sorted).chain(others) {
            let needed = self.column_width(column) + GAP;
            match left.checked_sub(needed) {
                Some(rest) => left = rest,
                None if column == sorted => left = 0,
                None => break,
            }
            shown.push(column);
        }
        shown.sort_unstable();
        shown
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.cells.get(column - 1));
        let longest = cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0);
        // The mark of the sorted column has its place in each, so that sorting moves nothing.
        longest.max(self.columns[column - 1].chars().count() + 2)
    }
}

fn order(row: &Row, column: usize) -> Option<f64> {
    row.cells.get(column.checked_sub(1)?)?.order
}

/// Cut or filled up to a width; a cut is marked.
fn fitted(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => format!("{text:<width$}"),
        false => {
            let kept: String = text.chars().take(width.saturating_sub(1)).collect();
            let mark = if width > 0 { "~" } else { "" };
            format!("{kept}{mark}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |name: &str, values: [Option<f64>; 3]| Row {
            name: name.to_owned(),
            cells: values
                .into_iter()
                .map(|value| TableCell::new(value, value.map_or("-".to_owned(), |value| format!("{value}"))))
                .collect(),
        };
        Table {
            name: "key",
            columns: vec!["share", "gets", "p99"],
            rows: vec![
                row("b-with-a-long-name", [Some(1.0), None, Some(7.0)]),
                row("a", [Some(3.0), Some(5.0), Some(2.0)]),
                row("c", [Some(2.0), Some(6.0), Some(9.0)]),
            ],
            empty: "nothing".to_owned(),
        }
    }

    fn text(table: &Table, sort: Sort, width: usize) -> Vec<String> {
        let line = |line: Line<'_>| line.spans.iter().map(|span| span.content.as_ref()).collect::<String>();
        table.lines(sort, width, 0).into_iter().map(|one| line(one).trim_end().to_owned()).collect()
    }

    #[test]
    fn rows_are_sorted_with_unknown_values_last() {
        for (sort, names) in [
            (Sort::by(1), ["a", "c", "b"]),
            (Sort::by(2), ["c", "a", "b"]),
            (Sort { column: 2, is_descending: false }, ["a", "c", "b"]),
            (Sort::by(0), ["a", "b", "c"]),
        ] {
            let mut table = table();
            table.sort(sort);
            let found: Vec<_> = table.rows.iter().map(|row| &row.name[..1]).collect();
            assert_eq!(found, names, "{sort:?}");
        }
    }

    #[test]
    fn a_narrow_terminal_keeps_the_sorted_column() {
        for width in [1, 8, 14, 20, 40, 200] {
            for line in text(&table(), Sort::by(3), width) {
                assert!(line.chars().count() <= width.max(7), "{width}: {line}");
            }
        }
        let narrow = text(&table(), Sort::by(3), 20);
        assert_eq!(narrow[0], "key            p99 v");
        assert!(narrow[1].starts_with("b-with-a-lon~"), "{narrow:?}");
        assert!(text(&table(), Sort::by(3), 80)[3].contains("█"), "a wide one has bars");
    }

    #[test]
    fn an_empty_table_says_why() {
        let empty = Table { rows: Vec::new(), ..table() };
        assert_eq!(text(&empty, Sort::by(1), 20), ["nothing"]);
    }
}

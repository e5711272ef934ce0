//! "Did you mean": the known word that is nearest to an unknown one.

/// The nearest of the known words, if few letters differ: a third of them, at most three.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (word.chars().count() / 3).clamp(1, 3);
    let candidates = known.into_iter().map(|other| (distance(word, other), other));
    let (found, other) = candidates.min_by_key(|(distance, _)| *distance)?;
    (found <= max_distance).then_some(other)
}

/// The end of a message about an unknown word: empty, or the known word that is nearest.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |other| format!("; did you mean {other}?"))
}

/// Letters to insert, remove or replace (Levenshtein), with two neighbours in the wrong order as one.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for row in 1..=one.len() {
        let mut current = vec![row; other.len() + 1];
        for column in 1..=other.len() {
            let differs = usize::from(one[row - 1] != other[column - 1]);
            let before = &rows[row - 1];
            let edits = [before[column] + 1, current[column - 1] + 1, before[column - 1] + differs];
            current[column] = edits.into_iter().min().expect("three edits");
            let is_swap =
                row > 1 && column > 1 && one[row - 1] == other[column - 2] && one[row - 2] == other[column - 1];
            if is_swap && differs == 1 {
                current[column] = current[column].min(rows[row - 2][column - 2] + 1);
            }
        }
        rows.push(current);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["memory-limit", "max-item-size", "port", "replay"];
        assert_eq!(nearest("memroy-limit", known), Some("memory-limit"));
        assert_eq!(nearest("relpay", known), Some("replay"));
        assert_eq!(nearest("prt", known), Some("port"));
        for far in ["frob", "xyz", "", "memory"] {
            assert_eq!(nearest(far, known), None, "{far}");
        }
        assert_eq!(hint("replai", known), "; did you mean replay?");
        assert_eq!(hint("frobnicate", known), "");
    }
}

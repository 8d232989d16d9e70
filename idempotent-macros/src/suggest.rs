//! "Did you mean": the known name nearest to a misspelt one.

/// The one of `known` that a typing mistake most likely made into `word`.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        // One slip in three letters still looks like the word, more does not.
        .filter(|(slips, candidate)| *slips <= candidate.chars().count().div_ceil(3).min(word.chars().count() / 2))
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words (optimal string alignment).
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    // `rows[r][c]` is the distance between the first `r` letters of one word and the first `c` of the other.
    let mut rows: Vec<Vec<usize>> = (0..=left.len()).map(|row| (row..=row + right.len()).collect()).collect();
    for row in 1..=left.len() {
        for column in 1..=right.len() {
            let replaced = rows[row - 1][column - 1] + usize::from(left[row - 1] != right[column - 1]);
            let mut best = replaced.min(rows[row - 1][column] + 1).min(rows[row][column - 1] + 1);
            let swapped =
                row > 1 && column > 1 && left[row - 1] == right[column - 2] && left[row - 2] == right[column - 1];
            if swapped {
                best = best.min(rows[row - 2][column - 2] + 1);
            }
            rows[row][column] = best;
        }
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    const NAMES: [&str; 5] = ["key", "consumer", "sender", "retention", "horizon"];

    #[test]
    fn a_slip_finds_the_name() {
        assert_eq!(nearest("ky", NAMES), Some("key"));
        assert_eq!(nearest("kye", NAMES), Some("key"));
        assert_eq!(nearest("keys", NAMES), Some("key"));
        assert_eq!(nearest("comsumer", NAMES), Some("consumer"));
        assert_eq!(nearest("retain", NAMES), None);
        assert_eq!(nearest("retension", NAMES), Some("retention"));
        assert_eq!(nearest("sendr", NAMES), Some("sender"));
    }

    #[test]
    fn another_word_finds_nothing() {
        assert_eq!(nearest("table", NAMES), None);
        assert_eq!(nearest("x", NAMES), None);
        assert_eq!(nearest("", NAMES), None);
    }

    #[test]
    fn swapped_neighbours_are_one_slip() {
        assert_eq!(distance("sedner", "sender"), 1);
        assert_eq!(distance("", "key"), 3);
        assert_eq!(distance("key", "key"), 0);
    }
}

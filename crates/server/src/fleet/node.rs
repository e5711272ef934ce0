//! State of one node, and the row that the page shows.

use serde_json::{Value, json};

/// Answers that are kept: rates are of the time from the oldest to the newest.
const KEPT: usize = 10;

pub struct Node {
    pub name: String,
    /// The latest answers, oldest first.
    answers: Vec<Value>,
    answered_unix_ms: Option<u64>,
    /// Why the node is silent; none while it answers.
    error: Option<String>,
}

impl Node {
    pub fn new(name: &str) -> Self {
        let error = Some("not asked yet".to_owned());
        Self { name: name.to_owned(), answers: Vec::new(), answered_unix_ms: None, error }
    }

    /// Takes an answer of `/api/overview`.
    pub fn take(&mut self, overview: Value, now_unix_ms: u64) {
        let has_restarted = |before: &Value| before["started_unix_ms"] != overview["started_unix_ms"];
        if self.answers.last().is_some_and(has_restarted) {
            self.answers.clear();
        }
        if self.answers.len() == KEPT {
            self.answers.remove(0);
        }
        self.answers.push(overview);
        (self.answered_unix_ms, self.error) = (Some(now_unix_ms), None);
    }

    /// The node did not answer. What it said before stays.
    pub fn miss(&mut self, reason: String) {
        self.error = Some(reason);
    }

    pub fn row(&self) -> Value {
        let newest = self.answers.last().unwrap_or(&Value::Null);
        let oldest = self.answers.first().unwrap_or(&Value::Null);
        let number = |overview: &Value, path: &str| overview.pointer(path).and_then(Value::as_f64);
        let seconds =
            (number(newest, "/time_unix_ms").unwrap_or(0.0) - number(oldest, "/time_unix_ms").unwrap_or(0.0)) / 1e3;
        let since = |path: &str| Some(number(newest, path)? - number(oldest, path)?).filter(|_| seconds > 0.0);
        let (hits, misses) = (since("/commands/get/hits"), since("/commands/get/misses"));
        let gets = hits.zip(misses).map(|(hits, misses)| hits + misses);
        json!({
            "node": self.name,
            "error": self.error,
            "answered_unix_ms": self.answered_unix_ms,
            "level": newest.pointer("/headline/level"),
            "sentence": newest.pointer("/headline/sentence"),
            "hit_ratio": hits.zip(gets).filter(|(_, gets)| *gets > 0.0).map(|(hits, gets)| hits / gets),
            "gets_per_second": gets.map(|gets| gets / seconds),
            "evictions_per_second": since("/evictions/total").map(|evictions| evictions / seconds),
            "items": newest.get("items"),
            "used_bytes": newest.pointer("/memory/used_bytes"),
            "limit_bytes": newest.pointer("/memory/limit_bytes"),
            "connections": newest.pointer("/connections/open"),
            "version": newest.get("version"),
        })
    }
}

/// How uneven the nodes that answer are: the largest over the mean, 1 where all are alike.
pub fn skew(rows: &[Value]) -> Value {
    let of = |field: &str| {
        let numbers: Vec<f64> =
            rows.iter().filter(|row| row["error"].is_null()).filter_map(|row| row[field].as_f64()).collect();
        let sum: f64 = numbers.iter().sum();
        let largest = numbers.iter().copied().fold(0.0, f64::max);
        (numbers.len() > 1 && sum > 0.0).then(|| largest * numbers.len() as f64 / sum)
    };
    json!({ "gets": of("gets_per_second"), "items": of("items"), "used_bytes": of("used_bytes") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overview(second: u64, hits: u64, misses: u64) -> Value {
        json!({
            "time_unix_ms": second * 1000, "started_unix_ms": 5, "items": 7,
            "commands": { "get": { "hits": hits, "misses": misses } },
            "headline": { "level": "good", "sentence": "fine" },
        })
    }

    #[test]
    fn rates_are_between_answers_and_a_silent_node_keeps_its_last() {
        let mut node = Node::new("a:1");
        assert_eq!((&node.row()["error"], &node.row()["hit_ratio"]), (&json!("not asked yet"), &Value::Null));
        node.take(overview(10, 100, 0), 1);
        assert_eq!(node.row()["gets_per_second"], Value::Null);
        node.take(overview(12, 130, 10), 2);
        let row = node.row();
        assert_eq!((row["gets_per_second"].as_f64(), row["hit_ratio"].as_f64()), (Some(20.0), Some(0.75)));
        node.miss("no answer within 3 s".to_owned());
        let row = node.row();
        assert_eq!((&row["error"], &row["items"]), (&json!("no answer within 3 s"), &json!(7)));
        assert_eq!(row["answered_unix_ms"], 2);
    }

    #[test]
    fn a_restarted_node_has_no_rates_from_before() {
        let mut node = Node::new("a:1");
        node.take(overview(10, 1000, 500), 1);
        let restarted = |second, hits| {
            let mut answer = overview(second, hits, 0);
            answer["started_unix_ms"] = json!(9000);
            answer
        };
        node.take(restarted(12, 3), 2);
        assert_eq!(node.row()["gets_per_second"], Value::Null);
        node.take(restarted(14, 7), 3);
        assert_eq!(node.row()["gets_per_second"].as_f64(), Some(2.0));
    }

    #[test]
    fn answers_are_kept_for_a_bounded_time_and_an_answer_ends_the_silence() {
        let mut node = Node::new("a:1");
        node.miss("no answer within 3 s".to_owned());
        for second in 0..100 {
            node.take(overview(second, second * second, 0), second);
        }
        assert_eq!((node.answers.len(), &node.row()["error"]), (KEPT, &Value::Null));
        // From second 90 to 99.
        assert_eq!(node.row()["gets_per_second"].as_f64(), Some(189.0));
    }

    #[test]
    fn skew_is_the_largest_over_the_mean_of_those_that_answer() {
        let row = |items: u64, error: Value| json!({ "items": items, "error": error });
        let rows = [row(10, Value::Null), row(30, Value::Null), row(1000, json!("silent"))];
        assert_eq!(skew(&rows)["items"], 1.5);
        assert_eq!(skew(&rows[..1])["items"], Value::Null);
    }
}

//! State of one node, and the row that the page shows.

use serde_json::{Value, json};

pub struct Node {
    pub name: String,
    /// The latest answer; null before there is one.
    answer: Value,
    answered_unix_ms: Option<u64>,
    /// Why the node is silent; none while it answers.
    error: Option<String>,
}

impl Node {
    pub fn new(name: &str) -> Self {
        let error = Some("not asked yet".to_owned());
        Self { name: name.to_owned(), answer: Value::Null, answered_unix_ms: None, error }
    }

    /// Takes an answer of `/api/overview`.
    pub fn take(&mut self, overview: Value, now_unix_ms: u64) {
        self.answer = overview;
        (self.answered_unix_ms, self.error) = (Some(now_unix_ms), None);
    }

    /// Records that the node did not answer. Its last numbers stay.
    pub fn miss(&mut self, reason: String) {
        self.error = Some(reason);
    }

    pub fn row(&self) -> Value {
        let Self { answer, .. } = self;
        json!({
            "node": self.name,
            "error": self.error,
            "answered_unix_ms": self.answered_unix_ms,
            "level": answer.pointer("/headline/level"),
            "sentence": answer.pointer("/headline/sentence"),
            "hit_ratio": answer.pointer("/now/hit_ratio"),
            "gets_per_second": answer.pointer("/now/commands_per_second/get"),
            "evictions_per_second": answer.pointer("/now/evictions_per_second/all"),
            "items": answer.get("items"),
            "used_bytes": answer.pointer("/memory/used_bytes"),
            "limit_bytes": answer.pointer("/memory/limit_bytes"),
            "connections": answer.pointer("/connections/open"),
            "version": answer.get("version"),
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

    #[test]
    fn rows_show_current_numbers_silent_nodes_the_last() {
        let mut node = Node::new("a:1");
        assert_eq!((&node.row()["error"], &node.row()["hit_ratio"]), (&json!("not asked yet"), &Value::Null));
        let now = json!({ "hit_ratio": 0.75, "commands_per_second": { "get": 20.0 }, "evictions_per_second": { "all": 3.0 } });
        node.take(json!({ "items": 7, "now": now, "headline": { "level": "good", "sentence": "fine" } }), 2);
        let row = node.row();
        assert_eq!((row["gets_per_second"].as_f64(), row["hit_ratio"].as_f64()), (Some(20.0), Some(0.75)));
        assert_eq!((row["evictions_per_second"].as_f64(), &row["sentence"]), (Some(3.0), &json!("fine")));
        node.miss("no answer within 3 s".to_owned());
        let row = node.row();
        assert_eq!((&row["error"], &row["items"]), (&json!("no answer within 3 s"), &json!(7)));
        assert_eq!(row["answered_unix_ms"], 2);
        node.take(json!({ "items": 8 }), 5);
        let row = node.row();
        assert_eq!((&row["error"], &row["items"], &row["hit_ratio"]), (&Value::Null, &json!(8), &Value::Null));
    }

    #[test]
    fn skew_is_max_over_mean_of_answering_nodes() {
        let row = |items: u64, error: Value| json!({ "items": items, "error": error });
        let rows = [row(10, Value::Null), row(30, Value::Null), row(1000, json!("silent"))];
        assert_eq!(skew(&rows)["items"], 1.5);
        assert_eq!(skew(&rows[..1])["items"], Value::Null);
    }
}

//! Conditional requests: RFC 9110, section 13, for the validators of a response in the cache.

use hyper::header::{ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED};

fn text(headers: &HeaderMap, name: impl hyper::header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn opaque(tag: &str) -> &str {
    let tag = tag.trim();
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Whether the client has the response already: the answer is 304.
pub fn is_not_modified(request: &HeaderMap, response: &HeaderMap) -> bool {
    if request.contains_key(IF_NONE_MATCH) {
        let lists = request.get_all(IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
        return lists
            .flat_map(|list| list.split(','))
            .any(|tag| tag.trim() == "*" || text(response, ETAG).is_some_and(|stored| opaque(stored) == opaque(tag)));
    }
    let since = text(request, IF_MODIFIED_SINCE);
    since.is_some() && since == text(response, LAST_MODIFIED)
}

/// Whether `Range` counts: without `If-Range`, or if it names the response in the cache.
pub fn range_counts(request: &HeaderMap, response: &HeaderMap) -> bool {
    if !request.contains_key(IF_RANGE) {
        return true;
    }
    let Some(named) = text(request, IF_RANGE) else { return false };
    strong_tag(response) == Some(named) || text(response, LAST_MODIFIED) == Some(named)
}

/// A tag that is equal only for equal bytes.
pub fn strong_tag(response: &HeaderMap) -> Option<&str> {
    text(response, ETAG).filter(|tag| tag.starts_with('"'))
}

/// Whether two responses have the same bytes, as far as their validators say.
pub fn is_same(one: &HeaderMap, other: &HeaderMap) -> bool {
    match (strong_tag(one), strong_tag(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.contains_key(LAST_MODIFIED) && one.get(LAST_MODIFIED) == other.get(LAST_MODIFIED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn tags_are_compared_weakly_for_304() {
        for (condition, tag, expected) in [
            ("\"a\"", "\"a\"", true),
            ("W/\"a\"", "\"a\"", true),
            ("\"a\"", "W/\"a\"", true),
            ("\"b\", \"a\"", "\"a\"", true),
            ("*", "\"a\"", true),
            ("\"b\"", "\"a\"", false),
        ] {
            let found = is_not_modified(&headers("if-none-match", condition), &headers("etag", tag));
            assert_eq!(found, expected, "{condition} {tag}");
        }
        let date = "Thu, 01 Jan 2026 00:00:00 GMT";
        assert!(is_not_modified(&headers("if-modified-since", date), &headers("last-modified", date)));
        assert!(!is_not_modified(&HeaderMap::new(), &HeaderMap::new()));
    }

    #[test]
    fn a_range_needs_a_strong_tag() {
        for (condition, tag, expected) in
            [("\"a\"", "\"a\"", true), ("W/\"a\"", "W/\"a\"", false), ("\"b\"", "\"a\"", false)]
        {
            assert_eq!(range_counts(&headers("if-range", condition), &headers("etag", tag)), expected, "{condition}");
        }
        assert!(range_counts(&HeaderMap::new(), &headers("etag", "\"a\"")));
        assert!(is_same(&headers("etag", "\"a\""), &headers("etag", "\"a\"")));
        assert!(!is_same(&headers("etag", "W/\"a\""), &headers("etag", "W/\"a\"")));
        assert!(!is_same(&HeaderMap::new(), &HeaderMap::new()));
    }
}

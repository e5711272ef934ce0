//! The dashboard: one page with its style and its script inside, joined from the files in `dashboard/`.
//!
//! The page shows keys and other text from clients, and inserts them as text only. The policy in its header restricts
//! the browser to the page's own script and style, identified by a nonce of each answer, and to connections with this
//! server.

use std::hash::{BuildHasher, Hasher, RandomState};

use axum::http::header;
use axum::response::{Html, IntoResponse};

const PAGE: &str = include_str!("dashboard/index.html");
const STYLE: &str = include_str!("dashboard/style.css");
/// In this order; they share one scope.
const SCRIPT: &str = concat!(
    include_str!("dashboard/format.js"),
    include_str!("dashboard/chart.js"),
    include_str!("dashboard/page.js"),
    include_str!("dashboard/keys.js"),
    include_str!("dashboard/browse.js"),
    include_str!("dashboard/flash.js"),
    include_str!("dashboard/curve.js"),
    include_str!("dashboard/live.js"),
);

/// `/`.
pub async fn page() -> impl IntoResponse {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [(header::CONTENT_SECURITY_POLICY, policy), (header::REFERRER_POLICY, "no-referrer".to_string())];
    (headers, Html(render(&nonce)))
}

fn render(nonce: &str) -> String {
    PAGE.replace("{{nonce}}", nonce).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT)
}

/// The standard library seeds its hashers from the system's random numbers.
pub fn nonce() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_complete_without_outside_resources() {
        let page = render("n0nce");
        assert!(!page.contains("{{"), "a part is missing");
        assert_eq!(page.matches(" nonce=\"n0nce\"").count(), 2);
        // Another closing tag would end the script or the style early.
        assert_eq!((page.matches("</script").count(), page.matches("</style").count()), (1, 1));
        for outside in [" src=", "url(", "@import", "import(", "https:", "innerHTML", "eval("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn each_answer_has_a_number_of_its_own() {
        let nonces: Vec<String> = (0..100).map(|_| nonce()).collect();
        assert!(nonces.iter().all(|nonce| nonce.len() == 32));
        let distinct: std::collections::HashSet<_> = nonces.iter().collect();
        assert_eq!(distinct.len(), nonces.len());
    }
}

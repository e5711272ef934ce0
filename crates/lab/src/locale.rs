//! The character set of the terminal, by the locale.

/// Whether the terminal takes UTF-8: the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set decides.
pub fn takes_utf8() -> bool {
    let value = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

//! The seeds of the fuzz targets hold on every run of the tests.

use std::path::Path;

/// Gives each seed of a target to `check`.
fn each(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).expect("a folder of seeds") {
        let path = entry.expect("a readable folder").path();
        check(&std::fs::read(&path).expect("a readable seed"));
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds in {}", folder.display());
}

#[test]
fn binary() {
    each("binary", crate::binary::check);
}

#[test]
fn image() {
    each("image", crate::image::check);
}

#[cfg(feature = "memory-file")]
#[test]
fn memory_file() {
    each("memory_file", crate::memory_file::check);
}

#[test]
fn meta() {
    each("meta", crate::meta::check);
}

#[test]
fn text() {
    each("text", crate::text::check);
}

#[cfg(feature = "trace")]
#[test]
fn trace() {
    each("trace", crate::trace::check);
}

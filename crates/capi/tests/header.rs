//! The header that is committed is the one that the functions give.

use std::path::Path;

#[test]
fn the_header_follows_the_functions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let made = folder.join("../../target/ebbtide.h");
    cbindgen::Builder::new().with_crate(folder).with_config(config).generate().unwrap().write_to_file(&made);
    let (made_text, kept) = (std::fs::read_to_string(&made), std::fs::read_to_string(folder.join("include/ebbtide.h")));
    let remedy = "copy target/ebbtide.h to crates/capi/include/ebbtide.h";
    assert_eq!(made_text.unwrap(), kept.unwrap_or_default(), "{remedy}");
}

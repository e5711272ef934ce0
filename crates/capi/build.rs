//! Gives the shared library its SONAME, `libebbtide_c.so.MAJOR`; before version 1 `libebbtide_c.so.0.MINOR`, as each of
//! these may change the interface. `install.sh` installs it by this name.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        let part = |name: &str| var(format!("CARGO_PKG_VERSION_{name}")).expect("cargo sets the version");
        let interface = match part("MAJOR") {
            zero if zero == "0" => format!("0.{}", part("MINOR")),
            major => major,
        };
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libebbtide_c.so.{interface}");
    }
}

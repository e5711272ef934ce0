//! Filesystems of a test, mounted in a namespace of their own.

use std::env;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::Command;

/// In a process that runs a test by itself, where its filesystem is mounted.
const MOUNTED: &str = "EBBTIDE_TEST_MOUNTED";

/// Runs the rest of a test on a new filesystem: the test's process starts itself in a namespace of its own, with this
/// test alone. Where the system allows no such namespace, as in some containers, the test prints that and does not run.
pub fn run(test: &str, kind: &str, options: &str, body: impl FnOnce(&Path)) {
    if let Some(directory) = env::var_os(MOUNTED) {
        return body(Path::new(&directory));
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command
    };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mount = format!("mount -t {kind} -o {options} none \"${MOUNTED}\"");
    let tried = unshare().arg(&mount).env(MOUNTED, directory.path()).output();
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        // Not by `eprintln`, which is shown for tests that fail.
        let _ = writeln!(stderr(), "not tested: {test}: {kind} cannot be mounted here");
        return;
    }
    let script = format!("{mount} && exec \"$0\" --exact {test}");
    let output = unshare()
        .arg(script)
        .arg(env::current_exe().unwrap())
        .env(MOUNTED, directory.path())
        .output()
        .expect("it was there a moment ago");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

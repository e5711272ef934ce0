//! C and C++ programs, compiled by the system's compilers against both libraries, and run under valgrind.

use std::path::{Path, PathBuf};
use std::process::Command;

/// System libraries that a static library of Rust needs.
const SYSTEM_LIBRARIES: [&str; 4] = ["-lm", "-lpthread", "-ldl", "-lgcc_s"];

/// The folder that cargo has put the libraries into.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().expect("tests lie in a folder").to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Compiles an example with a library, and runs it under valgrind.
fn compiled(compiler: &str, example: &str, shared: bool, arguments: &[&Path]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("program");
    let mut compile = Command::new(compiler);
    compile.args(["-Wall", "-Wextra", "-Werror", "-g", "-o"]).arg(&program).arg(folder.join("examples").join(example));
    compile.arg("-I").arg(folder.join("include"));
    if shared {
        compile.arg("-L").arg(libraries()).arg("-lebbtide_c").arg(format!("-Wl,-rpath,{}", libraries().display()));
    } else {
        compile.arg(libraries().join("libebbtide_c.a")).args(SYSTEM_LIBRARIES);
    }
    run(&mut compile);
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--quiet",
        "--fair-sched=yes",
        "--error-exitcode=9",
        "--show-leak-kinds=definite",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ]);
    run(valgrind.arg(&program).args(arguments))
}

#[test]
fn a_c_program_runs_clean_with_the_shared_library() {
    let scratch = tempfile::tempdir().unwrap();
    let out = compiled("cc", "cache.c", true, &[&scratch.path().join("memory")]);
    assert_eq!(out, "everything holds\n");
}

#[test]
fn a_c_program_runs_clean_with_the_static_library() {
    let scratch = tempfile::tempdir().unwrap();
    let out = compiled("cc", "cache.c", false, &[&scratch.path().join("memory")]);
    assert_eq!(out, "everything holds\n");
}

#[test]
fn collections_of_a_c_program_run_clean() {
    assert_eq!(compiled("cc", "collections.c", true, &[]), "everything holds\n");
}

#[test]
fn threads_of_a_cpp_program_share_a_cache() {
    let out = compiled("c++", "threads.cpp", true, &[]);
    assert_eq!(out, "every increment was counted\n");
}

#[test]
fn pkg_config_finds_the_installed_library() {
    let (folder, prefix) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().unwrap());
    run(Command::new(folder.join("install.sh")).arg(prefix.path()).arg(libraries()));
    let found = prefix.path().join("lib/pkgconfig");
    let flags = run(Command::new("pkg-config").args(["--cflags", "--libs", "ebbtide"]).env("PKG_CONFIG_PATH", found));
    let program = prefix.path().join("program");
    run(Command::new("cc").arg("-o").arg(&program).arg(folder.join("examples/cache.c")).args(flags.split_whitespace()));
    let memory = prefix.path().join("memory");
    let out = run(Command::new(&program).arg(memory).env("LD_LIBRARY_PATH", prefix.path().join("lib")));
    assert_eq!(out, "everything holds\n");
}

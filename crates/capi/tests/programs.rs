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

/// The name by which programs look for the shared library.
fn soname() -> &'static str {
    match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => concat!("libebbtide_c.so.0.", env!("CARGO_PKG_VERSION_MINOR")),
        _ => concat!("libebbtide_c.so.", env!("CARGO_PKG_VERSION_MAJOR")),
    }
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
        std::os::unix::fs::symlink(libraries().join("libebbtide_c.so"), scratch.path().join(soname())).unwrap();
        compile.arg("-L").arg(libraries()).arg("-lebbtide_c").arg(format!("-Wl,-rpath,{}", scratch.path().display()));
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
fn a_c_program_runs_with_the_shared_library() {
    let scratch = tempfile::tempdir().unwrap();
    let out = compiled("cc", "cache.c", true, &[&scratch.path().join("memory")]);
    assert_eq!(out, "everything holds\n");
}

#[test]
fn a_c_program_runs_with_the_static_library() {
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

/// The first block of code of a language in the README.
fn block(readme: &str, language: &str) -> String {
    let (_, rest) = readme.split_once(&format!("```{language}\n")).expect("a block of this language");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn the_readmes_commands_build_its_program() {
    let (folder, prefix) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().unwrap());
    run(Command::new(folder.join("install.sh")).arg(prefix.path()).arg(libraries()));
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    std::fs::write(prefix.path().join("program.c"), block(&readme, "c")).unwrap();
    let commands = block(&readme, "sh");
    let compile = commands.lines().find(|line| line.starts_with("cc ")).expect("a compiler's command");
    // A linker that takes libraries only for inputs before them, as those of some distributions do.
    let compile = compile.replacen("cc ", "cc -Wall -Wextra -Werror -Wl,--as-needed ", 1);
    let found = prefix.path().join("lib/pkgconfig");
    run(Command::new("sh").args(["-c", &compile]).env("PKG_CONFIG_PATH", found).current_dir(prefix.path()));
    let library = prefix.path().join("lib");
    let mut program = Command::new(prefix.path().join("program"));
    assert_eq!(run(program.env("LD_LIBRARY_PATH", &library)), "Ada\n");
    let tags = run(Command::new("readelf").arg("-d").arg(library.join("libebbtide_c.so")));
    assert!(tags.contains(&format!("Library soname: [{}]", soname())), "{tags}");
}

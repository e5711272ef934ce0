#!/usr/bin/env python3
"""Lines of code of each crate, or of the folders or files of one: no blank lines, comments, unit tests, or files of
tests. In crates/flash the devices for tests count apart.

    scripts/code_lines.py                              by crate
    scripts/code_lines.py crates/flash                 by folder
    scripts/code_lines.py crates/flash device/drive.rs device/amplification.rs      of these files
"""

import re
import sys
from collections import Counter
from pathlib import Path

CRATES = Path(__file__).resolve().parent.parent / "crates"
TEST = r"#\[cfg\((?:test|all\(test.*)\)\]\n"
UNIT_TESTS = re.compile(rf"^{TEST}(?:#\[.*\]\n)*mod \w+ \{{", re.MULTILINE)
TEST_FILE = re.compile(rf"^{TEST}(?:#\[.*\]\n)*(?:pub(?:\(\w+\))? )?mod (\w+);", re.MULTILINE)


def module_folder(file: Path) -> Path:
    """The folder of the modules that a file declares."""
    return file.parent if file.name in ("lib.rs", "main.rs", "mod.rs") else file.with_suffix("")


def lines_of_code(text: str) -> int:
    text = TEST_FILE.sub("", text)
    tests = UNIT_TESTS.search(text)
    lines = (line.strip() for line in text[: tests.start() if tests else None].splitlines())
    return sum(1 for line in lines if line and not line.startswith("//"))


def files_of(crate: Path) -> dict[str, int]:
    source = crate / "src"
    texts = {file: file.read_text() for file in sorted(source.rglob("*.rs"))}
    tests = {module_folder(file) / name for file, text in texts.items() for name in TEST_FILE.findall(text)}
    is_test = lambda file: any(test in (file.with_suffix(""), *file.parents) for test in tests)
    return {str(file.relative_to(source)): lines_of_code(text) for file, text in texts.items() if not is_test(file)}


def folder_of(file: str) -> str:
    parts = file.split("/")
    return "test_devices" if "test_devices" in parts else parts[0] if len(parts) > 1 else "others"


def main() -> None:
    if len(sys.argv) == 1:
        for crate in sorted(CRATES.iterdir()):
            print(f"{sum(files_of(crate).values()):7,} {crate.name}")
        return
    files = files_of(Path(sys.argv[1]).resolve())
    counts = Counter()
    for file, lines in files.items():
        if len(sys.argv) == 2:
            counts[folder_of(file)] += lines
        elif file in sys.argv[2:]:
            counts[file] = lines
    for name, lines in counts.items():
        print(f"{lines:7,} {name}")
    print(f"{sum(counts.values()):7,} in all")


if __name__ == "__main__":
    main()

# make run: build the server and start it on port 11211.  make test: install what the tests need, then run them all.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Debian packages that the tests use: the server to compare with, its conformance tool, what builds the clients and
# the programs in C and checks them, and a browser for the dashboard.
DEBIAN := memcached openssl systemd libmemcached-tools libmemcached-dev zlib1g-dev python3-dev python3-venv gcc g++ libc6-dev valgrind pkg-config \
    libcache-memcached-fast-perl nutcracker curl php-cli php-memcached chromium chromium-driver sasl2-bin libsasl2-modules
# The database of an example, what checks the Debian package, and what checks metrics and alert rules: where one cannot
# be installed its tests are skipped, and say so.
OPTIONAL := postgresql lintian prometheus
# Debian has no Helm: `make helm` builds it from source, which takes minutes. Without it the chart's test is skipped.
HELM := 3.19.0
HELM_BIN := $(CURDIR)/target/helm
# What reads a client's bytes, an image of a store or a memory file, how long each is fuzzed, and the fuzzer's version.
FUZZ := text meta binary image memory_file trace
# The same for all of them: each crate is built once.
FUZZ_FEATURES := --no-default-features --features memory-file,trace
FUZZ_SECONDS := 20
FUZZ_SANITIZER := none
CARGO_FUZZ := 0.13.2
VENV := .venv
PYTHON := $(VENV)/bin/python
# The server that the tests in Python run: that of `cargo test`, with its assertions.
TESTED := $(CURDIR)/target/debug/ebbtide
# Optimized like a release, without the optimization of the whole program, which takes most of the time of a build.
NO_LTO := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
# Fuzzers run for seconds and take minutes to build: fewer optimizations, and no line tables.
FUZZ_PROFILE := $(NO_LTO) CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=false
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Started by root, the server gives root up.
RUN_USER := $(shell [ "$$(id -u)" != 0 ] || echo -u nobody)
FLAGS :=

.PHONY: help build tested run test terabyte soak tools components helm check unit unit-inside unit-outside loom conformance clients \
    python sanitized-python fuzz sanitized miri deb package upgrade clean

help:
	@echo "make run          build and start the server on port 11211 (FLAGS='-m 1024 -p 11311' for others)"
	@echo "make test         install what the tests need, then run them all"
	@echo "make check        formatting, lints, tidy"
	@echo "make unit         the Rust tests"
	@echo "make loom         the concurrency models"
	@echo "make conformance  the server beside memcached"
	@echo "make clients      client libraries of six languages, on memcached and on the server"
	@echo "make python       the Python package"
	@echo "make sanitized-python  the Python package under valgrind: minutes"
	@echo "make deb          the Debian package, in target/debian"
	@echo "make fuzz         parsers, traces, images of stores and memory files against random bytes (FUZZ_SECONDS=20 each)"
	@echo "make sanitized    images of stores and memory files with the address sanitizer (FUZZ_SECONDS=20 each)"
	@echo "make helm         Helm, with which the tests check the chart, too (needs Go)"
	@echo "make miri         formats and arithmetic of the store under Miri"
	@echo "make package      what crates.io would get of each published crate, without an upload"
	@echo "make terabyte     a terabyte of flash, simulated: filled, turned over, killed (SCALE=64: one of 64 parts)"
	@echo "make upgrade      upgrade and rollback between two builds that differ in their version: minutes"
	@echo "make soak         the random tests at full length: hours"

build:
	cargo build --release --locked --package ebbtide-cli

# All that `cargo test` runs, the server among it. A build of the server alone would build its crates once more, with
# fewer features of what they depend on.
tested:
	cargo test --workspace --locked --no-run

run: build
	exec ./target/release/ebbtide $(RUN_USER) $(FLAGS)

# What computes runs beside what mostly waits: loom beside the tests of the interfaces, all else beside conformance.
test:
	$(MAKE) -j2 -Otarget tools check
	$(MAKE) tested
	$(MAKE) -j3 -Otarget unit-outside unit-inside loom
	$(MAKE) -j3 -Otarget conformance clients python fuzz

# Debian's packages where one is missing, the Rust components, and the Python clients in a venv of their own.
tools: components $(VENV)/ready
	cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked --version $(CARGO_FUZZ) cargo-fuzz

components:
	cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

.PHONY: debian
debian:
	missing=""; \
	for package in $(DEBIAN); do \
	    dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null | grep -q 'install ok installed' || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	    export DEBIAN_FRONTEND=noninteractive; \
	    $(SUDO) apt-get update -q </dev/null; \
	    $(SUDO) apt-get install -qy --no-install-recommends $$missing </dev/null; \
	fi
	for package in $(OPTIONAL); do \
	    dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null | grep -q 'install ok installed' || \
	        { export DEBIAN_FRONTEND=noninteractive; $(SUDO) apt-get update -q </dev/null && \
	          $(SUDO) apt-get install -qy --no-install-recommends "$$package" </dev/null; } || \
	        echo "$$package cannot be installed: the tests that need it will be skipped"; \
	done

helm:
	GOBIN=$(HELM_BIN) go install helm.sh/helm/v3/cmd/helm@v$(HELM)

$(VENV)/ready: tests/requirements.txt | debian
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt
	touch $@

# The benchmarks' workspace has a lock file of its own, which a new dependency here changes, too.
check: components
	cargo fmt --all --check
	cargo update --quiet --workspace --locked --manifest-path compare/Cargo.toml
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo check --package ebbtide-store --features coherence --bench locks --locked
	cargo xtask tidy

# Tests inside the crates and those of their interfaces run side by side, as many of the latter wait, hence also their
# four threads. The binaries are named because all of them would include the fuzzers, which do not end.
unit: tested
	$(MAKE) -j2 -Otarget unit-inside unit-outside

unit-inside:
	cargo test --workspace --locked --no-fail-fast --lib --bin ebbtide --bin xtask
	cargo test --workspace --locked --no-fail-fast --doc

unit-outside:
	RUST_TEST_THREADS=4 cargo test --workspace --locked --no-fail-fast --test '*'

# All seeds of the random tests, of which `make test` takes some; ten million operations of the history checker and of
# structured edits, a thousand restarts and changed files, thousands of kills, and an hour of fuzzing.
soak:
	EBBTIDE_SOAK=1 EBBTIDE_HISTORY_OPERATIONS=12000000 EBBTIDE_SOAK_RESTARTS=1000 \
	    EBBTIDE_STRUCTURED_OPERATIONS=10000000 EBBTIDE_FILE_CHANGES=1000 EBBTIDE_PREEMPTION_SECONDS=60 \
	    cargo test --workspace --locked
	$(MAKE) upgrade
	$(MAKE) fuzz FUZZ_SECONDS=3600
	$(MAKE) sanitized FUZZ_SECONDS=3600

# The real formats of flash over a device that keeps its blocks compressed in memory. SCALE=1: all of it.
SCALE := 64

terabyte:
	cargo bench --locked --package ebbtide-flash --features test-devices --bench terabyte -- $(SCALE)

# Loom rebuilds everything with its own atomics, hence the target directory of its own.
loom:
	$(NO_LTO) RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --locked --release --package ebbtide-store --lib

# Most of their time the tests wait, for something to expire or for the other side, hence more processes than cores.
conformance: tested
	PATH="$$PATH:$(HELM_BIN)" EBBTIDE_BINARY=$(TESTED) $(PYTHON) -m pytest -n 3 tests

# A copy of what git tracks, with another version, is built as another program would be: nothing in the product knows of it.
OTHER_VERSION := target/other-version

upgrade: tested
	rm -rf $(OTHER_VERSION)/source
	mkdir -p $(OTHER_VERSION)/source
	git ls-files -z | tar --create --null --files-from=- | tar --extract --directory $(OTHER_VERSION)/source
	sed -i -E '/^(version|ebbtide.*version) = /s/(version = )"[0-9.]+"/\1"99.0.0"/' $(OTHER_VERSION)/source/Cargo.toml
	CARGO_TARGET_DIR=$(CURDIR)/$(OTHER_VERSION) cargo build --package ebbtide-cli --manifest-path $(OTHER_VERSION)/source/Cargo.toml
	EBBTIDE_OTHER_VERSION=$(CURDIR)/$(OTHER_VERSION)/debug/ebbtide EBBTIDE_BINARY=$(TESTED) $(PYTHON) -m pytest tests/test_upgrade.py

clients: tested
	$(MAKE) -C clients -j2
	EBBTIDE_BINARY=$(TESTED) $(PYTHON) -m pytest -n 4 clients

# As its users install it, but for the profile: a build for release would take minutes.
python:
	python3 -m venv target/python
	target/python/bin/python -m pip install --quiet --disable-pip-version-check pytest==9.2.0 numpy==2.4.6
	MATURIN_PEP517_ARGS="--profile dev" target/python/bin/python -m pip install --quiet --disable-pip-version-check \
	    --force-reinstall --no-deps ./python
	target/python/bin/python -m pytest python/tests

# The package under valgrind, by Debian's interpreter, in which valgrind finds nothing: optimized builds of others use
# parts of words that are not initialized. Left out are flash, whose threads valgrind holds up, and memory files, for
# which its address space is too small, as it is for the caches of all files in one process.
sanitized-python: | debian
	/usr/bin/python3 -m venv target/python-valgrind
	target/python-valgrind/bin/python -m pip install --quiet --disable-pip-version-check pytest==9.2.0
	MATURIN_PEP517_ARGS="--profile dev" target/python-valgrind/bin/python -m pip install --quiet --disable-pip-version-check \
	    --force-reinstall --no-deps ./python
	for file in cache compact identity loading structured; do \
	    PYTHONMALLOC=malloc valgrind --quiet --leak-check=no --error-exitcode=9 --fair-sched=yes target/python-valgrind/bin/python \
	        -m pytest -k "not flash and not memory_file" "python/tests/test_$$file.py"; \
	done

# Without a sanitizer, whose build takes a quarter of an hour of one core; broken promises panic without it. What a run
# finds new is kept in target/.
fuzz:
	for target in $(FUZZ); do mkdir -p "target/fuzz/$$target"; $(FUZZ_PROFILE) cargo fuzz build $(FUZZ_FEATURES) --sanitizer $(FUZZ_SANITIZER) "$$target"; done
	printf '%s\n' $(FUZZ) | xargs -P 5 -I TARGET env $(FUZZ_PROFILE) timeout $$(($(FUZZ_SECONDS) + 540)) cargo fuzz run $(FUZZ_FEATURES) \
	    --sanitizer $(FUZZ_SANITIZER) TARGET target/fuzz/TARGET fuzz/seeds/TARGET -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 -verbosity=0

# Images and memory files with the address sanitizer. Its flag is for nightly compilers, and for stable ones that are told
# to take such flags. A thread that is about to end at the exit of a target is no leak.
sanitized:
	RUSTC_BOOTSTRAP=1 ASAN_OPTIONS=detect_leaks=0 $(MAKE) fuzz FUZZ="image memory_file" FUZZ_SANITIZER=address \
	    FUZZ_FEATURES="--no-default-features --features memory-file"

# Formats and arithmetic of the store under Miri, which needs a nightly compiler with `miri` and `rust-src`. Miri cannot
# run whole stores in useful time, threads with a membarrier, files that are mapped, flash devices or sockets; the tests
# of hashes by the million (`index::split_word`, `ttl`) take too long.
miri:
	CARGO_TARGET_DIR=target/miri cargo +nightly miri test --locked --package ebbtide-store --lib -- \
	    item:: index::slot compact::layout time:: token_table::

# The Debian package, from the released binary.
deb: build
	packaging/debian/build.sh target/release/ebbtide "$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)" target/debian

# What crates.io would get: descriptions, README, keywords, versions of dependencies. Nothing is uploaded or compiled.
package:
	cargo publish --workspace --dry-run --no-verify --locked

clean:
	cargo clean
	rm -rf $(VENV)

# `make` alone lists the targets.

# What boxes search for programs; what only a login shell finds is of no use there.
SYSTEM_PATH = /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# command:package, or file:package, of everything that building, tests, demo and benches use.
NEEDED = make:make gcc:gcc g++:g++ python3:python3 node:nodejs ruby:ruby php:php-cli \
	javac:default-jdk-headless /usr/share/java/gson.jar:libgoogle-gson-java bwrap:bubblewrap \
	curl:curl strace:strace update-ca-certificates:ca-certificates
APT_GET = DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300

CARGO = cargo
CARGO_DENY = cargo-deny@0.20.2
CARGO_FUZZ = cargo-fuzz@0.13.2
TRIPLE = $(shell rustc -vV | sed -n 's/^host: //p')
TARGET_DIR = $(abspath $(or $(CARGO_TARGET_DIR),target))
BINARY = $(TARGET_DIR)/$(TRIPLE)/release/cofferdam
PREFIX = /usr/local

# What `toolchains` builds and `image` puts into an image; `all` is every one that has a recipe.
LANGUAGES = all
TOOLCHAINS_DIR = /var/cache/cofferdam/toolchains
# The first of these that is there builds images; IMAGE_FLAGS are for its `build`.
ENGINE = $(firstword $(foreach engine,docker podman buildah,$(if $(shell command -v $(engine) 2>/dev/null),$(engine))))

# The program that build.rs compiles by itself, out of cargo's sight, under what
# Cargo.toml asks of the rest. The library and the init share wire.rs, and neither
# uses all of it; the casts it makes are between machine words.
INIT = crates/sandbox/src/init/main.rs
INIT_LINTS = -D warnings -A dead_code -D missing_debug_implementations -D unsafe_op_in_unsafe_fn \
	-D unused_qualifications -D clippy::undocumented_unsafe_blocks -D clippy::panic \
	-D clippy::expect_used -D clippy::unwrap_used -D clippy::todo -D clippy::unimplemented

SOAK_RUNS = 1000
STANDBY_RUNS = 5000
LANGS_ROUNDS = 10
FUZZ_SECONDS = 600
HOSTILE_RUNS = 10000

# Each can be taken down in a build made for it, so that the hostile rows which need it must break.
WALLS = seccomp user cgroup pid net unowned
WEAKENED = $(TARGET_DIR)/weakened/$(TRIPLE)/quick/cofferdam

.DEFAULT_GOAL = help
# Cargo fills the cores by itself.
.NOTPARALLEL:
.PHONY: help deps build install fmt lint deny test test-langs test-toolchains hostile hostile-soak \
	weakened demo test-metrics bench bench-docs docs-configuration bench-langs soak soak-jobs fuzz toolchains print-serve-env image test-image test-deploy \
	test-v2 test-firecracker test-containers clean

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | expand -t 17

deps: ## Install the compilers, runtimes and tools that are missing (Debian, as root)
	@missing=; \
	for need in $(NEEDED); do \
		[ -f "$${need%%:*}" ] || PATH=$(SYSTEM_PATH) command -v "$${need%%:*}" >/dev/null || \
			missing="$$missing $${need##*:}"; \
	done; \
	if [ -n "$$missing" ]; then \
		echo "installing:$$missing"; \
		$(APT_GET) update && $(APT_GET) install -y --no-install-recommends $$missing; \
	fi </dev/null

build: ## Build the release binary, static and stripped
	$(CARGO) build --locked --release

install: build ## Copy the release binary to /usr/local/bin (PREFIX, DESTDIR)
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/cofferdam

fmt: ## Format the code
	$(CARGO) fmt --all
	rustfmt $(INIT)

lint: ## Check format and lints, those of a box's init too
	$(CARGO) fmt --all --check
	rustfmt --check $(INIT)
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@mkdir -p $(TARGET_DIR)
	clippy-driver --edition 2024 --crate-name init --crate-type bin -Cpanic=abort \
		--emit=metadata -o $(TARGET_DIR)/init.rmeta $(INIT_LINTS) $(INIT)

deny: ## Check the dependencies' licences, sources and versions
	cargo-deny --version >/dev/null 2>&1 || (cd / && $(CARGO) install --locked $(CARGO_DENY))
	$(CARGO) deny --locked check bans licenses sources

test: deps lint build ## Lint, then run every test, against the release binary where it is a black box
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 $(CARGO) test --locked --no-fail-fast
	$(MAKE) test-v2

# In the root of the toolchains, for all that was built there or the LANGUAGES named.
IN_TOOLCHAINS = SANDBOX_ROOTFS=$(abspath $(TOOLCHAINS_DIR))/root COFFERDAM_BIN=$(BINARY) \
	LANGUAGES="$$(langs/toolchains/slugs $(LANGUAGES) | xargs)"

test-langs: deps build ## Hold the LANGUAGES to their vectors in that root, and LANGS_ROUNDS at once
	$(IN_TOOLCHAINS) LANGS_ROUNDS=$(LANGS_ROUNDS) REQUIRE_PRIVILEGED=1 \
		$(CARGO) test --locked --test languages -- --include-ignored --nocapture --test-threads=1

bench-langs: deps build ## Time the LANGUAGES, cold, warm and beside a bare `make test` in that root
	$(IN_TOOLCHAINS) $(CARGO) bench --locked --bench languages

hostile: deps build ## Attack the service (STANDBY_MAX=0: without boxes made ahead), or the one at URL; print the scorecard
	COFFERDAM_BIN=$(BINARY) $(if $(STANDBY_MAX),STANDBY_MAX=$(STANDBY_MAX)) $(if $(URL),HOSTILE_URL=$(URL),REQUIRE_PRIVILEGED=1) \
		$(CARGO) test --locked --test hostile -- $(ROWS)

hostile-soak: deps build ## Attack with many runs (HOSTILE_RUNS) and look for what they leave behind
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 HOSTILE_RUNS=$(HOSTILE_RUNS) \
		$(CARGO) test --locked --test hostile -- E73

weakened: deps ## Attack a build without each of the WALLS: the rows that need it have to break
	RUSTFLAGS="-C target-feature=+crt-static --cfg cofferdam_weakened" \
		$(CARGO) build --locked --profile quick --target-dir $(TARGET_DIR)/weakened
	@for wall in $(WALLS); do \
		COFFERDAM_BIN=$(WEAKENED) HOSTILE_WITHOUT=$$wall $(CARGO) test --locked --test hostile || exit 1; \
	done

demo: deps build ## Start the service, post a solution in each language, show the answers
	python3 tests/demo/demo.py $(BINARY)

test-metrics: deps build ## Hold /metrics to Prometheus' parsers and lints, and have a real Prometheus scrape it
	python3 tests/metrics/scrape.py $(BINARY) $(TARGET_DIR)/metrics-tools

bench: deps build ## Compare with bare processes and other sandboxes, in PAIRS, and hold goals beside that
	COFFERDAM_BIN=$(BINARY) $(CARGO) bench --locked --bench paired

bench-docs: bench ## Write those figures into docs/performance.md
	sed -i -e '/^<!-- figures -->$$/,/^<!-- end of figures -->$$/{//!d}' \
		-e '/^<!-- figures -->$$/r target/bench/bench.md' docs/performance.md
	cp target/bench/latency.svg docs/latency.svg

docs-configuration: ## Write docs/configuration.md and the systemd environment file from src/config/table
	WRITE_DOCUMENTS=1 $(CARGO) test --locked --test documents configuration

soak: deps build ## Run many boxes (SOAK_RUNS, STANDBY_RUNS) and look for what they leave behind
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 SOAK_RUNS=$(SOAK_RUNS) $(CARGO) test --locked --test api soak::
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 STANDBY_RUNS=$(STANDBY_RUNS) \
		$(CARGO) test --locked --test standby soak::

# Kills of the service under a stream of jobs, and jobs in its queue at once.
JOBS_KILLS = 200
JOBS_MANY = 2000

soak-jobs: deps build ## Kill the service JOBS_KILLS times under its jobs, and queue JOBS_MANY of them
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 JOBS_KILLS=$(JOBS_KILLS) JOBS_MANY=$(JOBS_MANY) \
		$(CARGO) test --locked --test jobs -- --nocapture killed:: many::

fuzz: ## Fuzz each target for FUZZ_SECONDS; a line of result for each
	cargo-fuzz --version >/dev/null 2>&1 || (cd / && $(CARGO) install --locked $(CARGO_FUZZ))
	CARGO=$(CARGO) TARGET_DIR=$(TARGET_DIR) FUZZ_SECONDS=$(FUZZ_SECONDS) fuzz/run $(FUZZ_TARGETS)

toolchains: NEEDED = mmdebstrap:mmdebstrap unshare:util-linux flock:util-linux
toolchains: deps ## Build the root file system of the LANGUAGES below TOOLCHAINS_DIR (as root)
	@TOOLCHAINS_DIR=$(TOOLCHAINS_DIR) langs/toolchains/build $(LANGUAGES)

test-toolchains: ## Hold `toolchains` to doing nothing twice, in what it has built
	TOOLCHAINS_DIR=$(TOOLCHAINS_DIR) tests/toolchains/test python

print-serve-env: ## Print the variables with which `cofferdam serve` finds that root and langs/
	@echo SANDBOX_ROOTFS=$(abspath $(TOOLCHAINS_DIR))/root
	@echo LANGS_DIR=$(CURDIR)/langs

image: build ## Build cofferdam:<slug> for each of the LANGUAGES, or cofferdam:all
	install -D -m 755 $(BINARY) target/image/cofferdam
	for language in $(LANGUAGES); do \
		$(ENGINE) build $(IMAGE_FLAGS) --build-arg BINARY=given --build-arg LANGUAGES=$$language \
			--tag cofferdam:$$language . || exit 1; \
	done

test-image: deps build ## Build images for python and cpp from nothing, run them, ask them (as root)
	python3 tests/image/test.py $(BINARY)

test-deploy: build ## Render, validate and start what deploy/ and its documents say (PARTS; as root)
	python3 tests/deploy/test.py $(BINARY) $(PARTS)

# What it fetches for its guests is kept there.
V2_DIR = /var/cache/cofferdam/v2

test-v2: deps build ## Test boxes under QEMU, Linux 6.1 and 6.12, with all controllers on cgroup v2 (as root)
	CARGO=$(CARGO) python3 tests/v2/test.py $(BINARY) $(V2_DIR)

# Kernels with the modules that these guests need, and the programs of their system.
GUESTS_DIR = /var/cache/cofferdam/guests

test-firecracker: deps build ## Run jobs in guests under QEMU, Linux 6.1 and 6.12, as the backend firecracker does (as root)
	CARGO=$(CARGO) python3 tests/firecracker/test.py $(BINARY) $(GUESTS_DIR) $(V2_DIR) $(TARGET_DIR)/guest-tools

test-containers: deps build ## Start the service in four kinds of containers, and hold each to docs/deploy.md (as root)
	python3 tests/containers/test.py $(BINARY)

clean: ## Remove what was built
	$(CARGO) clean

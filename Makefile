# `make` alone lists the targets.

# The PATH of sandboxes. Tools that only a login shell finds are of no use there.
SYSTEM_PATH = /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# command:package or file:package of everything that the build, the tests, the demo and the benches use.
NEEDED = make:make gcc:gcc g++:g++ python3:python3 node:nodejs ruby:ruby php:php-cli \
	javac:default-jdk-headless /usr/share/java/gson.jar:libgoogle-gson-java bwrap:bubblewrap \
	curl:curl openssl:openssl strace:strace update-ca-certificates:ca-certificates \
	podman:podman runc:runc busybox:busybox-static /usr/share/doc/python3-venv/copyright:python3-venv \
	/usr/lib/python3/dist-packages/pytest/__init__.py:python3-pytest
# Debian has no uv. It comes as a package of Python, into a directory of its own, which sandboxes see.
UV = uv==0.13.9
UV_DIR = /usr/local/lib/uv
APT_GET = DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300

CARGO = cargo
CARGO_DENY = cargo-deny@0.20.2
CARGO_FUZZ = cargo-fuzz@0.13.2
CARGO_SEMVER_CHECKS = cargo-semver-checks@0.51.0
TRIPLE = $(shell rustc -vV | sed -n 's/^host: //p')
TARGET_DIR = $(abspath $(or $(CARGO_TARGET_DIR),target))
BINARY = $(TARGET_DIR)/$(TRIPLE)/release/cofferdam
PREFIX = /usr/local

# The languages that `toolchains` builds and `image` contains; `all` is every language with a recipe.
LANGUAGES = all
TOOLCHAINS_DIR = /var/cache/cofferdam/toolchains
# The first of these that is installed builds images. IMAGE_FLAGS are passed to its `build`.
ENGINE = $(firstword $(foreach engine,docker podman buildah,$(if $(shell command -v $(engine) 2>/dev/null),$(engine))))

# build.rs compiles the init, so cargo does not lint it. These are the lints of Cargo.toml, except
# dead_code, since the init and the library share wire.rs and neither uses all of it, and except those
# of casts, which are between machine words there.
INIT = crates/sandbox/src/init/main.rs
INIT_LINTS = -D warnings -A dead_code -D missing_debug_implementations -D unsafe_op_in_unsafe_fn \
	-D unused_qualifications -D clippy::undocumented_unsafe_blocks -D clippy::panic \
	-D clippy::expect_used -D clippy::unwrap_used -D clippy::todo -D clippy::unimplemented

SOAK_RUNS = 1000
STANDBY_RUNS = 5000
WARM_RUNS = 5000
LANGS_ROUNDS = 10
FUZZ_SECONDS = 600
HOSTILE_RUNS = 10000
KILLS = 100

# A weakened build can remove each of these. The hostile rows that need the removed one must then break.
WALLS = seccomp user cgroup pid net unowned \
	paths beneath regular archive input window viewers results quota freeze owner \
	readonly tally whole group init \
	allow address host sni port \
	restored replaced compared fresh hidden clean history redacted bounded \
	constraint agreement redaction placeholder rules canonical allowance ready
# Most rows wait for a time limit, so two walls together take about half the time of one after the other.
WALLS_AT_ONCE ?= 2
WEAKENED = $(TARGET_DIR)/weakened/cofferdam

.DEFAULT_GOAL = help
# Cargo uses every core by itself.
.NOTPARALLEL:
.PHONY: help deps build install fmt lint deny deny-tool semver check test test-one test-kills test-overlays test-minimal test-builds bench-builds test-langs test-toolchains \
	hostile hostile-soak weakened weakened-build demo test-examples test-metrics test-egress-clients egress-clients test-case-forgers bench bench-peers bench-docs config-docs bench-langs bench-langs-docs soak \
	soak-jobs soak-cases firecracker-guests fuzz fuzz-tool fuzz-build toolchains print-serve-env image test-image test-deploy test-v2 test-firecracker test-containers clean

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | expand -t 20

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
	@PATH=$(SYSTEM_PATH) command -v uv >/dev/null || { \
		PATH=$(SYSTEM_PATH) python3 -m venv --clear $(UV_DIR) && \
		$(UV_DIR)/bin/pip install --disable-pip-version-check -q $(UV) && \
		ln -sf $(UV_DIR)/bin/uv /usr/local/bin/uv; \
	} </dev/null

build: ## Build the release binary, static and stripped
	$(CARGO) build --locked --release

install: build ## Copy the release binary to /usr/local/bin (PREFIX, DESTDIR)
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/cofferdam

fmt: ## Format the code
	$(CARGO) fmt --all
	rustfmt $(INIT)

lint: ## Check format and lints
	$(CARGO) fmt --all --check
	rustfmt --check $(INIT)
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --package cofferdam --no-default-features --lib --bins -- -D warnings
	@mkdir -p $(TARGET_DIR)
	clippy-driver --edition 2024 --crate-name init --crate-type bin -Cpanic=abort \
		--emit=metadata -o $(TARGET_DIR)/init.rmeta $(INIT_LINTS) $(INIT)

# Tools that run for a second or two are not worth a full optimisation.
INSTALL = cd / && CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
	CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 $(CARGO) install --locked

deny-tool:
	cargo-deny --version >/dev/null 2>&1 || ($(INSTALL) $(CARGO_DENY))

deny: deny-tool ## Check the licences, sources and versions of the dependencies
	$(CARGO) deny --locked check bans licenses sources

# The commit whose API crates/sandbox must still have: the last release, or a later commit that broke the API
# on purpose.
BASELINE = 9782fc71a60b
# The tool asks rustc about the target of .cargo/config.toml, whose name only cargo knows, and hides the warnings
# by which cargo finds out what cannot be linked statically.
semver: ## Check the API of crates/sandbox against that of the commit BASELINE
	cargo-semver-checks --version >/dev/null 2>&1 || ($(INSTALL) $(CARGO_SEMVER_CHECKS))
	RUSTFLAGS="-C target-feature=-crt-static" $(CARGO) semver-checks --target $(TRIPLE) \
		--package cofferdam-sandbox --baseline-rev $(BASELINE)

# The crate and the parts of names of unit tests that change owners, mount or make cgroups, and so fail
# without root.
ROOT_CRATE = cofferdam-tree
ROOT_TESTS = cgroup::tests::host probe::tests workspace_tests make_missing a_full_disk a_directory_that_cannot
WITHOUT_ROOT = $(filter-out 0,$(shell id -u))

check: lint ## Check format, lints and unit tests (without root, those that can do without)
	$(CARGO) test --locked --lib --workspace --exclude cofferdam-fuzz \
		$(if $(WITHOUT_ROOT),--exclude $(ROOT_CRATE) -- $(addprefix --skip ,$(ROOT_TESTS)))

test-one: ## Run the tests whose names contain T, or the row T of tests/hostile (needs root)
	CARGO=$(CARGO) ci/test_one.sh "$(T)"

test: deps lint build ## Lint and run every test against the release binary (as root)
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 $(CARGO) test --locked --no-fail-fast
	$(MAKE) test-v2

test-kills: ## Kill the service KILLS times while a workspace is saved, and while evaluations and Cases run (as root)
	PERSISTENCE_KILLS=$(KILLS) REQUIRE_PRIVILEGED=1 $(CARGO) test --locked --test engine -- \
		a_killed_service_loses_only_what_came_after_the_last_save --nocapture
	EVALUATION_KILLS=$(KILLS) REQUIRE_PRIVILEGED=1 $(CARGO) test --locked --test evaluations -- \
		a_killed_service_keeps_what_ended_interrupts_what_ran_and_leaves_nothing --nocapture
	CASE_KILLS=$(KILLS) REQUIRE_PRIVILEGED=1 $(CARGO) test --locked --test cases -- \
		a_run_that_is_killed_loses_no_cell_and_leaves_nothing_alive --nocapture

OVERLAY_CASES = 10000

test-overlays: ## Try OVERLAY_CASES random programs on random trees, and kill KILLS commits (as root)
	OVERLAY_CASES=$(OVERLAY_CASES) OVERLAY_KILLS=$(KILLS) REQUIRE_PRIVILEGED=1 \
		$(CARGO) test --locked --test overlay -- --nocapture random:: killed::

BENCH = $(CARGO) bench --locked --package cofferdam-benches --profile quick

bench-builds:
	$(BENCH) --no-run --bench paired --bench languages

test-minimal: ## Run the unit tests of a build without the feature firecracker (as root)
	REQUIRE_PRIVILEGED=1 $(CARGO) test --locked --package cofferdam --no-default-features --lib --bins

test-builds: ## Compile the tests without running them
	$(CARGO) test --locked --no-run

# For `all` or the LANGUAGES named, in the root file system that `toolchains` builds.
IN_TOOLCHAINS = SANDBOX_ROOTFS=$(abspath $(TOOLCHAINS_DIR))/root COFFERDAM_BIN=$(BINARY) \
	LANGUAGES="$$(langs/toolchains/slugs $(LANGUAGES) | xargs)"

test-langs: deps build ## Run the vectors of the LANGUAGES in that root, then LANGS_ROUNDS rounds in parallel
	$(IN_TOOLCHAINS) LANGS_ROUNDS=$(LANGS_ROUNDS) REQUIRE_PRIVILEGED=1 \
		$(CARGO) test --locked --test languages -- --include-ignored --nocapture --test-threads=1

bench-langs: deps build ## Compare runs of the LANGUAGES in that root, cold and started ahead, with bare ones in PAIRS, and with the goals
	$(IN_TOOLCHAINS) $(BENCH) --bench languages

# write_figures NAME,FILE: puts FILE between the markers of NAME in docs/performance.md.
define write_figures
	sed -i -e '/^<!-- $(1) -->$$/,/^<!-- end of $(1) -->$$/{//!d}' \
		-e '/^<!-- $(1) -->$$/r $(2)' docs/performance.md
endef

bench-langs-docs: bench-langs ## Write these figures into docs/performance.md
	$(call write_figures,figures of languages,target/bench/languages.md)

hostile: deps build ## Attack the service (STANDBY_MAX=0: without a standby pool) or the one at URL; ROWS selects
	COFFERDAM_BIN=$(BINARY) $(if $(STANDBY_MAX),STANDBY_MAX=$(STANDBY_MAX)) $(if $(URL),HOSTILE_URL=$(URL),REQUIRE_PRIVILEGED=1) \
		$(CARGO) test --locked --test hostile -- $(ROWS)

hostile-soak: deps build ## Attack with HOSTILE_RUNS runs and look for leaks
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 HOSTILE_RUNS=$(HOSTILE_RUNS) \
		$(CARGO) test --locked --test hostile -- E73

# A build without optimisation is enough, and compiles faster. The compiler copies the program aside, so that it is
# never taken for the one of a normal build.
weakened-build:
	WEAKENED=$(abspath $(WEAKENED)) RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/ci/weakened_rustc $(CARGO) build --locked

weakened: deps weakened-build ## Attack a build without each of the WALLS: the rows that need it must break
	$(CARGO) test --locked --no-run --test hostile
	@echo $(WALLS) | xargs -n 1 -P $(WALLS_AT_ONCE) \
		env CARGO=$(CARGO) COFFERDAM_BIN=$(WEAKENED) ci/without_wall.sh

demo: deps build ## Start the service, post a solution in each language and print the answers
	python3 ci/demo.py $(BINARY)

test-examples: deps build ## Evaluate the example tasks and run the example Cases, which are real repositories, with and without solutions
	ci/test_examples.sh $(BINARY)

test-metrics: deps build ## Check /metrics with Prometheus' parsers and lints and a real Prometheus
	python3 ci/test_metrics.py $(BINARY) $(TARGET_DIR)/metrics-tools

EGRESS_CLIENTS = CARGO=$(CARGO) python3 ci/test_egress_clients.py $(BINARY) $(TARGET_DIR)/egress-clients

test-egress-clients: deps build ## Reach hosts with rules by programs that know nothing of it, in sandboxes (as root)
	$(EGRESS_CLIENTS)

egress-clients: deps
	$(EGRESS_CLIENTS) prepare

test-case-forgers: deps build ## Grade agents that forge the outcomes of tests, and again without each wall (as root)
	CARGO=$(CARGO) python3 ci/test_case_forgers.py $(BINARY) $(TARGET_DIR)/case-forgers $(PYTEST)

# The sandboxes of others that are built for the bench. One that cannot be had is left out, and the report says why.
PEERS_DIR ?= target/peers
PEERS ?= go-judge sandlock nsjail
SANDLOCK = sandlock-cli@0.9.0

bench-peers: ## Build the other sandboxes that `bench` compares with
	@CARGO=$(CARGO) APT_GET="env $(APT_GET)" benches/build_peers.sh $(PEERS_DIR) $(SANDLOCK) $(PEERS)

bench: deps build bench-peers ## Compare with bare processes and other sandboxes in PAIRS, and with the goals
	COFFERDAM_BIN=$(BINARY) PEERS_DIR=$(abspath $(PEERS_DIR)) $(BENCH) --bench paired

bench-docs: bench ## Write the figures into docs/performance.md
	$(call write_figures,figures,target/bench/bench.md)
	cp target/bench/latency.svg docs/latency.svg

config-docs: ## Write docs/configuration.md and deploy/systemd/cofferdam.env from the table
	WRITE_DOCUMENTS=1 $(CARGO) test --locked --test documents configuration

soak: deps build ## Run SOAK_RUNS, STANDBY_RUNS and WARM_RUNS sandboxes and look for leaks
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 SOAK_RUNS=$(SOAK_RUNS) $(CARGO) test --locked --test api soak::
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 STANDBY_RUNS=$(STANDBY_RUNS) WARM_RUNS=$(WARM_RUNS) \
		$(CARGO) test --locked --test standby soak::

JOBS_KILLS = 200
JOBS_MANY = 2000

soak-jobs: deps build ## Kill the service JOBS_KILLS times while jobs run, and queue JOBS_MANY at once
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 JOBS_KILLS=$(JOBS_KILLS) JOBS_MANY=$(JOBS_MANY) \
		$(CARGO) test --locked --test jobs -- --nocapture killed:: many::

CASE_CELLS = 200

soak-cases: deps build ## Run CASE_CELLS Cells of a Case, 20 at a time, and look for leaks
	COFFERDAM_BIN=$(BINARY) REQUIRE_PRIVILEGED=1 CASE_CELLS=$(CASE_CELLS) \
		$(CARGO) test --locked --test cases -- --nocapture trials::many::

fuzz-tool:
	cargo-fuzz --version >/dev/null 2>&1 || ($(INSTALL) $(CARGO_FUZZ))

fuzz-build: fuzz-tool
	CARGO=$(CARGO) TARGET_DIR=$(TARGET_DIR) fuzz/run build

fuzz: fuzz-tool ## Fuzz each target, or the FUZZ_TARGETS, for FUZZ_SECONDS
	CARGO=$(CARGO) TARGET_DIR=$(TARGET_DIR) FUZZ_SECONDS=$(FUZZ_SECONDS) fuzz/run $(FUZZ_TARGETS)

toolchains: NEEDED = mmdebstrap:mmdebstrap unshare:util-linux flock:util-linux
toolchains: deps ## Build the root file system of the LANGUAGES in TOOLCHAINS_DIR (as root)
	@TOOLCHAINS_DIR=$(TOOLCHAINS_DIR) langs/toolchains/build $(LANGUAGES)

test-toolchains: ## Test that `toolchains` rebuilds only what has changed (as root)
	TOOLCHAINS_DIR=$(TOOLCHAINS_DIR) ci/test_toolchains.sh python

print-serve-env: ## Print the variables with which `cofferdam serve` uses that root and langs/
	@echo SANDBOX_ROOTFS=$(abspath $(TOOLCHAINS_DIR))/root
	@echo LANGS_DIR=$(CURDIR)/langs

image: build ## Build cofferdam:<slug> for each of the LANGUAGES, or cofferdam:all
	install -D -m 755 $(BINARY) target/image/cofferdam
	for language in $(LANGUAGES); do \
		$(ENGINE) build $(IMAGE_FLAGS) --build-arg BINARY=given --build-arg LANGUAGES=$$language \
			--tag cofferdam:$$language . || exit 1; \
	done

test-image: deps build ## Build the images for python and cpp from scratch, run and query them (as root)
	python3 ci/test_image.py $(BINARY)

test-deploy: build ## Render, validate and start what deploy/ describes; PARTS selects (as root)
	python3 ci/test_deploy.py $(BINARY) $(PARTS)

# Keeps the downloaded parts of the guests.
V2_DIR = /var/cache/cofferdam/v2

test-v2: deps build ## Test in QEMU on Linux 6.1 and 6.12 with every controller on cgroup v2 (V2_FORM=all: all scenes on both; as root)
	CARGO=$(CARGO) python3 ci/test_v2.py $(BINARY) $(V2_DIR) $(V2_FORM)

# Keeps the kernels with the modules for these guests, and their root file system.
GUESTS_DIR = /var/cache/cofferdam/guests

FIRECRACKER = CARGO=$(CARGO) python3 ci/test_firecracker.py $(BINARY) $(GUESTS_DIR) $(V2_DIR) $(TARGET_DIR)/guest-tools

test-firecracker: deps build ## Run jobs in QEMU guests as the backend firecracker does (as root)
	$(FIRECRACKER)

firecracker-guests: deps
	$(FIRECRACKER) prepare

test-containers: deps build ## Test the service in four kinds of containers, as docs/deploy.md lists them (as root)
	python3 ci/test_containers.py $(BINARY)

clean: ## Remove the build output
	$(CARGO) clean

# Every command of this repository. Real services are started without Docker, as private
# processes on free ports; `make setup` fetches them once.

# The C of libraries is compiled once, not once for each profile: Debian's ccache stands in for the
# compilers in a folder. Nothing that cargo watches changes with it.
export PATH := /usr/lib/ccache:$(PATH)
export CCACHE_NOHASHDIR := 1

# The demo links Debian's jemalloc, where it is there, in place of compiling it for two minutes. Looked for when the
# recipe runs: its setup may have just installed it.
JEMALLOC = $$(for lib in /usr/lib/*/libjemalloc_pic.a; do [ ! -e "$$lib" ] || echo "JEMALLOC_OVERRIDE=$$lib"; done)
comma := ,
# Of examples/system.
SERVICES := order-service notification-service billing-service

# Tests wait more than they compute.
TEST_THREADS ?= $(shell echo $$((4 * $$(nproc))))
SOAK_THREADS ?= $(shell echo $$((2 * $$(nproc))))

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak matrix lint deny docs bench bench-inbox bench-micro bench-peers dist dist-test simulate clean-services

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
		awk -F '\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'

setup: ## Fetch what is missing: compiler, Kafka, PostgreSQL, RabbitMQ, Prometheus, Chromium, libraries (first time 2-5 minutes)
	@scripts/setup

demo: ## Watch events go from Postgres to Kafka through a cut and a kill (SYSTEM=1: services around it; SINK=rabbitmq, DEMO_SECONDS=15; first run builds 4-6 minutes)
	@scripts/setup --without-browser --without-snippets $(if $(filter rabbitmq,$(SINK)),--with-rabbitmq,--without-rabbitmq)
	env $(JEMALLOC) cargo build --release --workspace --bin walrelay --bin demo --features walrelay/allocator$(if $(SYSTEM),$(comma)walrelay-harness/system $(SERVICES:%=--bin %))
	@SINK=$(SINK) SYSTEM=$(SYSTEM) $${CARGO_TARGET_DIR:-target}/release/demo

test: setup ## Run the tests: what only real services show, and all that needs none (8 minutes on two cores, at most 15 with the compilation)
	@RUST_TEST_THREADS=$(TEST_THREADS) scripts/test

soak: setup ## Run every test, in full volume: 100,000 events, 20 kills (80 minutes on two cores)
	@scripts/setup --libraries
	@scripts/peers debezium
	@RUST_TEST_THREADS=$(SOAK_THREADS) scripts/test --soak

matrix: setup ## Run the same tests on every version, and write docs/versions.md (half an hour; ROWS="rabbitmq kafka-4.4.0": some)
	@scripts/matrix $(ROWS)

simulate: ## Play seeded schedules to the core, and check what consumers see (110,000 seeds a minute on two cores, a minute to build; SEEDS=10000000 SEED=1 SIMULATE_ARGS="--first")
	@cargo run --quiet --profile simulation -p walrelay-simulation -- $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(SIMULATE_ARGS)

lint: ## Check formatting, lints, the builds with one sink, and links of the documentation
	@scripts/setup --build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --manifest-path benches/peers/Cargo.toml --target-dir target -- -D warnings
	for sink in file kafka rabbitmq; do cargo clippy --no-default-features --features $$sink -- -D warnings || exit; done
	@scripts/docs --links

deny: ## Check licences, bans and sources of dependencies (seconds; the first time compiles cargo-deny, 1-2 minutes)
	@scripts/deny

docs: ## Build the documentation as a site with search into target/book, and check its links (seconds; the first time compiles mdBook, 1-2 minutes)
	@scripts/docs

bench: setup ## Measure drain and latency against real services (7 minutes; BENCH_ARGS=--quick: one; --sink rabbitmq)
	cargo bench --profile dist --features allocator --bench relay -- $(BENCH_ARGS)

bench-inbox: setup ## Measure walrelay-inbox beside a consumer without it (2 minutes; BENCH_ARGS=--quick: a few seconds)
	cargo bench --profile dist --features allocator --bench inbox -- $(BENCH_ARGS)

bench-peers: setup ## Measure Debezium Server and mq-bridge beside walrelay (12 minutes, first time 30 more; BENCH_ARGS=--quick: four)
	cargo build --profile dist --features allocator --bin walrelay
	cargo run --release --manifest-path benches/peers/Cargo.toml --target-dir target -- $(BENCH_ARGS)

bench-micro: ## Measure decoding and the table of what is in flight, alone (a minute)
	cargo bench -p walrelay-micro-benches

dist: ## Make the packages in dist/: tarball, deb, rpm, image, chart, bill of materials, checksums (10-25 minutes; as root; PARTS="binary image": some)
	@scripts/dist $(PARTS)

dist-test: setup ## Try the packages in dist/ in chroots and with end-to-end tests (10 minutes, 10 more to build those; as root)
	@scripts/dist-test $(PARTS)

clean-services: ## Stop the services left running by `services up`, and remove their data
	@cargo run --quiet -p walrelay-harness --bin services -- down

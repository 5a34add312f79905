# `make demo` and `make test` set up everything they need on a Debian or Ubuntu that has Rust. `make help` lists the rest.
# The recipes are short; what takes more than a line is a script in tools/.

SHELL   := bash
CARGO   ?= cargo
# Which tests `make test` runs: those with this in their path (CONTRIBUTING.md has the parts); all, if it is empty.
T       ?=
# What `make bench` measures, and where: make bench DEVICE=gpu MODEL="-m model.pth"
DEVICE  ?= auto
MODEL   ?= --synthetic rwkv7-0.1b
# How long `make fuzz` runs each target, and which: make fuzz SECONDS=600 FUZZ="pickle state"
SECONDS ?= 60
FUZZ    ?=

export CARGO

.DEFAULT_GOAL := help
.PHONY: help demo test test-docs test-all lint check-portable bench gpu-check picture fuzz deny clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## build, install a software Vulkan driver if there is no adapter, and let the embedded model speak
	@tools/setup.sh compiler
	$(CARGO) build --release
	@tools/setup.sh vulkan release
	$(CARGO) run --release --quiet -- generate --device gpu --seed 6 --temperature 0.7 --stop $$'\n\n' -n 80 $$'User: light\n\nAssistant:'

test: ## run all tests on the CPU and on the first adapter; install a software Vulkan driver if there is none; T=words:: runs a part
	@tools/setup.sh compiler
	@tools/test.sh $(T)

test-docs: ## run every console block of the README and of docs/, and compare the output; part of `make test`
	@tools/setup.sh compiler
	@tools/test.sh -E 'test(/^docs::/)'

test-all: ## the same again with checked shaders, the other kernels, split matrices, and SwiftShader if it is there
	@tools/setup.sh compiler
	@tools/test-all.sh

lint: ## formatting, clippy and documentation, warnings are errors
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps

check-portable: ## type-check for Windows, macOS and the web, with whatever toolchain here can
	@tools/check-portable.sh

bench: ## tokens a second of a 0.1B model with seeded weights; DEVICE and MODEL choose others
	$(CARGO) run --release -- bench $(MODEL) --device $(DEVICE) -p 128 -n 16 -r 3

gpu-check: ## kernels, official logits and speed on a real GPU, written to benches/results; CHECK="--models rwkv7-0.1b" and the like
	$(CARGO) build --release
	tools/gpu-check.sh $(CHECK)

picture: ## record the terminal session at the top of the README anew
	$(CARGO) build --release
	tools/picture.py $$($(CARGO) metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/release/wingbeat assets/session.svg

fuzz: ## fuzz every reader of files with AddressSanitizer for SECONDS each; FUZZ="pickle state" chooses targets
	@tools/fuzz.sh $(SECONDS) $(FUZZ)

deny: ## check the dependencies' licences, duplicates, sources and known vulnerabilities
	@tools/deny.sh

clean: ## remove everything built
	$(CARGO) clean

# `make demo` and `make test` install what they need on a Debian or Ubuntu with Rust. `make help` lists all targets.
# Longer recipes are scripts in tools/.

SHELL   := bash
CARGO   ?= cargo
# Which tests `make test` runs: those whose path contains this text (see CONTRIBUTING.md), or all.
T       ?=
# Device and model of `make bench`: make bench DEVICE=gpu MODEL="-m model.pth"
DEVICE  ?= auto
MODEL   ?= --synthetic rwkv7-0.1b
# Seconds per target, and targets, of `make fuzz`: make fuzz SECONDS=600 FUZZ="pickle state"
SECONDS ?= 60
FUZZ    ?=
# Hours of `make soak`: make soak HOURS=0.1
HOURS   ?= 1
# GPUs and options of `make gpu-compile`: stock, newer, other, or names (tools/gpu-compile.sh)
GPUS    ?= stock
# Parts of `make dist` and `make dist-check`: make dist PARTS="linux-x86_64 deb"; default: all that this machine can build or run
PARTS   ?=

export CARGO

.DEFAULT_GOAL := help
.PHONY: help demo test test-docs book test-page test-serve web test-web wheel wheel-free-threaded test-python soak test-all lint check-portable bench gpu-compile gpu-check dist dist-check picture fuzz deny clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# A development build takes half the time of a release build, and its library is optimised.
demo: ## build the program and ask the embedded model for a story
	@tools/setup.sh compiler
	$(CARGO) build
	@tools/setup.sh vulkan debug
	$(CARGO) run --quiet -- chat --device gpu --seed 2 -p "Tell me a story about a fox."

test: ## run all tests on the CPU and on the first adapter; T=words:: runs a part
	@tools/setup.sh compiler
	@tools/test.sh $(T)

test-docs: ## run the examples of the README and of docs/, compare their output, follow links; part of `make test`
	@tools/setup.sh compiler
	$(CARGO) test --quiet --doc -- pages
	@tools/test.sh docs::

book: ## make a book of the README and of docs/ in target/book, with search; needs mdbook and python3
	@tools/book.py

test-page: ## test the chat page of `serve` in Chromium against a mock server; needs node 20
	@tools/test-page.sh

test-serve: ## test `serve` with official clients, under load and in operation; L=long, and parts: T="ops storm"
	@tools/setup.sh compiler
	@tools/test-serve.sh $(or $(L),short) $(T)

web: ## build the npm package into web/pkg and the demo page into web/demo/dist; needs node 20 and npm
	@tools/setup.sh compiler
	@tools/web.sh

test-web: ## test the npm package and the demo in Chromium and Node; T="cache demo" chooses parts
	@tools/setup.sh compiler
	@tools/test-web.sh $(or $(L),short) $(T)

wheel: ## build the Python wheel and its source distribution into target/wheels; needs python3
	@tools/setup.sh compiler
	@tools/wheel.sh

wheel-free-threaded: ## build the wheel for CPython 3.14 without a global lock
	@tools/setup.sh compiler
	@tools/wheel.sh free-threaded

test-python: ## test the Python package in a fresh environment; L=long adds torch and the package rwkv; T="-k states" is for pytest
	@tools/setup.sh compiler
	@tools/test-python.sh $(or $(L),short) $(T)

soak: ## 64 clients of `serve` for HOURS=1, with restarts and kills; picture and samples in target/soak
	@tools/setup.sh compiler
	@SOAK_HOURS=$(HOURS) tools/test-serve.sh short soak

test-all: ## repeat the tests with checked shaders, other kernels, split matrices and other drivers; OpenGL; Windows under Wine
	@tools/setup.sh compiler
	@tools/test-all.sh

lint: ## check formatting, clippy and documentation; warnings are errors
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps

check-portable: ## type-check for Windows, macOS and the web
	@tools/check-portable.sh

bench: ## measure tokens per second of a 0.1B model with seeded weights; DEVICE=…, MODEL=… choose others
	$(CARGO) run --release -- bench $(MODEL) --device $(DEVICE) -p 128 -n 16 -r 3

gpu-compile: ## compile the kernels with real GPUs' compilers, without a GPU; GPUS="navi31 --bless" chooses GPUs and options
	@tools/setup.sh compiler
	@tools/gpu-compile.sh $(GPUS)

gpu-check: ## check and measure a GPU, write a page to benches/results; CHECK="--models rwkv7-0.1b" passes options
	$(CARGO) build --release
	tools/gpu-check.sh $(CHECK)

dist: ## build the programs to download into target/dist, for Linux, Windows and macOS; PARTS="linux-x86_64 deb" chooses
	@tools/dist.sh $(PARTS)

dist-check: ## start the programs of `make dist` in empty roots, under qemu and under Wine; as root
	@tools/dist-check.sh $(PARTS)

picture: ## record the README's terminal session again
	$(CARGO) build --release
	tools/picture.py "$$(tools/setup.sh program release)" assets/session.svg

fuzz: ## fuzz every reader with AddressSanitizer; SECONDS=… per target, FUZZ="pickle state" chooses targets
	@tools/fuzz.sh $(SECONDS) $(FUZZ)

deny: ## check the dependencies' licences, duplicates, sources and known vulnerabilities
	@tools/deny.sh

clean: ## remove everything built
	$(CARGO) clean

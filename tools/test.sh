#!/usr/bin/env bash
# Builds and runs every test, with cargo-nextest if it is installed. A missing adapter is a failure, not a skip.
# Commands name no package: for one package alone, cargo would choose other features of the dependencies and compile them again.
# usage: test.sh [ARGUMENTS OF THE TEST RUNNER…]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

if "$cargo" nextest --version >/dev/null 2>&1; then
  run=("$cargo" nextest run)
else
  run=("$cargo" test)
fi
"${run[@]}" --no-run
tools/setup.sh vulkan debug
export WINGBEAT_REQUIRE_GPU=1
# Tests share the shaders that Mesa has compiled, also where the home folder cannot be written. Most of the time of many tests is spent on compiling shaders.
export MESA_SHADER_CACHE_DIR=${MESA_SHADER_CACHE_DIR:-$PWD/target/mesa-shaders}
# nextest does not run doctests. They run first, so the summary of all other tests comes last.
[ "${run[1]}" != nextest ] || [ $# -gt 0 ] || "$cargo" test --quiet --doc
# Runs the examples; nextest only compiles them.
if [ $# -eq 0 ]; then
  for example in whole_text stream chat_tools embedding state own_gpu rwkv4_in_150_lines rwkv6_notebook glm4_notebook; do
    "$cargo" run --quiet --example "$example" >/dev/null
  done
fi
# After a failure, the remaining tests still run.
failed=0
"${run[@]}" --no-fail-fast "$@" || failed=1
# Official clients and the operation of the server, with the program that the tests have built. A part is skipped if its packages cannot be installed.
if [ $# -eq 0 ] && [ -z "${WINGBEAT_SKIP_CLIENTS:-}" ]; then
  printf '\n== the server with official clients\n'
  WINGBEAT_BIN=$(tools/setup.sh program debug) tools/test-serve.sh short openai_python openai_node curl conversation ops || failed=1
fi
exit $failed

#!/usr/bin/env bash
# Builds and runs every test, with cargo-nextest where it is installed; a missing adapter is a failure, not a skip.
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
# nextest leaves out the examples in the documentation; they run first so that the summary of everything else comes last.
[ "${run[1]}" != nextest ] || [ $# -gt 0 ] || "$cargo" test --quiet --doc
# The examples must not only compile.
if [ $# -eq 0 ]; then
  for example in generate rwkv4_in_150_lines rwkv6_notebook glm4_notebook; do
    "$cargo" run --quiet --example "$example" >/dev/null
  done
fi
# A failure should not hide the next one.
"${run[@]}" --no-fail-fast "$@"

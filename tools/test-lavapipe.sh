#!/usr/bin/env bash
# Runs kernels and models with lavapipe, Mesa's software driver, of Debian unstable: subgroups of 8 lanes, f16 and cooperative matrices of
# 8 x 8, which the driver of Debian 12 lacks. Unpacks the driver into a cache folder and installs nothing.
# usage: test-lavapipe.sh [ARGUMENTS OF THE TEST RUNNER…]    default: kernels, sampling, official logits
# Exits with 0 and prints SKIPPED if this machine cannot have the driver.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

status=0
root=$(tools/mesa.sh sid) || status=$?
if [ $status -eq 3 ]; then
  echo "SKIPPED: no lavapipe of Debian unstable"
  exit 0
fi
[ $status -eq 0 ] || exit $status
"$cargo" nextest --version >/dev/null || { echo "SKIPPED: cargo-nextest is missing (cargo install cargo-nextest)"; exit 0; }

arch=$(uname -m)
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
loader=$(echo "$root"/lib*/ld-linux-*.so.*)
# The driver needs the C library of its own release, so that library's loader starts the tests. A program that a test starts would run with
# the system's library: only tests without such programs are run.
export "CARGO_TARGET_${host}_RUNNER=$loader --library-path $root/usr/lib/$arch-linux-gnu"
export VK_DRIVER_FILES=$root/usr/share/vulkan/icd.d/lvp_icd.json WINGBEAT_REQUIRE_GPU=1 WINGBEAT_KERNELS=groups
[ $# -gt 0 ] || set -- -E 'test(/^(words|spans|draws|ahead|golden)::/) - test(ahead::a_text_does_not_depend_on_where_tokens_are_sampled)'
"$cargo" nextest run -p wingbeat -p wingbeat-cli --test main --no-fail-fast "$@"

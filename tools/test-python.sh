#!/usr/bin/env bash
# Tests the Python package: installs a wheel into a fresh virtual environment, without Rust in PATH, and runs python/tests there.
# usage: test-python.sh [short|long] [PYTEST ARGUMENT…]
#   short: the wheel of `wheel.sh quick`. long: that of `wheel.sh release`, with torch and the package rwkv beside it, and more of Ray
# Without Python 3.10 or its packages it prints SKIPPED; with WINGBEAT_REQUIRE_PYTHON=1 that is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=tools/skip.sh
. tools/skip.sh WINGBEAT_REQUIRE_PYTHON

length=short
case "${1:-}" in short | long) length=$1; shift ;; esac
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || skip "Python 3.10 or later is missing"
packages=(pytest mypy pyright typing_extensions tqdm 'ray[data,serve]==2.60.0' lm_eval==0.4.13)
if [ "$length" = short ]; then
  kind=quick pattern='wingbeat-*-abi3-linux_*.whl'
else
  kind=release pattern='wingbeat-*-abi3-*manylinux*.whl'
  packages+=(torch rwkv==0.8.32 safetensors)
  export WINGBEAT_TEST_ALL=1
fi
status=0
tools/wheel.sh "$kind" || status=$?
[ $status -ne 3 ] || skip "the wheel cannot be built here"
[ $status -eq 0 ] || exit $status

venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
{ "$python" -m venv "$venv" && "$venv/bin/pip" install --quiet "${packages[@]}"; } || skip "the packages of the tests cannot be installed"
# shellcheck disable=SC2086 # a pattern
"$venv/bin/pip" install --quiet --no-index --no-deps target/wheels/$pattern
"$venv/bin/pip" install --quiet numpy
# The PATH of a user contains neither Rust nor this repository.
PATH=$venv/bin:/usr/bin:/bin
wingbeat --version
cd python/tests
python -m pytest -q -p no:cacheprovider "$@"

#!/usr/bin/env bash
# Builds the Python package into target/wheels: a wheel for CPython 3.10 and later, for glibc 2.28 and later, and the source distribution.
# usage: wheel.sh [release|quick|free-threaded]
#   release         optimised, checked by auditwheel (default)
#   quick           for this machine alone, compiled like the tests, to try something
#   free-threaded   for CPython 3.14 without a global lock: python3.14t, or the interpreter that PYTHON_FREE_THREADED names; else SKIPPED
# maturin, zig and auditwheel are installed into a cache folder, not into the system. Exits with 3 if something is missing that it cannot install.
# On macOS and Windows, `release` builds a wheel for the machine; that needs no zig.
# shellcheck source=tools/dist/common.sh
. "$(dirname "$0")/dist/common.sh"

maturin=1.16.0
kind=${1:-release}
wheels=$PWD/target/wheels

# Prints the path of a virtual environment with maturin.
tools() {
  local venv=$cache/wheel-$maturin bin=bin
  [ "${OS:-}" != Windows_NT ] || bin=Scripts
  if [ ! -x "$venv/$bin/maturin" ]; then
    command -v python3 >/dev/null || missing "python3 is missing" "install Python 3.10 or later"
    rm -rf "$venv"
    { python3 -m venv "$venv" && "$venv/$bin/pip" install --quiet "maturin==$maturin" auditwheel; } >&2 ||
      { rm -rf "$venv"; missing "maturin cannot be installed" "pip install maturin==$maturin shows why (Debian: apt-get install python3-venv)"; }
  fi
  echo "$venv/$bin"
}

bin=$(tools)
mkdir -p "$wheels"
build() { (cd python && CARGO_TARGET_DIR=$target "$bin/maturin" "$@" --out "$wheels"); }

case $kind in
  release)
    rm -f "$wheels"/wingbeat-*-abi3-*.whl "$wheels"/wingbeat-*.tar.gz
    if [ "$(uname -s)" = Linux ]; then
      triple=$(uname -m)-unknown-linux-gnu
      zig
      # Zig links everything but glibc statically.
      build build --release --locked --strip --features "abi3,$features" --zig --target "$triple" --compatibility "manylinux_${glibc/./_}"
      tools/dist/needs.sh "$target/$triple/release/lib_native.so" "$glibc"
      "$bin/auditwheel" show "$wheels"/wingbeat-*-abi3-*.whl
    else
      build build --release --locked --strip --features "abi3,$features"
    fi
    build sdist
    ;;
  quick)
    rm -f "$wheels"/wingbeat-*-abi3-linux_*.whl
    # With the profile of the root's Cargo.toml, most dependencies are those that the tests have compiled.
    profile=$(mktemp --suffix=.toml)
    trap 'rm -f "$profile"' EXIT
    awk '/^\[/ { is_dev = /^\[profile\.dev/ } is_dev' Cargo.toml >"$profile"
    build build --profile dev --config "$profile" --locked --compatibility off --auditwheel skip
    ;;
  free-threaded)
    python=$(command -v "${PYTHON_FREE_THREADED:-python3.14t}" || true)
    [ -n "$python" ] || { echo "SKIPPED: no Python without a global lock (python3.14t) was found"; exit 0; }
    rm -f "$wheels"/wingbeat-*t-linux_*.whl "$wheels"/wingbeat-*t-manylinux*.whl
    build build --release --locked --strip --features "$features" --compatibility off --auditwheel skip --interpreter "$python"
    ;;
  *)
    sed -n '3,6s/^# //p' "$0" >&2
    exit 2
    ;;
esac
for file in "$wheels"/wingbeat-*; do report "$file"; done

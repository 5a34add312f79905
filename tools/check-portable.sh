#!/usr/bin/env bash
# Type-checks the crates for other platforms: Windows and macOS (library, server and program), the web (library without default features).
# Links and runs nothing. Uses installed targets of rustup. Otherwise, on Debian, unpacks a compiler from Debian's packages into a cache
# folder (0.7 GB, no root, no installation) and builds the standard library from its sources. Prints SKIPPED for a target for which neither works.
# usage: check-portable.sh [TARGET…]      environment: WINGBEAT_PORTABLE, the cache folder
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${WINGBEAT_PORTABLE:-${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat-portable}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

what_to_check() { # TARGET
  case $1 in
    wasm32-*) echo "-p wingbeat --lib --no-default-features" ;;
    *) echo "--lib --bins" ;;
  esac
}

# --- rustup -----------------------------------------------------------------------------------------------------------

has_std() { # TARGET: succeeds if its standard library is installed
  local libraries
  libraries=$(rustc --print target-libdir --target "$1" 2>/dev/null) && compgen -G "$libraries/libstd-*.rlib" >/dev/null
}

with_rustup() { # TARGET
  # shellcheck disable=SC2046  # the arguments are words
  "${CARGO:-cargo}" check --quiet --target "$1" $(what_to_check "$1")
}

# --- Debian -----------------------------------------------------------------------------------------------------------

unpack_debian() {
  local packages dir
  [ ! -x "$cache/root/usr/bin/rustc" ] || return 0
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "this system is not Debian" >"$log"; return 1; }
  # Lists the packages that an installation would add to this machine.
  packages=$(apt-get install --simulate --no-install-recommends rustc-web cargo-web rust-web-src 2>"$log" | awk '/^Inst / { print $2 }')
  [ -n "$packages" ] || { echo "apt-get finds no package rustc-web (apt-get update may help)" >>"$log"; return 1; }
  echo "unpacking a Rust compiler from Debian's packages into $cache"
  rm -rf "$cache/packages" "$cache/part"
  mkdir -p "$cache/packages" "$cache/part"
  # shellcheck disable=SC2086
  (cd "$cache/packages" && apt-get download -q $packages) >"$log" 2>&1 || return 1
  for package in "$cache"/packages/*.deb; do dpkg-deb --extract "$package" "$cache/part"; done
  # build-std looks for the sources in the compiler's folder.
  dir=$(cd "$cache/part" && compgen -G "usr/src/rustc-*" | head -1)
  mkdir -p "$cache/part/usr/lib/rustlib/src"
  [ -e "$cache/part/usr/lib/rustlib/src/rust/library/std" ] || ln -sfn "../../../../$dir" "$cache/part/usr/lib/rustlib/src/rust"
  rm -rf "$cache/packages" "$cache/root"
  mv "$cache/part" "$cache/root"
}

with_debian() { # TARGET
  unpack_debian || return 2
  local libraries
  libraries=$(find "$cache/root/usr/lib" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
  # shellcheck disable=SC2046
  LD_LIBRARY_PATH=$libraries RUSTC=$cache/root/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/portable \
    "$cache/root/usr/bin/cargo" check --quiet -Zbuild-std=std,panic_abort --target "$1" $(what_to_check "$1")
}

# ----------------------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || set -- x86_64-pc-windows-msvc aarch64-apple-darwin wasm32-unknown-unknown
wrong=0
for target; do
  echo "== $target ($(what_to_check "$target"))"
  status=0
  if has_std "$target"; then
    with_rustup "$target" || status=$?
  else
    with_debian "$target" || status=$?
    if [ "$status" = 2 ]; then
      echo "SKIPPED: no standard library for $target (rustup target add $target), and Debian's is not available: $(tail -1 "$log")"
      continue
    fi
  fi
  if [ "$status" = 0 ]; then echo "ok"; else wrong=1; fi
done
exit "$wrong"

#!/usr/bin/env bash
# Installs what a new Debian or Ubuntu lacks, and reports it. Installs nothing that exists.
# usage: setup.sh compiler          a C linker, which Rust needs
#        setup.sh vulkan PROFILE    an adapter for the wingbeat that was built with PROFILE (debug, release): without any,
#                                   Mesa's software driver llvmpipe
#        setup.sh program PROFILE   prints the path of that wingbeat
set -euo pipefail

install() { # WHY PACKAGES…
  local why=$1 as_root=()
  shift
  if ! command -v apt-get >/dev/null; then
    echo "setup: $why; apt-get is missing: install your system's packages for $*" >&2
    exit 1
  fi
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "setup: $why; as root: apt-get install $*" >&2; exit 1; }
    as_root=(sudo)
  fi
  echo "setup: $why; installing with apt-get: $*" >&2
  # Old package lists work while their files exist on the server. Otherwise update them.
  "${as_root[@]}" apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 || {
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
  }
}

# Asks cargo for the build folder: a variable or a config.toml may have moved it.
built() { # PROFILE
  local target
  target=$("${CARGO:-cargo}" metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
  [ -x "$target/$1/wingbeat" ] || { echo "setup: $target/$1/wingbeat is missing; build it first" >&2; exit 1; }
  echo "$target/$1/wingbeat"
}

sees_adapter() { "$1" devices --json 2>/dev/null | grep -q '"id":"gpu:'; }

case "${1:-}" in
  compiler)
    command -v "${CARGO:-cargo}" >/dev/null || { echo "setup: cargo not found; Rust 1.88 or later comes from https://rustup.rs" >&2; exit 1; }
    [ "$(uname -s)" != Linux ] || command -v cc >/dev/null || install "no C linker (cc) found" gcc libc6-dev
    ;;
  vulkan)
    wingbeat=$(built "$2")
    if [ "$(uname -s)" = Linux ] && ! sees_adapter "$wingbeat"; then
      install "no Vulkan adapter found" mesa-vulkan-drivers libvulkan1
      sees_adapter "$wingbeat" || { echo "setup: still no adapter; run \`$wingbeat doctor\` for details" >&2; exit 1; }
    fi
    ;;
  program)
    built "$2"
    ;;
  *)
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
    ;;
esac

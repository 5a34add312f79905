#!/usr/bin/env bash
# Builds the programs to download into target/dist, with the checksums of all files there in SHA256SUMS.
# usage: dist.sh [PART…]      default: all parts
#   linux-x86_64, linux-aarch64   tarball for glibc 2.28 or later: program, manual pages, completions, licences
#   deb, deb-arm64                Debian package of the same program
#   windows                       zip for x86-64
#   macos                         tarball for both kinds of Mac; only on macOS
#
# A part that this machine cannot build prints SKIPPED and what is missing. If the part was named, that is a failure.
# What each part needs beside Rust is in tools/dist/common.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

parts=(linux-x86_64 linux-aarch64 deb deb-arm64 windows macos)
is_named=no
if [ $# -gt 0 ]; then
  parts=("$@")
  is_named=yes
fi

build() { # PART
  case $1 in
    linux-x86_64) tools/dist/linux.sh x86_64 ;;
    linux-aarch64) tools/dist/linux.sh aarch64 ;;
    deb) tools/dist/deb.sh x86_64 ;;
    deb-arm64) tools/dist/deb.sh aarch64 ;;
    windows) tools/dist/windows.sh ;;
    macos) tools/dist/macos.sh ;;
    *)
      echo "dist: unknown part $1" >&2
      sed -n '3,7s/^# //p' tools/dist.sh >&2
      return 2 ;;
  esac
}

failed=()
for part in "${parts[@]}"; do
  printf '== %s\n' "$part"
  status=0
  build "$part" || status=$?
  [ $status -ne 2 ] || exit 2
  if [ $status -eq 3 ] && [ $is_named = no ]; then
    echo "SKIPPED: $part"
  elif [ $status -ne 0 ]; then
    failed+=("$part")
  fi
done
tools/dist/sums.sh
[ ${#failed[@]} -eq 0 ] || { echo "dist: not built: ${failed[*]}" >&2; exit 1; }

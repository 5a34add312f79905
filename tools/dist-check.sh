#!/usr/bin/env bash
# Starts the downloads of target/dist (tools/dist.sh builds them) where nothing else is installed.
# usage: dist-check.sh [PART…]      default: all parts
#   tarball     in a root with only the C library: the embedded model, a download by name that is killed and goes on, a chat
#   deb         the same, installed in a Debian; then it is removed, and nothing may be left
#   aarch64     the tarball and the package for aarch64 under qemu
#   windows     the zip under Wine
#   container   the steps of the Containerfile in a root of Debian 12, and its health check
#   install     tools/install.sh with a server of this machine, and with a damaged tarball
#
# Needs root, because roots are entered with chroot. A part that this machine cannot run prints SKIPPED and what is missing. If the part was
# named, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

parts=(tarball deb aarch64 windows container install)
is_named=no
if [ $# -gt 0 ]; then
  parts=("$@")
  is_named=yes
fi

failed=()
for part in "${parts[@]}"; do
  [ -x "tools/dist-check/$part.sh" ] || { echo "dist-check: unknown part $part" >&2; sed -n '3,9s/^# //p' "$0" >&2; exit 2; }
  printf '\n== %s\n' "$part"
  status=0
  "tools/dist-check/$part.sh" || status=$?
  if [ $status -eq 3 ] && [ $is_named = no ]; then
    echo "SKIPPED: $part"
  elif [ $status -ne 0 ]; then
    failed+=("$part")
  fi
done
[ ${#failed[@]} -eq 0 ] || { printf '\nfailed: %s\n' "${failed[*]}"; exit 1; }
printf '\nall passed\n'

#!/usr/bin/env bash
# Runs the Linux tarball in two roots that contain only the C library: of Debian 11 (glibc 2.31), the oldest release whose packages are still
# published, and of Debian 12.
# shellcheck source=tools/dist-check/common.sh
. "$(dirname "$0")/common.sh"

need_roots
tarball=$out/wingbeat-linux-$(uname -m).tar.gz
[ -e "$tarball" ] || missing "$tarball is missing" "make dist PARTS=linux-$(uname -m)"
run() { inside "$@"; }
for suite in bullseye bookworm; do
  root=$(bare_root $suite "$(dpkg --print-architecture)")
  tar -C "$root" -xzf "$tarball"
  echo "-- the C library of Debian $suite, $(inside "$root" "/lib/$(uname -m)-linux-gnu/libc.so.6" | grep -om1 'version [0-9.]*[0-9]'), and no shell"
  try_program "$root/root" "$root" /wingbeat-"$version"-linux-"$(uname -m)"/wingbeat
done

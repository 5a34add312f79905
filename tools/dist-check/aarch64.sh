#!/usr/bin/env bash
# Runs the tarball and the program of the package for aarch64 under qemu, in a root with the C library for aarch64.
# shellcheck source=tools/dist-check/common.sh
. "$(dirname "$0")/common.sh"

need_roots
tarball=$out/wingbeat-linux-aarch64.tar.gz
[ -e "$tarball" ] || missing "$tarball is missing" "make dist PARTS=linux-aarch64"
qemu=$(command -v qemu-aarch64-static) || missing "qemu-aarch64-static is missing" "Debian: apt-get install qemu-user-static"
run() { inside "$@"; }
root=$(bare_root bookworm arm64)
tar -C "$root" -xzf "$tarball"
cp "$qemu" "$root/qemu"
try_program "$root/root" "$root" /qemu "/wingbeat-$version-linux-aarch64/wingbeat"

deb=$out/wingbeat_${version}_arm64.deb
if [ -e "$deb" ]; then
  step "the package has the same program"
  dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/bin/wingbeat | cmp - "$root/wingbeat-$version-linux-aarch64/wingbeat"
  ok "$(dpkg-deb -f "$deb" Package Version Architecture Depends | tr '\n' ' ')"
fi

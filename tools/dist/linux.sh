#!/usr/bin/env bash
# Builds the tarball for Linux.
# usage: linux.sh x86_64|aarch64
# shellcheck source=tools/dist/common.sh
. "$(dirname "$0")/common.sh"

arch=${1:?usage: linux.sh x86_64|aarch64}
own=$(own_program)
file=$(program "$arch-unknown-linux-gnu.$glibc")
tools/dist/needs.sh "$file" "$glibc"

folder=$files/wingbeat-$version-linux-$arch
stage "$folder" "$own"
cp "$file" "$folder/wingbeat"
rm "$folder/completions/wingbeat.ps1"
# Without the version in its name, the address of the newest release's tarball stays the same.
tarball "$folder" "$out/wingbeat-linux-$arch.tar.gz"

#!/bin/sh
# Installs the newest release of wingbeat for this system into ~/.local/bin. Needs curl or wget, tar, and sha256sum or shasum.
# usage: install.sh
# Environment:
#   WINGBEAT_BIN       folder of the program (default: ~/.local/bin)
#   WINGBEAT_RELEASE   address of a folder with the tarballs and SHA256SUMS (default: the newest release)
set -eu

# The release workflow replaces the word between the signs with the repository's owner and name.
repository='@REPOSITORY@'
bin=${WINGBEAT_BIN:-$HOME/.local/bin}

fail() {
  echo "install: $1" >&2
  exit 1
}

case $repository in
  @*) release=${WINGBEAT_RELEASE:-} ;;
  *) release=${WINGBEAT_RELEASE:-https://github.com/$repository/releases/latest/download} ;;
esac
[ -n "$release" ] || fail "this copy of the script has no release's address: use the script of a release, or set WINGBEAT_RELEASE"

system=$(uname -s) machine=$(uname -m)
case $system-$machine in
  Linux-x86_64 | Linux-amd64) name=wingbeat-linux-x86_64 ;;
  Linux-aarch64 | Linux-arm64) name=wingbeat-linux-aarch64 ;;
  Darwin-*) name=wingbeat-macos ;;
  *) fail "no program for $system on $machine: build it with Rust (cargo install --path cli)" ;;
esac
if [ "$system" = Linux ] && ls /lib/ld-musl-* >/dev/null 2>&1 && ! ls /lib*/ld-linux-* >/dev/null 2>&1; then
  fail "this system has the C library musl, the program needs glibc 2.28 or later: build it with Rust (cargo install --path cli)"
fi

if command -v curl >/dev/null 2>&1; then
  get() { curl -fsSL --retry 3 -o "$2" "$1"; }
elif command -v wget >/dev/null 2>&1; then
  get() { wget -qO "$2" "$1"; }
else
  fail "curl and wget are missing: install one of them"
fi
if command -v sha256sum >/dev/null 2>&1; then
  sum() { sha256sum "$1"; }
elif command -v shasum >/dev/null 2>&1; then
  sum() { shasum -a 256 "$1"; }
else
  fail "sha256sum and shasum are missing: install one of them"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP

get "$release/SHA256SUMS" "$folder/SHA256SUMS" || fail "cannot download $release/SHA256SUMS"
expected=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$name\.tar\.gz\$/\1/p" "$folder/SHA256SUMS")
[ -n "$expected" ] || fail "$release/SHA256SUMS does not name $name.tar.gz"
get "$release/$name.tar.gz" "$folder/$name.tar.gz" || fail "cannot download $release/$name.tar.gz"
found=$(sum "$folder/$name.tar.gz" | cut -d' ' -f1)
[ "$found" = "$expected" ] || fail "$name.tar.gz has the SHA-256 $found, expected $expected: try again later; nothing was installed"

tar -xzf "$folder/$name.tar.gz" -C "$folder"
program=$(echo "$folder"/wingbeat-*/wingbeat)
version=$("$program" --version | head -1) || fail "the program does not start on this system; nothing was installed"
mkdir -p "$bin"
# A running program can be replaced, but not overwritten.
cp "$program" "$bin/.wingbeat.new"
mv -f "$bin/.wingbeat.new" "$bin/wingbeat"

echo "installed $version as $bin/wingbeat"
case :$PATH: in
  *":$bin:"*) echo "try: wingbeat generate \"Once upon a time\"" ;;
  *) echo "$bin is not in PATH; try: $bin/wingbeat generate \"Once upon a time\"" ;;
esac

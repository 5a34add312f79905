#!/usr/bin/env bash
# Builds the Debian package. Its content and its dependencies are in cli/Cargo.toml, under package.metadata.deb.
# usage: deb.sh x86_64|aarch64
# shellcheck source=tools/dist/common.sh
. "$(dirname "$0")/common.sh"

arch=${1:?usage: deb.sh x86_64|aarch64}
own=$(own_program)
file=$(program "$arch-unknown-linux-gnu.$glibc")
tools/dist/needs.sh "$file" "$glibc"
PATH=$cache/cargo/bin:$PATH
if ! "$cargo" deb --version >/dev/null 2>&1; then
  echo "dist: installing cargo-deb $cargo_deb into $cache/cargo" >&2
  "$cargo" install --quiet --locked --root "$cache/cargo" "cargo-deb@$cargo_deb" >&2 ||
    missing "cargo-deb cannot be installed" "cargo install cargo-deb shows why"
fi

# cli/Cargo.toml names files of this folder, because a cargo-deb asset has one path for all targets.
folder=$files/deb
stage "$folder" "$own"
gzip -9n "$folder"/man/man1/*.1
cp "$file" "$folder/wingbeat"
mkdir -p "$out"
case $arch in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) debian=$arch ;; esac
deb=$out/wingbeat_${version}_$debian.deb
"$cargo" deb --quiet -p wingbeat-cli --no-build --no-strip --profile shipped --target "$arch-unknown-linux-gnu" --deb-version "$version" --output "$deb" >/dev/null
report "$deb"

#!/usr/bin/env bash
# Builds the tarball for macOS: one program for Intel and Apple processors. Runs on macOS with Xcode's command line tools.
# usage: macos.sh
# shellcheck source=tools/dist/common.sh
. "$(dirname "$0")/common.sh"

[ "$(uname -s)" = Darwin ] || missing "this is not macOS, whose SDK is not free to copy" "run this part on a Mac"
command -v lipo >/dev/null || missing "lipo is missing" "xcode-select --install"
programs=()
for triple in x86_64-apple-darwin aarch64-apple-darwin; do
  standard_library "$triple"
  "$cargo" build --profile shipped --locked -p wingbeat-cli --features "$features" --bin wingbeat --target "$triple" >&2
  programs+=("$target/$triple/shipped/wingbeat")
done

both=$files/wingbeat
mkdir -p "$files"
lipo -create -output "$both" "${programs[@]}"
folder=$files/wingbeat-$version-macos
stage "$folder" "$both"
mv "$both" "$folder/wingbeat"
rm "$folder/completions/wingbeat.ps1"
tarball "$folder" "$out/wingbeat-macos.tar.gz"

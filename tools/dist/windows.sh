#!/usr/bin/env bash
# Builds the zip for Windows on x86-64, with zig's C library of MinGW.
# usage: windows.sh
# shellcheck source=tools/dist/common.sh
. "$(dirname "$0")/common.sh"

own=$(own_program)
file=$(program x86_64-pc-windows-gnu)

folder=$files/wingbeat-$version-windows-x86_64
stage "$folder" "$own"
rm -r "$folder/man" "$folder"/completions/*wingbeat "$folder"/completions/wingbeat.{bash,fish}
cp "$file" "$folder/wingbeat.exe"
mkdir -p "$out"
zip=$out/wingbeat-windows-x86_64.zip
rm -f "$zip"
(cd "$(dirname "$folder")" && python3 -m zipfile -c "$zip" "$(basename "$folder")/")
report "$zip"

#!/usr/bin/env bash
# Runs the program of the Windows zip under Wine.
# shellcheck source=tools/dist-check/common.sh
. "$(dirname "$0")/common.sh"

zip=$out/wingbeat-windows-x86_64.zip
[ -e "$zip" ] || missing "$zip is missing" "make dist PARTS=windows"
python3 -m zipfile -e "$zip" "$work"
tools/test-wine.sh "$work/wingbeat-$version-windows-x86_64/wingbeat.exe" | tee "$work/log"
if grep -q '^SKIPPED:' "$work/log"; then exit 3; fi

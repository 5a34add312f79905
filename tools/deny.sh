#!/usr/bin/env bash
# Checks the dependencies against deny.toml: licences, duplicates and sources, then known vulnerabilities.
# usage: deny.sh
#
# The list of vulnerabilities comes from GitHub. Without it, the script prints SKIPPED for this check.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo deny --version >/dev/null 2>&1 || cargo install cargo-deny --locked --quiet

cargo deny --all-features check licenses bans sources

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if cargo deny --all-features check advisories >"$log" 2>&1; then
  cat "$log"
elif grep -q 'failed to fetch advisory database' "$log"; then
  echo "SKIPPED advisories: the database of RustSec cannot be fetched"
else
  cat "$log" >&2
  exit 1
fi

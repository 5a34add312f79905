#!/usr/bin/env bash
# Writes SHA256SUMS for the downloads in a folder.
# usage: sums.sh [FOLDER]      default: target/dist
set -euo pipefail

cd "${1:-$(dirname "$0")/../../target/dist}" 2>/dev/null || exit 0
sums=(sha256sum)
command -v sha256sum >/dev/null || sums=(shasum -a 256)
shopt -s nullglob
files=(*.tar.gz *.zip *.deb install.s[h])
[ ${#files[@]} -gt 0 ] || exit 0
"${sums[@]}" "${files[@]}" >SHA256SUMS
cat SHA256SUMS

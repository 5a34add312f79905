#!/usr/bin/env bash
# Prints the path of Slang's compiler, which reads HLSL. Unpacks it from the Python package slangtorch into a cache folder at first use, without
# installing anything. Exits with 3 if this machine cannot have the package.
# Environment: WINGBEAT_SLANG (default: ~/.cache/wingbeat/slang) is the cache folder.
set -euo pipefail

cache=${WINGBEAT_SLANG:-${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat/slang}
slangc=$cache/slangtorch/bin/slangc
[ -x "$slangc" ] && { echo "$slangc"; exit 0; }
command -v pip >/dev/null || { echo "SKIPPED hlsl: pip is missing" >&2; exit 3; }
mkdir -p "$cache"
pip download --quiet --no-deps --dest "$cache" slangtorch==1.3.22 >&2 || { echo "SKIPPED hlsl: cannot download slangtorch from PyPI" >&2; exit 3; }
python3 -m zipfile -e "$cache"/slangtorch-*.whl "$cache/new"
chmod +x "$cache/new/slangtorch/bin/slangc"
mv "$cache/new/slangtorch" "$cache/slangtorch"
rm -r "$cache/new" "$cache"/slangtorch-*.whl
echo "$slangc"

#!/usr/bin/env bash
# Prints the path of a CPython 3.14 without a global lock. Looks in PATH, else builds it from the sources of Debian unstable into a cache folder.
# Exits with 3 if it cannot be built here.
set -euo pipefail

found=$(command -v python3.14t || true)
[ -z "$found" ] || { echo "$found"; exit 0; }
root=${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat/python-3.14t
python=$root/bin/python3.14t
[ ! -x "$python" ] || { echo "$python"; exit 0; }

give_up() { echo "python-free-threaded: $1" >&2; exit 3; }
pool=https://deb.debian.org/debian/pool/main/p/python3.14
for tool in curl cc make tar xz; do command -v $tool >/dev/null || give_up "$tool is missing"; done
archive=$(curl -fsSL "$pool/" | grep -o 'python3\.14_3\.14\.[0-9]*\.orig\.tar\.xz' | sort -uV | tail -1) || give_up "$pool cannot be read"
[ -n "$archive" ] || give_up "$pool has no sources of Python 3.14"
if ! dpkg -s zlib1g-dev libssl-dev libffi-dev libbz2-dev liblzma-dev libsqlite3-dev >/dev/null 2>&1; then
  apt-get install -qq -y --no-install-recommends zlib1g-dev libssl-dev libffi-dev libbz2-dev liblzma-dev libsqlite3-dev >&2 || give_up "libraries of Python cannot be installed"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "python-free-threaded: building $archive into $root" >&2
curl -fsSL "$pool/$archive" | tar -xJ -C "$work" --strip-components=1
(cd "$work" && ./configure --quiet --disable-gil --prefix="$root" && make -s -j"$(nproc)" && make -s install) >&2 || give_up "Python cannot be built"
echo "$python"

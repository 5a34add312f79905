#!/usr/bin/env bash
# Checks which libraries and which version of glibc a Linux program needs, and prints them.
# usage: needs.sh PROGRAM VERSION      VERSION: the newest glibc that the program may need
set -euo pipefail

program=${1:?usage: needs.sh PROGRAM VERSION} newest=${2:?usage: needs.sh PROGRAM VERSION}
command -v readelf >/dev/null || { echo "dist: readelf is missing: Debian: apt-get install binutils" >&2; exit 3; }

# readelf also reads programs of other architectures, unlike objdump. LC_ALL stops it from translating its output.
libraries=$(LC_ALL=C readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort)
symbols=$(LC_ALL=C readelf -W --dyn-syms "$program" | grep -o '@GLIBC_[0-9.]*' | sed 's/.*_//' | sort -Vu)
found=$(tail -1 <<<"$symbols")
echo "$program needs $(tr '\n' ' ' <<<"$libraries"), glibc $found"
for library in $libraries; do
  case $library in
    libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux-*.so.*) ;;
    *) echo "dist: $program needs $library, which is not part of glibc" >&2; exit 1 ;;
  esac
done
if [ "$(printf '%s\n' "$found" "$newest" | sort -V | tail -1)" != "$newest" ]; then
  echo "dist: $program needs glibc $found, newer than $newest: $(LC_ALL=C readelf -W --dyn-syms "$program" | grep -o "[^ ]*@GLIBC_$found" | sort -u | tr '\n' ' ')" >&2
  exit 1
fi

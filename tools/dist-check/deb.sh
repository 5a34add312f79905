#!/usr/bin/env bash
# Installs the Debian package in a minimal Debian 12, runs the program, and removes it. Nothing may be left.
# shellcheck source=tools/dist-check/common.sh
. "$(dirname "$0")/common.sh"

need_roots
deb=$out/wingbeat_${version}_$(dpkg --print-architecture).deb
[ -e "$deb" ] || missing "$deb is missing" "make dist PARTS=deb"
root=$(root minimal bookworm --variant=minbase)
run() { inside "$@"; }
list() { (cd "$root" && find . -path ./proc -prune -o -path ./dev -prune -o -path ./var/lib/dpkg -prune -o -path ./root -prune -o -path ./var/log -prune -o -print | sort); }

list >"$work/before"
cp "$deb" "$root/tmp/wingbeat.deb"
step "dpkg -i"
inside "$root" dpkg -i /tmp/wingbeat.deb >"$work/log" 2>&1 || fail "$(cat "$work/log")"
rm "$root/tmp/wingbeat.deb"
ok "$(list | comm -13 "$work/before" - | grep -c .) files and folders"
for file in usr/share/man/man1/wingbeat.1.gz usr/share/bash-completion/completions/wingbeat usr/share/doc/wingbeat/copyright; do
  # dpkg excludes no paths in a root of the variant minbase, so all files of the package are there.
  [ -e "$root/$file" ] || fail "the package lacks /$file"
done
try_program "$root/root" "$root" wingbeat
step "dpkg --purge"
inside "$root" dpkg --purge wingbeat >"$work/log" 2>&1 || fail "$(cat "$work/log")"
list | diff "$work/before" - >"$work/left" || fail "files are left: $(cat "$work/left")"
ok "nothing is left"

#!/usr/bin/env bash
# Runs tools/install.sh with a server of this machine that has the files of target/dist: with curl, with wget, and with a damaged tarball.
# shellcheck source=tools/dist-check/common.sh
. "$(dirname "$0")/common.sh"

name=wingbeat-linux-$(uname -m).tar.gz
[ -e "$out/$name" ] || missing "$out/$name is missing" "make dist PARTS=linux-$(uname -m)"
mkdir "$work/release"
cp "$out/$name" "$out/SHA256SUMS" "$work/release"
python3 -u -m http.server --bind 127.0.0.1 --directory "$work/release" 0 >"$work/server" 2>/dev/null &
started+=($!)
for ((i = 0; i < 100; i++)); do
  grep -q port "$work/server" && break
  sleep 0.1
done
address=http://127.0.0.1:$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$work/server")

# Makes a folder with only the tools that the script may use.
tools() { # FOLDER, TOOL…
  mkdir -p "$1"
  for tool in "${@:2}"; do ln -sf "$(command -v "$tool")" "$1/$tool"; done
}
common=(sh uname ls sed cut mktemp tar gzip rm cp mv mkdir head)

install() { # NAME, TOOL…
  local home=$work/$1
  mkdir -p "$home"
  tools "$home/tools" "${common[@]}" "${@:2}"
  env -i HOME="$home" PATH="$home/tools" WINGBEAT_RELEASE="$address" sh tools/install.sh
}

step "with curl and sha256sum"
install curl curl sha256sum
[ "$("$work/curl/.local/bin/wingbeat" generate --device cpu --temperature 0 -n 24 "$prompt")" = "$text" ] || fail "another text"
step "again, over the installed program"
install curl curl sha256sum
if command -v wget >/dev/null && command -v shasum >/dev/null; then
  step "with wget and shasum"
  install wget wget shasum perl
fi
step "without curl and wget"
if install neither sha256sum 2>"$work/errors"; then fail "it was installed"; fi
ok "$(cat "$work/errors")"
step "a damaged tarball"
printf 'x' | dd of="$work/release/$name" bs=1 seek=1000 conv=notrunc status=none
if install damaged curl sha256sum 2>"$work/errors"; then fail "it was installed"; fi
[ ! -e "$work/damaged/.local" ] || fail "files are left"
ok "$(cat "$work/errors")"
step "an address that answers nothing"
if (address=http://127.0.0.1:1; install closed curl sha256sum) 2>"$work/errors"; then fail "it was installed"; fi
ok "$(tail -1 "$work/errors")"

#!/usr/bin/env bash
# Does the steps of the Containerfile in a root of Debian 12, and runs the program as its user: on the CPU, on the image's Vulkan driver, and
# as a server with its health check.
# shellcheck source=tools/dist-check/common.sh
. "$(dirname "$0")/common.sh"

need_roots
debian=$(dpkg --print-architecture)
deb=$out/wingbeat_${version}_$debian.deb
[ -e "$deb" ] || missing "$deb is missing" "make dist PARTS=deb"
root=$(root minimal bookworm --variant=minbase)
cp /etc/resolv.conf "$root/etc/resolv.conf"

# container.py runs each RUN step in a new bash, which calls these functions.
inside_step() { RUN_ENV="PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" inside "$root" "$@"; }
export -f inside inside_step
export root
step "the steps of the Containerfile"
# shellcheck disable=SC2016  # the inner shell expands these
TARGETARCH=$debian tools/dist-check/container.py Containerfile "$out" "$root" bash -c 'inside_step "$@"' step >"$work/settings.json" 2>"$work/log" ||
  fail "$(tail -20 "$work/log")"
ok "$(du -sm "$root" | cut -f1) MB, $(inside "$root" dpkg-query -W | wc -l) packages"

setting() { python3 -c 'import json,sys; print(eval("json.load(open(sys.argv[1]))" + sys.argv[2]))' "$work/settings.json" "$1"; }
user=$(setting '["user"]')
[ "$user" != root ] || fail "the program runs as root"
# `inside` reads both variables. chroot looks up user names outside the root, so RUN_AS has numbers.
RUN_AS=$(inside "$root" id -u "$user"):$(inside "$root" id -g "$user") RUN_HOME=/home/$user
export RUN_AS RUN_HOME
step "user"
ok "$(inside "$root" id)"
entry=$(setting '["entrypoint"][0]')

run() { inside "$@"; }
try_program "$root$RUN_HOME" "$root" "$entry"
step "generate on the image's Vulkan driver"
found=$(inside "$root" "$entry" generate --device gpu --temperature 0 -n 24 "$prompt")
[ "$found" = "$text" ] || fail "expected \"$text\", found \"$found\""
ok "$(inside "$root" "$entry" devices | grep gpu:0 | cut -c1-60)"

step "health check"
mapfile -t health < <(python3 -c 'import json,sys; print("\n".join(json.load(open(sys.argv[1]))["health"]))' "$work/settings.json")
# The root shares the network of this machine, where 8080 may be in use.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
health=("${health[@]//8080/$port}")
if inside "$root" "${health[@]}" 2>/dev/null; then fail "it succeeds without a server"; fi
REPLACE=1 inside "$root" "$entry" serve --device cpu --port "$port" >"$work/serve" 2>&1 &
server=$!
started+=("$server")
for ((i = 0; i < 100; i++)); do
  if inside "$root" "${health[@]}" 2>/dev/null; then break; fi
  kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat "$work/serve")"
  sleep 0.2
done
inside "$root" "${health[@]}" || fail "it fails: $(cat "$work/serve")"
ok "fails without a server, succeeds with one"

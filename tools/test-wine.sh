#!/usr/bin/env bash
# Smoke test of the Windows program under Wine: the embedded model on the CPU and, if Wine has Vulkan, on the first GPU or software driver;
# then doctor on the CPU.
# usage: test-wine.sh [PROGRAM]      default: the program of `make dist PARTS=windows`
# Exits with 0 and prints SKIPPED if Wine or the program is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:-}
if [ -z "$program" ]; then
  for program in target/dist-files/wingbeat-*-windows-x86_64/wingbeat.exe; do :; done
fi
skip() { echo "SKIPPED: $1"; exit 0; }
[ -e "$program" ] || skip "no Windows program (make dist PARTS=windows)"
wine=$(command -v wine64 || command -v wine || ls /usr/lib/wine/wine64 2>/dev/null) || skip "no Wine (Debian: apt-get install wine wine64)"
program=$(realpath "$program")

work=$(mktemp -d)
server=
# shellcheck disable=SC2317  # the trap calls it
finish() {
  WINEPREFIX=$work/prefix "$(dirname "$wine")/wineserver" -k 2>/dev/null || WINEPREFIX=$work/prefix wineserver -k 2>/dev/null || true
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
export WINEPREFIX=$work/prefix WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
export XDG_RUNTIME_DIR=$work WINGBEAT_CACHE=$work/cache
mkdir "$work/bin"
cp "$program" "$work/bin/wingbeat.exe"

# Wine 8 lacks this library, from which Rust's standard library gets random numbers. This replacement calls a function that Wine has.
libraries=(/usr/lib/*/wine/x86_64-windows /usr/lib*/wine/x86_64-windows /opt/wine*/lib*/wine/x86_64-windows)
if ! find "${libraries[@]}" -name bcryptprimitives.dll 2>/dev/null | grep -q .; then
  # shellcheck source=tools/dist/common.sh
  zig=$(. tools/dist/common.sh; zig 2>/dev/null; command -v python-zig) || skip "no zig, which compiles a library that Wine lacks"
  cat >"$work/random.c" <<'C'
unsigned char __stdcall SystemFunction036(void *, unsigned long);
__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *data, unsigned long long n) { return SystemFunction036(data, (unsigned long)n); }
C
  "$zig" cc -target x86_64-windows-gnu -shared -o "$work/bin/bcryptprimitives.dll" "$work/random.c" -ladvapi32
  WINEDLLOVERRIDES="$WINEDLLOVERRIDES;bcryptprimitives=n"
fi

# Vulkan needs a window system.
if command -v Xvfb >/dev/null; then
  mkfifo "$work/display"
  Xvfb -displayfd 3 -screen 0 640x480x24 -nolisten tcp 3>"$work/display" 2>/dev/null &
  server=$!
  DISPLAY=:$(head -1 "$work/display")
  export DISPLAY
fi

run() { HOME=$work timeout 300 "$wine" "$work/bin/wingbeat.exe" "$@" 2>"$work/errors" | tr -d '\r'; }
failed=0
check() { # NAME, EXPECTED, COMMAND…
  local name=$1 expected=$2 found
  shift 2
  found=$("$@") || true
  if [ "$found" = "$expected" ]; then
    echo "$name:$found"
  else
    printf '%s: expected\n%s\nfound\n%s\n' "$name" "$expected" "$found" >&2
    tail -5 "$work/errors" >&2
    failed=1
  fi
}

prompt=$'User: Tell me a story about a fox.\n\nAssistant:'
text=" Once upon a time, a fox named Poppy lived in the garden. One day in spring, Poppy went for a walk"
run --version >"$work/version" || { cat "$work/errors" >&2; exit 1; }
head -1 "$work/version"
check CPU "$text" run generate --device cpu --temperature 0 -n 24 "$prompt"
if run devices --backend vulkan --json | grep -q '"id":"gpu:'; then
  check Vulkan "$text" run generate --device gpu --backend vulkan --no-cache --temperature 0 -n 24 "$prompt"
else
  echo "SKIPPED Vulkan: Wine finds no adapter (Debian: apt-get install xvfb mesa-vulkan-drivers libvulkan1)"
fi
run doctor --device cpu | tail -1
exit $failed

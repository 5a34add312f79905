#!/usr/bin/env bash
# Measures how long a program takes from its start to the first token of the embedded model: without compiled kernels (cold), and with the kernels
# that the run before has kept (warm). Drivers' own disk caches are off.
#
# usage: tools/start-time.sh [--binary PATH] [--rounds N]
#   --binary PATH  program to run (default target/release/wingbeat)
#   --rounds N     runs of each kind (default 3); the table has the medians
#
# Drivers: the CPU, the system's GPU, lavapipe of Debian unstable, and Mesa's drivers for AMD, NVIDIA and Apple GPUs that are not here: these compile
# all kernels and execute nothing (tools/mesa.sh). Needs bash and python3.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=benches/options.sh
. benches/options.sh

binary=target/release/wingbeat rounds=3
options binary rounds -- "$@"
positive rounds
[ -x "$binary" ] || die "no program at $binary"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MESA_SHADER_CACHE_DISABLE=true WINGBEAT_TUNE=0 WINGBEAT_CACHE=$work/cache

# NAME DEVICE COMMAND…: runs the program through COMMAND
measure() {
  local name=$1 device=$2 kind
  shift 2
  for ((round = 0; round < rounds; round++)); do
    rm -rf "$work/cache"
    for kind in cold warm; do
      python3 - "$work/$kind" "$@" "$binary" generate --device "$device" -v -n 1 In <<'PY' || { echo "$name: SKIPPED, the program failed"; return; }
import re, subprocess, sys, time

started = time.monotonic()
ran = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
took = time.monotonic() - started
if ran.returncode:
    sys.exit(1)
unit = {"s": 1, "ms": 1e-3, "µs": 1e-6}
kernels = [float(n) * unit[u] for n, u in re.findall(r"kernel .* in ([\d.]+)(s|ms|µs)$", ran.stderr, re.M)]
with open(sys.argv[1], "a") as f:
    print(took, len(kernels), sum(kernels), file=f)
PY
    done
  done
  python3 - "$work" "$name" <<'PY'
import statistics, sys

folder, name = sys.argv[1:]
rows = {kind: [list(map(float, line.split())) for line in open(f"{folder}/{kind}")] for kind in ("cold", "warm")}
cold, warm = ([statistics.median(column) for column in zip(*rows[kind])] for kind in ("cold", "warm"))
print(f"{name:40} {cold[0]:6.2f} s cold {warm[0]:6.2f} s warm; {cold[1]:3.0f} kernels, compiled one after the other: {cold[2]:5.2f} s")
PY
  rm -f "$work"/cold "$work"/warm
}

measure CPU cpu env
measure "this system's adapter" gpu env
measure "this system's adapter, groups" gpu env WINGBEAT_KERNELS=groups
if root=$(tools/mesa.sh sid); then
  libraries=$(echo "$root"/usr/lib/*-linux-gnu)
  loader=$(echo "$root"/lib*/ld-linux-*.so.*)
  icd=$root/usr/share/vulkan/icd.d
  measure "lavapipe of Debian unstable, groups" gpu env WINGBEAT_KERNELS=groups "VK_DRIVER_FILES=$icd/lvp_icd.json" "$loader" --library-path "$libraries"
  while read -r name driver shim setting; do
    # No kernel runs there, so the self-test of cooperative matrices would fail.
    measure "$name, compiled only" gpu env WINGBEAT_COOPERATIVE=0 "LD_PRELOAD=$libraries/lib${shim}_noop_drm_shim.so" \
      "VK_DRIVER_FILES=$icd/${driver}_icd.json" "$setting" "$loader" --library-path "$libraries"
  done <<'LIST'
RADV,gfx1201 radeon amdgpu AMDGPU_GPU_ID=gfx1201
NVK,Ada nouveau nouveau NOUVEAU_CHIPSET=192
Honeykrisp,M1 asahi asahi ASAHI_SHIM=m1
LIST
fi

#!/usr/bin/env bash
# Runs the kernels and three models through OpenGL, with the kernels of software adapters and with those of real GPUs. The models must
# continue a prompt greedily as on the CPU.
# usage: test-gl.sh [PROGRAM]      default: the program that `make test` has built
# Exits with 0 and prints SKIPPED if this machine has no OpenGL.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:-$(tools/setup.sh program debug)}
WINGBEAT_CACHE=$(mktemp -d)
trap 'rm -rf "$WINGBEAT_CACHE"' EXIT
export WINGBEAT_CACHE
unset WINGBEAT_DEVICE WINGBEAT_KERNELS
if ! "$program" devices --backend gl --json 2>/dev/null | grep -q '"id":"gpu:'; then
  echo "SKIPPED: no OpenGL (Debian: apt-get install libegl1 libgles2 libgl1-mesa-dri)"
  exit 0
fi

failed=0
for kernels in lanes groups; do
  echo "-- kernels $kernels"
  export WINGBEAT_KERNELS=$kernels
  if "$program" doctor --device gpu --backend gl >"$WINGBEAT_CACHE/page"; then
    tail -1 "$WINGBEAT_CACHE/page"
  else
    cat "$WINGBEAT_CACHE/page" >&2
    failed=1
  fi
  for model in tests/models/tiny-rwkv4.safetensors tests/models/tiny-rwkv6.safetensors tests/models/tiny-glm4; do
    options=(-m "$model" --vocab tiny --temperature 0 -n 24 $'User: light\n\nAssistant:')
    expected=$("$program" generate --device cpu "${options[@]}") || failed=1
    found=$("$program" generate --device gpu --backend gl "${options[@]}") || failed=1
    if [ -n "$expected" ] && [ "$found" = "$expected" ]; then
      echo "$model: as on the CPU"
    else
      printf '%s differs: on the CPU\n%s\nthrough OpenGL\n%s\n' "$model" "$expected" "$found" >&2
      failed=1
    fi
  done
done
exit $failed

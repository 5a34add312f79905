#!/usr/bin/env bash
# Runs all tests once for each variant of kernels and drivers on this machine. A missing variant prints SKIPPED.
set -euo pipefail
cd "$(dirname "$0")/.."

swiftshader=/usr/lib/chromium/vk_swiftshader_icd.json
failed=()

pass() { # NAME VARIABLE=VALUE…
  local name=$1
  shift
  printf '\n== %s %s\n' "$name" "$*"
  # The clients of the server run once, at the end.
  env WINGBEAT_SKIP_CLIENTS=1 "$@" tools/test.sh || failed+=("$name")
}

pass "defaults"
pass "checked shaders" WINGBEAT_CHECKED_SHADERS=1
pass "kernels of real GPUs" WINGBEAT_KERNELS=groups
pass "kernels of real GPUs without subgroups" WINGBEAT_KERNELS=groups WINGBEAT_SUBGROUPS=0
pass "sampling on the device" WINGBEAT_DRAWS=device
pass "kernels of software adapters" WINGBEAT_KERNELS=lanes
# Most matrices of the tests have more than 10000 bytes, so they are split by rows.
pass "split matrices" WINGBEAT_MAX_BINDING=10000
if [ -e "$swiftshader" ]; then
  # Vulkan loaders before 1.3.207 read the second variable.
  pass "a second driver" VK_DRIVER_FILES="$swiftshader" VK_ICD_FILENAMES="$swiftshader"
else
  printf '\n== a second driver\nSKIPPED: no %s (Debian: apt-get install chromium)\n' "$swiftshader"
fi
printf '\n== a newer driver, with cooperative matrices\n'
tools/test-lavapipe.sh || failed+=("a newer driver")
printf '\n== OpenGL\n'
tools/test-gl.sh || failed+=("OpenGL")
printf '\n== the Windows program under Wine\n'
tools/test-wine.sh || failed+=("the Windows program")
printf '\n== compilers of real GPUs\n'
tools/gpu-compile.sh stock newer other hlsl || failed+=("compilers of real GPUs")
printf '\n== the server: all clients, load, operation\n'
tools/test-serve.sh long || failed+=("the server")
printf '\n== the chat page in a browser\n'
tools/test-page.sh || failed+=("the chat page")
tools/test-web.sh long || failed+=("the package for browsers")
printf '\n== the Python package\n'
tools/test-python.sh long || failed+=("the Python package")
tools/test-deploy.sh || failed+=("the group of servers in deploy/")
command -v spirv-val >/dev/null || printf '\nSKIPPED: shaders were not checked with spirv-val (Debian: apt-get install spirv-tools)\n'

if [ ${#failed[@]} -gt 0 ]; then
  printf '\nfailed:'
  printf ' "%s"' "${failed[@]}"
  printf '\n'
  exit 1
fi
printf '\nall passed\n'

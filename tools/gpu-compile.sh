#!/usr/bin/env bash
# Compiles every kernel with the compilers of real GPUs, and compares registers, occupancy and code size with the tables in
# benches/compiled. Needs no GPU. Linux only.
#   tools/gpu-compile.sh                  AMD's GPUs of Debian's own Mesa (the gate runs four of these)
#   tools/gpu-compile.sh newer            AMD's newer GPUs: downloads Mesa (Debian's backports and unstable) into a cache folder
#   tools/gpu-compile.sh other            NVIDIA (NVK) and Apple (Honeykrisp), with Mesa of Debian unstable
#   tools/gpu-compile.sh hlsl             the kernels as HLSL, with Slang's compiler from PyPI
#   tools/gpu-compile.sh navi21 ada …     some GPUs
# All other options go to the program: --bless writes the tables anew, --only TEXT prints statistics of some kernels, --assembly FOLDER
# writes machine code. A GPU whose driver this machine lacks is SKIPPED; with WINGBEAT_REQUIRE_GPU=1 that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

stock="navi21 navi10 vega10 renoir polaris10 vangogh"
newer="navi31 gfx1201"
other="ada m1"

gpus=() options=()
while [ $# -gt 0 ]; do
  case $1 in
    stock) gpus+=($stock) ;;
    newer) gpus+=($newer) ;;
    other) gpus+=($other) ;;
    --only | --assembly | --tables) options+=("$1" "$2"); shift ;;
    --*) options+=("$1") ;;
    *) gpus+=("$1") ;;
  esac
  shift
done
[ ${#gpus[@]} -gt 0 ] || gpus=($stock)

if [ "$(uname -s)" != Linux ]; then
  echo "SKIPPED: only Linux has drivers that compile for absent GPUs"
  exit 0
fi

program=$(${CARGO:-cargo} build --quiet --bench gpu_compile --message-format json |
  grep -o '"executable":"[^"]*gpu_compile-[^"]*"' | tail -1 | cut -d'"' -f4)
arch=$(uname -m)
export MESA_SHADER_CACHE_DISABLE=true

# unpacked GPU RELEASE DRIVER SHIM VARIABLE=VALUE [OPTION…]: compiles with a driver of another Debian release.
unpacked() {
  local gpu=$1 release=$2 driver=$3 shim=$4 setting=$5 root
  shift 5
  root=$(tools/mesa.sh "$release") || return 3
  local libraries=$root/usr/lib/$arch-linux-gnu
  local start=(env "LD_PRELOAD=$libraries/lib${shim}_noop_drm_shim.so" "VK_DRIVER_FILES=$root/usr/share/vulkan/icd.d/${driver}_icd.json" "$setting")
  case $release in
    # Debian unstable has a newer C library. Its own loader runs the program with it.
    sid) start+=("$root"/lib*/ld-linux-*.so.* --library-path "$libraries") ;;
    *) start+=("LD_LIBRARY_PATH=$libraries") ;;
  esac
  "${start[@]}" "$program" --gpu "$gpu" "$@" 2> >(grep -v 'DRM_IOCTL\|drm shim' >&2)
}

# Compiles each kernel's HLSL, as Direct3D 12 would. Prints the compiler's first message for each kernel that it refuses.
hlsl() {
  local slangc folder failed=0
  slangc=$(tools/slangc.sh) || return 3
  folder=$(mktemp -d)
  "$program" --hlsl "$folder" || failed=1
  printf '%s\n' "$folder"/*.hlsl |
    xargs -P "$(nproc)" -I{} sh -c '"$0" "$1" -lang hlsl -entry main -profile cs_6_5 -target hlsl -o /dev/null >"$1.log" 2>&1 || echo "$1"' "$slangc" {} >"$folder/refused"
  while read -r file; do
    echo "FAILED hlsl: $(head -1 "$file"): $(grep -m1 '^error' "$file.log")"
    failed=1
  done <"$folder/refused"
  echo "hlsl: $(find "$folder" -name '*.hlsl' | wc -l) kernels, $("$slangc" -v 2>&1 | tail -1)"
  rm -r "$folder"
  return $failed
}

compile() {
  local gpu=$1
  case $gpu in
    hlsl) hlsl ;;
    navi31) unpacked $gpu backports radeon amdgpu AMDGPU_GPU_ID=navi31 "${options[@]}" ;;
    gfx1201) unpacked $gpu sid radeon amdgpu AMDGPU_GPU_ID=gfx1201 "${options[@]}" ;;
    ada) unpacked $gpu sid nouveau nouveau NOUVEAU_CHIPSET=192 --adapter nvk "${options[@]}" ;;
    m1) unpacked $gpu sid asahi asahi ASAHI_SHIM=m1 "${options[@]}" ;;
    *)
      local icd=/usr/share/vulkan/icd.d/radeon_icd.$arch.json
      if [ ! -e "$icd" ]; then
        echo "SKIPPED $gpu: $icd is missing (package mesa-vulkan-drivers)"
        return 3
      fi
      RADV_FORCE_FAMILY=$gpu VK_DRIVER_FILES=$icd "$program" --gpu "$gpu" "${options[@]}" ;;
  esac
}

failed=0
for gpu in "${gpus[@]}"; do
  status=0
  compile "$gpu" || status=$?
  if [ $status -eq 3 ] && [ "${WINGBEAT_REQUIRE_GPU:-0}" != 1 ]; then status=0; fi
  [ $status -eq 0 ] || failed=1
done
exit $failed

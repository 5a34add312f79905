#!/usr/bin/env bash
# Compare wingbeat's CPU executor with llama.cpp: same synthetic RWKV-7 or GLM-4 weights, both engines in turn (A B A B …), medians and ratios.
#
# usage: benches/compare_llama_cpp.sh [--rounds N] [--model NAME] [--formats LIST] [--activations LIST] [--prompt LIST] [--gen G] [--depth D]
#                                       [--threads T]
#   --rounds N      runs of each engine (default 3)
#   --model M       an RWKV-7 or GLM-4 by its `wingbeat bench --synthetic` name (default rwkv7-0.1b)
#   --formats LIST  weight formats (default f16,i8,i4). f16, i8 and i4 are wingbeat's; llama.cpp's files then have F16, Q8_0 and Q4_0. Other names are
#                   types of llama-quantize in lower case (q8_0, q4_0, q4_k_m, …); then both engines run the same file
#   --activations LIST  wingbeat's activations: auto, i8, float (default auto); llama.cpp always rounds them
#   --prompt LIST   prefill lengths in tokens (default 128,512)
#   --gen G         tokens to decode (default 64)
#   --depth D       tokens that are read before decoding (default 0)
#   --threads T     threads of both engines (default: all cores)
#
# Environment:
#   WINGBEAT           the wingbeat binary (default: built from this checkout with `cargo build --release`)
#   LLAMA_BENCH        the binary llama-bench; LLAMA_QUANTIZE the binary llama-quantize (default: built from PyPI's source package
#                      llama-cpp-python for this processor, minutes the first time)
#   LLAMA_CPP_PYTHON   the version of that package (default 0.3.36)
#   WINGBEAT_PEERS     folder for the peer's source and build, the models and the logs (default target/peers)
#
# llama.cpp is compiled without AMX: with it, prefill of Q8_0 crashed in version 0.3.36 of the package.
#
# Needs bash, cargo, a C++ compiler, and python3 with venv; cmake, ninja and gguf come from PyPI.
set -euo pipefail

# shellcheck source=benches/options.sh
. "$(dirname "$0")/options.sh"

rounds=3 model=rwkv7-0.1b formats=f16,i8,i4 activations=auto prompt=128,512 gen=64 depth=0 threads=$(nproc)
options rounds model formats activations prompt gen depth threads -- "$@"
positive rounds gen threads
command -v python3 >/dev/null || die "python3 not found"
[[ $model == rwkv7-* || $model == glm4-* ]] || die "--model: expected the name of a synthetic RWKV-7 or GLM-4, found '$model'" 2
[[ $depth =~ ^[0-9]+$ ]] || die "--depth: expected a whole number, found '$depth'" 2

root=$(cd "$(dirname "$0")/.." && pwd)
peers=${WINGBEAT_PEERS:-$root/target/peers}
version=${LLAMA_CPP_PYTHON:-0.3.36}
mkdir -p "$peers/logs"
peers=$(cd "$peers" && pwd)

# --- llama.cpp: the source inside PyPI's package, built with cmake -------------------------------------------------------

venv=$peers/venv-llama
if [ ! -e "$venv/complete" ]; then
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet cmake ninja gguf numpy safetensors
  touch "$venv/complete"
fi
if [ -n "${LLAMA_BENCH:-}" ]; then
  bench=$LLAMA_BENCH quantize=${LLAMA_QUANTIZE:-$(dirname "$LLAMA_BENCH")/llama-quantize}
else
  source_dir=$peers/llama_cpp_python-$version
  build=$peers/build-llama-$version
  bench=$build/bin/llama-bench quantize=$build/bin/llama-quantize
  if [ ! -d "$source_dir" ]; then
    "$venv/bin/pip" download --quiet --no-deps --no-binary llama-cpp-python -d "$peers" "llama-cpp-python==$version"
    rm -rf "$peers/part-llama"
    mkdir "$peers/part-llama"
    tar xf "$peers/llama_cpp_python-$version.tar.gz" -C "$peers/part-llama"
    mv "$peers/part-llama/llama_cpp_python-$version" "$source_dir"
  fi
  flags=
  [ "$(uname -m)" = x86_64 ] && flags="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
  export PATH=$venv/bin:$PATH
  cmake -S "$source_dir/vendor/llama.cpp" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" -DGGML_CCACHE=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF >"$peers/logs/cmake.log" 2>&1 || die "cmake failed, see $peers/logs/cmake.log"
  cmake --build "$build" --target llama-bench llama-quantize -j "$(nproc)" >>"$peers/logs/cmake.log" 2>&1 ||
    die "the build of llama.cpp failed, see $peers/logs/cmake.log"
fi
[ -x "$bench" ] || die "no executable at $bench"

# --- wingbeat and the files with the same weights ------------------------------------------------------------------------

wingbeat=$(program "$root")

file=$peers/$model.safetensors
if [ ! -f "$file" ]; then
  "$wingbeat" bench --synthetic "$model" --write "$peers/part-$model.safetensors" -p 0 -n 0 >"$peers/logs/write.log"
  mv "$peers/part-$model.safetensors" "$file"
fi
if [ ! -f "$peers/$model-f16.gguf" ]; then
  "$venv/bin/python" "$root/benches/${model%%-*}_gguf.py" "$file" "$peers/part.gguf"
  mv "$peers/part.gguf" "$peers/$model-f16.gguf"
fi
IFS=, read -ra kinds <<<"$activations"
declare -A types=([f16]=F16 [i8]=Q8_0 [i4]=Q4_0) ours=()
IFS=, read -ra formats <<<"$formats"
for format in "${formats[@]}"; do
  gguf=$peers/$model-$format.gguf
  case $format in
    f16) ours[$format]="-m $file --dtype f16" ;;
    i8 | i4) ours[$format]="-m $file --quant $format" ;;
    *[!a-z0-9_]*) die "--formats: expected names such as f16, i8 or q4_k_m, found '$format'" 2 ;;
    *) types[$format]=${format^^} ours[$format]="-m $gguf" ;;
  esac
  if [ ! -f "$gguf" ]; then
    pure=--pure
    [[ $format == *_[sml] ]] && pure= # a mix of types
    # shellcheck disable=SC2086
    "$quantize" $pure "$peers/$model-f16.gguf" "$peers/part.gguf" "${types[$format]}" >"$peers/logs/quantize.log" 2>&1 ||
      die "llama-quantize failed, see $peers/logs/quantize.log"
    mv "$peers/part.gguf" "$gguf"
  fi
done

# --- runs ----------------------------------------------------------------------------------------------------------------

rm -f "$peers"/logs/{ours,llama}-*
for ((round = 1; round <= rounds; round++)); do
  for format in "${formats[@]}"; do
    echo "round $round of $rounds, $format" >&2
    # Decoding and prefill run apart: both engines then start each test in the same state.
    for test in "-p 0 -n $gen -d $depth" "-p $prompt -n 0"; do
      name=$format-${test:3:1}-$round
      for kind in "${kinds[@]}"; do
        # shellcheck disable=SC2086
        "$wingbeat" bench ${ours[$format]} --device cpu --activations "$kind" --threads "$threads" $test -r 1 -o json \
          >"$peers/logs/ours-$kind-$name.json" 2>"$peers/logs/ours-$kind-$name.err" || die "wingbeat failed, see $peers/logs/ours-$kind-$name.err"
      done
      # shellcheck disable=SC2086
      "$bench" -m "$peers/$model-$format.gguf" -t "$threads" $test -r 1 -o json >"$peers/logs/llama-$name.json" \
        2>"$peers/logs/llama-$name.err" || die "llama-bench failed, see $peers/logs/llama-$name.err"
    done
  done
done

# --- table -----------------------------------------------------------------------------------------------------------------

python3 - "$peers/logs" "$rounds" "$model" "$threads" "$prompt" "$gen" "$depth" "$activations" "${formats[@]}" <<'PY'
import json, re, statistics, sys

logs, rounds, model, threads, prompt, gen, depth, activations = sys.argv[1:9]
types = {"f16": "F16", "i8": "Q8_0", "i4": "Q4_0"}
tests = [(0, int(gen))] + [(int(p), 0) for p in prompt.split(",")]


def speeds(engine, format, test):
    found = []
    for n in range(1, int(rounds) + 1):
        with open(f"{logs}/{engine}-{format}-{'0' if test[0] == 0 else prompt[0]}-{n}.json") as f:
            found += [float(r["avg_ts"]) for r in json.load(f) if (r["n_prompt"], r["n_gen"]) == test]
    if len(found) != int(rounds):
        sys.exit(f"no figure for {engine} {format} {test}, see {logs}")
    return found


def spread(values):
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


with open("/proc/cpuinfo") as f:
    cpu = dict(re.findall(r"(?m)^(model name|flags)\s*:\s*(.*)$", f.read()))
vectors = [name for name in ("avx2", "avx512f", "avx512_vnni", "amx_tile") if name in cpu.get("flags", "").split()]
print(f"model {model}, {rounds} rounds in turn, {threads} threads, tokens per second: median (min to max); ratio: median of the rounds' ratios")
print(f"{cpu.get('model name', '?')}: {' '.join(vectors)}")
rows = [("test", "wingbeat", "llama.cpp", "ratio")]
for format, kind in [(format, kind) for format in sys.argv[9:] for kind in activations.split(",")]:
    for test in tests:
        ours, theirs = speeds(f"ours-{kind}", format, test), speeds("llama", format, test)
        behind = f" behind {depth}" if int(depth) else ""
        name = f"decode {test[1]}{behind}" if test[0] == 0 else f"prefill {test[0]}"
        ratio = statistics.median(a / b for a, b in zip(ours, theirs))
        rows.append((f"{name}, {format}, {kind} : {types.get(format, format.upper())}", spread(ours), spread(theirs), f"{ratio:.2f}"))
widths = [max(len(row[i]) for row in rows) for i in range(4)]
for row in rows:
    print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
PY

#!/usr/bin/env bash
# Compare wingbeat with web-rwkv on one adapter: same weights, both engines in turn (A B A B …), medians and ratios.
#
# usage: benches/compare_web_rwkv.sh [--rounds N] [--model NAME|FILE] [--prompt P] [--gen G] [--repeat R] [--device D]
#   --rounds N    runs of each engine (default 3)
#   --model M     a synthetic model by its `wingbeat bench --synthetic` name (default rwkv7-0.1b), a checkpoint file, or `all`:
#                 the 0.1b of every version, in turn
#   --prompt P    prefill length in tokens (default 128)
#   --gen G       tokens to decode (default 16)
#   --repeat R    measurements inside one run of an engine, after one that is not counted (default 1)
#   --device D    wingbeat's --device (default gpu)
#
# Environment:
#   WINGBEAT          the wingbeat binary (default: built from this checkout with `cargo build --release`)
#   WEB_RWKV_BENCH    the binary of web-rwkv's bench example (default: built from crates.io's source, minutes the first time)
#   WEB_RWKV_VERSION  which version of the crate to build (default 0.10.20)
#   WINGBEAT_PEERS    folder for the peer's source and build, the models and the logs (default target/peers)
#
# Adapter: web-rwkv always takes wgpu's high-performance adapter. Select the adapter for both engines through the Vulkan loader, e.g.
# VK_DRIVER_FILES=…/lvp_icd.x86_64.json (older loaders: VK_ICD_FILENAMES) for llvmpipe. The script prints the names that both engines
# report, and warns if they differ.
#
# Measured: prefill of P random tokens (`pp`) and greedy decoding of G tokens in one sequence (`tg`), f16 weights, each
# engine's default chunk. web-rwkv's bench is its own example with two changes: a warm-up run, because the example otherwise
# includes the compilation of shaders, and R runs instead of 5.
#
# Needs bash, cargo and python3.
set -euo pipefail

# shellcheck source=benches/options.sh
. "$(dirname "$0")/options.sh"

rounds=3 model=rwkv7-0.1b prompt=128 gen=16 repeat=1 device=gpu
options rounds model prompt gen repeat device -- "$@"
positive rounds prompt gen repeat
command -v python3 >/dev/null || die "python3 not found"
if [ "$model" = all ]; then
  for version in 4 5 6 7; do
    "$0" --rounds "$rounds" --model "rwkv$version-0.1b" --prompt "$prompt" --gen "$gen" --repeat "$repeat" --device "$device"
  done
  exit
fi
if [ -e "$model" ]; then
  model=$(realpath "$model")
fi

root=$(cd "$(dirname "$0")/.." && pwd)
peers=${WINGBEAT_PEERS:-$root/target/peers}
version=${WEB_RWKV_VERSION:-0.10.20}
mkdir -p "$peers/logs"
peers=$(cd "$peers" && pwd)

# --- web-rwkv: let cargo fetch the crate, copy the source out of its registry, build the bench example there ----------

fetch_web_rwkv() { # DESTINATION
  local probe=$peers/fetch-$version
  mkdir -p "$probe/src"
  printf '[package]\nname = "fetch-web-rwkv"\nversion = "0.0.0"\nedition = "2021"\n\n' >"$probe/Cargo.toml"
  printf '[dependencies]\nweb-rwkv = "=%s"\n\n[workspace]\n' "$version" >>"$probe/Cargo.toml"
  : >"$probe/src/lib.rs"
  local host manifest
  host=$(rustc -vV | sed -n 's/^host: //p')
  cargo metadata --quiet --format-version 1 --filter-platform "$host" --manifest-path "$probe/Cargo.toml" >"$probe/metadata.json"
  manifest=$(python3 -c '
import json, sys
packages = json.load(open(sys.argv[1]))["packages"]
print(next(p["manifest_path"] for p in packages if p["name"] == "web-rwkv"))' "$probe/metadata.json")
  rm -rf "$1.part"
  cp -R "$(dirname "$manifest")" "$1.part"
  chmod -R u+w "$1.part"
  # The copy must not be a member of an outer workspace.
  grep -q '^\[workspace\]' "$1.part/Cargo.toml" || printf '\n[workspace]\n' >>"$1.part/Cargo.toml"
  warm_up_first "$1.part/examples/bench.rs"
  mv "$1.part" "$1"
}

warm_up_first() { # FILE: the two changes named in the header, refused when the example does not look as expected
  python3 - "$1" <<'PY'
import sys

path = sys.argv[1]
text = open(path).read()
for count, old, new in [
    (1, "const REPEAT: usize = 5;",
     'static REPEAT: std::sync::LazyLock<usize> =\n'
     '    std::sync::LazyLock::new(|| std::env::var("BENCH_REPEAT").map_or(5, |n| n.parse().unwrap()));'),
    (2, "for _ in 0..REPEAT {", "for run in 0..=*REPEAT {"),
    (1, "prefill += duration;", "if run > 0 {\n                    prefill += duration;\n                }"),
    (1, "generation += instant.elapsed();", "if run > 0 {\n            generation += instant.elapsed();\n        }"),
    (2, "* REPEAT as f64", "* *REPEAT as f64"),
]:
    if text.count(old) != count:
        sys.exit(f"{path}: expected {count} times `{old}`, found {text.count(old)}; does this script know the version?")
    text = text.replace(old, new)
open(path, "w").write(text)
PY
}

if [ -n "${WEB_RWKV_BENCH:-}" ]; then
  web_rwkv=$WEB_RWKV_BENCH
else
  source_dir=$peers/web-rwkv-$version
  web_rwkv=$peers/build/release/examples/bench
  [ -d "$source_dir" ] || fetch_web_rwkv "$source_dir"
  cargo build --quiet --locked --release --example bench --manifest-path "$source_dir/Cargo.toml" --target-dir "$peers/build"
fi
[ -x "$web_rwkv" ] || die "no executable at $web_rwkv"

# --- wingbeat and the two files with the same weights ------------------------------------------------------------------

wingbeat=$(program "$root")

if [ -f "$model" ]; then
  file=$model
elif [[ $model =~ ^[A-Za-z0-9._-]+$ ]]; then
  file=$peers/$model.safetensors
  if [ ! -f "$file" ]; then
    "$wingbeat" bench --synthetic "$model" --write "$peers/part-$model.safetensors" -p 0 -n 0 >"$peers/logs/write.log"
    mv "$peers/part-$model.safetensors" "$file"
  fi
else
  die "$model is neither a file nor the name of a synthetic model"
fi
# The converted copy is named after the whole path, so that two files of one name do not share it.
stem=$(basename "$file")
peer_file=$peers/${stem%.*}-$(printf %s "$file" | cksum | cut -d' ' -f1).st
if [ ! -f "$peer_file" ] || [ "$file" -nt "$peer_file" ]; then
  rm -f "$peers/part-convert.st"
  "$wingbeat" convert "$file" "$peers/part-convert.st" --layout web-rwkv >"$peers/logs/convert.log"
  mv "$peers/part-convert.st" "$peer_file"
fi

# --- runs ----------------------------------------------------------------------------------------------------------------

rm -f "$peers"/logs/{wingbeat,web-rwkv}-*
for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds" >&2
  log=$peers/logs/wingbeat-$round
  "$wingbeat" bench -m "$file" --device "$device" -p "$prompt" -n "$gen" -r "$repeat" -o json >"$log.json" 2>"$log.err" ||
    { tail -n 20 "$log.err" >&2; die "wingbeat failed, see $log.err"; }
  log=$peers/logs/web-rwkv-$round
  BENCH_REPEAT=$repeat "$web_rwkv" --model "$peer_file" --adapter --prefill-length "$prompt" --generation-length "$gen" \
    >"$log.md" 2>"$log.err" </dev/null ||
    { tail -n 20 "$log.err" >&2; die "web-rwkv failed, see $log.err"; }
done

# --- table -----------------------------------------------------------------------------------------------------------------

python3 - "$peers/logs" "$rounds" "$prompt" "$gen" "$stem" <<'PY'
import json, os, re, statistics, sys

logs, rounds, prompt, gen, model = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
tests = {f"pp{prompt}": (prompt, 0), f"tg{gen}": (0, gen)}
ours, theirs, adapters = {t: [] for t in tests}, {t: [] for t in tests}, {"wingbeat": "?", "web-rwkv": "?"}
for n in range(1, rounds + 1):
    with open(f"{logs}/wingbeat-{n}.json") as f:
        records = {(r["n_prompt"], r["n_gen"]): r for r in json.load(f)}
    with open(f"{logs}/web-rwkv-{n}.md") as f:
        rows = dict(re.findall(r"\|\s*((?:pp|tg)\d+)\s*\|\s*([\d.]+)\s*\|", f.read()))
    with open(f"{logs}/web-rwkv-{n}.err") as f:
        name = re.search(r'AdapterInfo \{.*?name: "([^"]*)"', f.read(), re.S)
    adapters["web-rwkv"] = name.group(1) if name else "?"
    for test, key in tests.items():
        if key not in records or test not in rows:
            sys.exit(f"round {n}: no figure for {test}, see {logs}")
        adapters["wingbeat"] = records[key].get("gpu_info") or "?"
        driver = records[key]["wingbeat"].get("driver") or "?"
        ours[test].append(float(records[key]["avg_ts"]))
        theirs[test].append(float(rows[test]))

print(f"model {model}, {rounds} rounds in turn, tokens per second: median (min to max); ratio: median of the rounds' ratios")
for engine, name in adapters.items():
    print(f"{engine} on {name}")
# The ratio on a software adapter depends on the processor: on its vector units, caches and number of cores.
with open("/proc/cpuinfo") as f:
    cpu = dict(re.findall(r"(?m)^(model name|cache size|flags)\s*:\s*(.*)$", f.read()))
vectors = [name for name in ("avx2", "avx512f", "avx512_vnni", "amx_tile") if name in cpu.get("flags", "").split()]
print(f"driver {driver}; {os.cpu_count()} cores of {cpu.get('model name', '?')}, cache {cpu.get('cache size', '?')}, {' '.join(vectors)}")
a, b = adapters.values()
if "?" not in (a, b) and a.lower() not in b.lower() and b.lower() not in a.lower():
    print("warning: the two names differ; is it one adapter?", file=sys.stderr)


def spread(values):
    digits = 2 if statistics.median(values) < 100 else 0
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


table = [("test", "wingbeat", "web-rwkv", "ratio")]
for test in tests:
    # A figure of 0.00 has no ratio.
    ratios = [x / y for x, y in zip(ours[test], theirs[test]) if y > 0]
    table.append((test, spread(ours[test]), spread(theirs[test]), spread(ratios) if ratios else "-"))
widths = [max(len(row[i]) for row in table) for i in range(4)]
for i, row in enumerate(table):
    print("| " + " | ".join(c.ljust(w) if j == 0 else c.rjust(w) for j, (c, w) in enumerate(zip(row, widths))) + " |")
    if i == 0:
        print("|" + "|".join("-" * (w + 1) + ("-" if j == 0 else ":") for j, w in enumerate(widths)) + "|")
PY

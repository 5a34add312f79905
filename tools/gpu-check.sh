#!/usr/bin/env bash
# Checks and measures a GPU: every kernel against its reference on the CPU, golden logits, speed beside estimates. Writes one page, one JSON file,
# and one picture per model.
#
# usage: tools/gpu-check.sh [--binary PATH] [--device D] [--out DIR] [--models "NAME …"] [--batches N,…] [--prompt P] [--gen G]
#                     [--predict GPU] [--web-rwkv BINARY] [--beside "NAME …"]
#   --binary PATH  program to run (default target/release/wingbeat)
#   --device D     as wingbeat's --device (default gpu)
#   --out DIR      folder of the results (default benches/results)
#   --models M     synthetic models, in order (default: every size of RWKV-7 and GLM-4, and 0.1b of the others)
#   --batches B    slots that decode together (default 1,2,4,8,32,128)
#   --prompt P     tokens of the prompt (default 512)
#   --gen G        tokens to decode (default 64)
#   --predict GPU  estimate beside each measurement, as `bench --predict` (default: the device, if its name has the name of a known GPU)
#   --seconds S    time limit per model (default 150)
#   --web-rwkv B   binary of web-rwkv's bench example, to run in turn with wingbeat (benches/compare_web_rwkv.sh)
#   --beside M     models for --web-rwkv (default rwkv7-1.5b)
#
# Writes DATE-DEVICE.md, DATE-DEVICE.json and DATE-DEVICE-MODEL.svg after every model, so an interrupted run keeps finished results. Needs bash and
# python3. A model that does not fit is named and skipped. Exit code 3: a result is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=benches/options.sh
. benches/options.sh

binary=target/release/wingbeat device=gpu out=benches/results batches=1,2,4,8,32,128 prompt=512 gen=64 seconds=150
web_rwkv='' beside=rwkv7-1.5b predict=''
models="rwkv7-0.1b rwkv7-1.5b glm4-0.5b rwkv4-0.1b rwkv5-0.1b rwkv6-0.1b rwkv7-0.4b rwkv7-2.9b glm4-9b rwkv7-7.2b"
options binary device out models batches prompt gen seconds predict web-rwkv beside -- "$@"
[ -x "$binary" ] || die "no program at $binary"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$binary" devices --device "$device" --json >"$work/devices.json"
if [ -z "$predict" ]; then
  predict=$(python3 - "$work/devices.json" <<'PY'
import json, sys

devices = json.load(open(sys.argv[1]))
name = next((d for d in devices if d["chosen"]), devices[0])["name"].lower().replace(" ", "")
known = ["4090", "3090", "3060", "h100", "h200", "7900xtx", "780m", "m3"]
print(next((gpu for gpu in known if gpu in name), ""))
PY
  )
fi
wrong=0
"$binary" doctor --full --device "$device" >"$work/doctor.txt" 2>"$work/doctor.err" || wrong=$?
tail -n 20 "$work/doctor.txt"

page() {
  python3 - "$work" "$out" "$wrong" "$*" <<'PY'
import datetime, glob, json, os, re, shutil, sys

work, out, wrong, command = sys.argv[1:5]
devices = json.load(open(f"{work}/devices.json"))
device = next((d for d in devices if d["chosen"]), devices[0])
records = [r for f in sorted(glob.glob(f"{work}/bench-*.json")) if os.path.getsize(f) for r in json.load(open(f))]
estimates = [json.load(open(f))[0] for f in sorted(glob.glob(f"{work}/predict-*.json")) if os.path.getsize(f)]
estimated = {(e["model"], s["test"], s["n_batch"]): s["tokens_per_second"] for e in estimates for s in e["steps"]}
slug = re.sub(r"[^a-z0-9]+", "-", device["name"].lower()).strip("-")
name = f"{out}/{datetime.date.today()}-{slug}"
with open(f"{name}.json", "w") as f:
    json.dump({"device": device, "doctor_exit_code": int(wrong), "records": records, "estimates": estimates}, f, indent=1)
lines = [f"# {datetime.date.today()}: {device['name']}", "", f"Backend {device['backend']}, driver {device['driver']}. `tools/gpu-check.sh`, {command}.", ""]
lines += [f"Estimates are of `bench --predict` for the {estimates[0]['gpu']}.", ""] if estimates else []
lines += ["| model | test | batch | tokens/s | estimate | p50 ms | of the ceiling | dispatches |", "|---|---|--:|--:|--:|--:|--:|--:|"]
for r in records:
    w = r["wingbeat"]
    test = f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}"
    p50 = f"{w['p50_ms']:.2f}" if w["p50_ms"] else "-"
    share = f"{100 * w['share_of_ceiling']:.0f} %" if w["share_of_ceiling"] else "-"
    estimate = estimated.get((r["model_filename"], test, r["n_batch"]))
    estimate = f"{estimate:.0f}" if estimate else "-"
    lines.append(f"| {r['model_filename']} | {test} | {r['n_batch']} | {r['avg_ts']:.1f} ± {r['stddev_ts']:.1f} | {estimate} | {p50} | {share} | {w['dispatches_per_token']} |")
for picture in sorted(glob.glob(f"{work}/bench-*.svg")):
    model = os.path.basename(picture)[9:-4]
    shutil.copy(picture, f"{name}-{model}.svg")
    lines += ["", f"![Speed of {model}]({os.path.basename(name)}-{model}.svg)"]
for e in estimates:
    step = next((s for s in e["steps"] if s["test"].startswith("tg") and s["n_batch"] == 1), None)
    if step:
        lines += ["", f"Estimate for a decoded token of {e['model']}, in ms: " + ", ".join(f"{w['word']} {w['ms']:.3f}" for w in step["words"]) + "."]
for log in sorted(glob.glob(f"{work}/bench-*.err")):
    said = open(log).read().splitlines()
    tables = [i for i, l in enumerate(said) if ": a step of" in l]
    if tables:
        lines += ["", "```", *[l for l in said[tables[0]:] if not l.startswith("error:")], "```"]
    errors = [l for l in said if l.startswith("error:")]
    lines += [f"\n`{os.path.basename(log)[6:-4]}`: {e}" for e in errors]
for log in sorted(glob.glob(f"{work}/beside-*.txt")):
    lines += ["", "Beside web-rwkv, in turn:", "", *open(log).read().splitlines()]
lines += ["", "```", *open(f"{work}/doctor.txt").read().splitlines()[-16:], "```", ""]
with open(f"{name}.md", "w") as f:
    f.write("\n".join(lines))
print(f"{name}.md", file=sys.stderr)
PY
}

i=0
for model in $models; do
  i=$((i + 1))
  file=$(printf '%s/bench-%02d-%s' "$work" "$i" "$model")
  echo "gpu-check: $model" >&2
  timeout "$seconds" "$binary" bench --synthetic "$model" --device "$device" -p "$prompt" -n "$gen" -b "$batches" -r 3 --profile -o json \
    --plot "$file.svg" >"$file.json" 2>"$file.err" || echo "error: $model ended with $?" >>"$file.err"
  if [ -n "$predict" ]; then
    "$binary" bench --synthetic "$model" --predict "$predict" -p "$prompt" -n "$gen" -b "$batches" -o json \
      >"$(printf '%s/predict-%02d.json' "$work" "$i")" 2>>"$file.err" || echo "error: there is no estimate for $model" >>"$file.err"
  fi
  tail -n 3 "$file.err" >&2
  page "models $models, batches $batches, prompt $prompt, gen $gen"
done
for model in ${web_rwkv:+$beside}; do
  echo "gpu-check: $model beside web-rwkv" >&2
  WINGBEAT=$(realpath "$binary") WEB_RWKV_BENCH=$(realpath "$web_rwkv") WINGBEAT_PEERS=$work/peers \
    benches/compare_web_rwkv.sh --model "$model" --device "$device" --prompt "$prompt" --gen "$gen" >"$work/beside-$model.txt" ||
    echo "error: the comparison ended with $?" >>"$work/beside-$model.txt"
  page "models $models, batches $batches, prompt $prompt, gen $gen"
done
exit "$wrong"

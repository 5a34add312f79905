#!/usr/bin/env bash
# Measures the gain of slots: the same prompts through `wingbeat batch` with one slot and with many, in turn. Compares the texts.
#
# usage: benches/batch.sh [--prompts N] [--slots N] [--tokens N] [--rounds N] [--device D] [--model FILE]
#   --prompts N   prompts, of about 3 to 40 tokens (default 200)
#   --slots N     slots of the second run (default 16)
#   --tokens N    tokens of the longest text; texts are of different lengths (default 32)
#   --rounds N    repetitions of each run (default 3); the first one also compiles the kernels
#   --device D    wingbeat's --device (default gpu)
#   --model FILE  a checkpoint (default: the embedded model)
#
# Environment: WINGBEAT, the binary (default: built from this checkout with `cargo build --release`).
#
# Exit code 1: a text differs between one slot and many, which --deterministic must prevent. Needs bash, cargo and jq.
set -euo pipefail

# shellcheck source=benches/options.sh
. "$(dirname "$0")/options.sh"

prompts=200 slots=16 tokens=32 rounds=3 device=gpu model=
options prompts slots tokens rounds device model -- "$@"
positive prompts slots tokens rounds
command -v jq >/dev/null || die "jq not found"

root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${WINGBEAT:-}" ]; then
  cargo build --release --quiet --manifest-path "$root/Cargo.toml"
  WINGBEAT=${CARGO_TARGET_DIR:-$root/target}/release/wingbeat
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# lengths of prompts and texts vary without a common period
jq -nc --argjson n "$prompts" --argjson most "$tokens" '
  ["the fox", "One day in spring", "a girl named Rosa lived in the valley", "berries", "Once upon a time", "bread and honey"] as $words
  | range($n) as $i
  | {id: $i, prompt: ([range(1 + $i % 5) | $words[($i + .) % 6]] | join(", ")),
     max_tokens: ([1, ($most / 4 | floor)] | max | . + ($i * 7) % ($most - . + 1)), ignore_eos: true}
' >"$folder/in.jsonl"

# Prints tokens per second.
run() {
  rm -f "$folder/out-$1.jsonl"
  "$WINGBEAT" batch "$folder/in.jsonl" -o "$folder/out-$1.jsonl" --slots "$1" --device "$device" ${model:+-m "$model"} \
    --seed 1 --deterministic --json 2>"$folder/log" >"$folder/report" || { cat "$folder/log" >&2; die "the run with $1 slots failed"; }
  jq -r .tokens_per_second "$folder/report"
}

sorted() {
  jq -sc 'sort_by(.id)[]' "$folder/out-$1.jsonl"
}

median() {
  sort -g | awk '{ all[NR] = $1 } END { m = int((NR + 1) / 2); printf "%.1f (%.1f to %.1f)\n", all[m], all[1], all[NR] }'
}

for round in $(seq "$rounds"); do
  for n in 1 "$slots"; do
    echo "round $round, $n slots: $(run "$n" | tee -a "$folder/speed-$n") tokens/s" >&2
  done
  cmp -s <(sorted 1) <(sorted "$slots") || die "texts differ between 1 and $slots slots"
done
grep '^device:' "$folder/log" || true
echo "$(wc -l <"$folder/out-1.jsonl") prompts, $(jq -s 'map(.usage.prompt_tokens) | add' "$folder/out-1.jsonl") prompt tokens," \
  "$(jq -s 'map(.usage.completion_tokens) | add' "$folder/out-1.jsonl") generated tokens; tokens/s, median (least to most):"
echo "1 slot: $(median <"$folder/speed-1")"
echo "$slots slots: $(median <"$folder/speed-$slots")"
paste "$folder/speed-$slots" "$folder/speed-1" | awk '{ print $1 / $2 }' | median | sed 's/^/ratio: /'

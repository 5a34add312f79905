#!/usr/bin/env bash
# Runs every fuzz target with coverage feedback and AddressSanitizer, each for SECONDS.
# usage: fuzz.sh [SECONDS] [TARGET…]      default: 60 seconds, all targets
#
# A stable toolchain is enough: RUSTC_BOOTSTRAP allows the compiler's flag for the sanitizer. Failing inputs are kept in
# fuzz/artifacts/TARGET, inputs that reach new code in fuzz/corpus/TARGET. Git ignores both folders.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTC_BOOTSTRAP=1
# The check for use of a stack after return halves the speed. All other checks stay on.
export ASAN_OPTIONS=detect_stack_use_after_return=0:malloc_context_size=5

seconds=${1:-60}
[ $# -eq 0 ] || shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | tail -n +2)

cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --quiet
# Fuzzes the same versions of dependencies as the program has.
[ fuzz/Cargo.lock -nt Cargo.lock ] || cp Cargo.lock fuzz/Cargo.lock
cargo fuzz build

# Readers of checkpoints and states need a path. A folder in memory is faster than the disk.
[ ! -d /dev/shm ] || { TMPDIR=$(mktemp -d /dev/shm/wingbeat-fuzz.XXXXXX) && export TMPDIR && trap 'rm -rf "$TMPDIR"' EXIT; }

total=0
failed=()
for target in "${targets[@]}"; do
  corpus=fuzz/corpus/$target
  mkdir -p "$corpus" "fuzz/artifacts/$target"
  log=$(mktemp)
  # Limits per input: 25 seconds, 2 GiB in total, 512 MiB in one allocation.
  cargo fuzz run "$target" "$corpus" "fuzz/seeds/$target" -- -max_total_time="$seconds" -timeout=25 -rss_limit_mb=2048 \
    -malloc_limit_mb=512 -max_len=16384 -print_final_stats=1 -print_funcs=0 >"$log" 2>&1 || failed+=("$target")
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  accepted=$(grep -o '^accepted [0-9]* of [0-9]* inputs' "$log" | tail -1 || true)
  printf '%-12s %10s executions, %s\n' "$target" "${runs:-0}" "${accepted:-no count of accepted inputs}"
  total=$((total + ${runs:-0}))
  case " ${failed[*]} " in *" $target "*) tail -40 "$log" >&2 ;; esac
  rm -f "$log"
done
printf '%-12s %10s executions\n' all "$total"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[*]}" >&2; exit 1; }

# shellcheck shell=bash disable=SC2034
# Functions of the scripts in this folder, which source this file. They run in the repository's root. A script exits with 3 if this machine
# lacks something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat/dist
out=$PWD/target/dist
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# A prompt, and the text with which the embedded model continues it greedily on every device.
prompt=$'User: Tell me a story about a fox.\n\nAssistant:'
text=" Once upon a time, a fox named Poppy lived in the garden. One day in spring, Poppy went for a walk"

work=$(mktemp -d)
# Processes that are killed when the script ends.
started=()
finish() {
  for process in "${started[@]}"; do
    # bash prints a message about each killed process, unless the process was disowned.
    disown "$process" 2>/dev/null || true
    kill -9 "$process" 2>/dev/null || true
  done
  rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

missing() { # WHAT, WHAT TO DO
  echo "dist-check: $1: $2" >&2
  exit 3
}

fail() {
  echo "dist-check: $1" >&2
  exit 1
}

step() { printf '%s: ' "$*"; }
ok() { echo "${*:-ok}"; }

need_roots() {
  [ "$(id -u)" = 0 ] || missing "an empty root needs chroot and mounts" "run this part as root"
  command -v unshare >/dev/null || missing "unshare is missing" "Debian: apt-get install util-linux"
}

# Makes a root of a Debian release in a new folder and prints the folder. Roots are kept as archives in the cache folder.
root() { # NAME, SUITE, OPTIONS OF MMDEBSTRAP…
  local name=$1 suite=$2 archive=$cache/root-$1.tar
  shift 2
  if [ ! -e "$archive" ]; then
    command -v mmdebstrap >/dev/null || missing "mmdebstrap is missing, which makes empty roots" "Debian: apt-get install mmdebstrap"
    mkdir -p "$cache"
    echo "dist-check: making the root $name" >&2
    mmdebstrap --quiet "$@" "$suite" "$work/new.tar" >&2 || missing "the root $name cannot be made" "mmdebstrap $* $suite /tmp/new.tar shows why"
    mv "$work/new.tar" "$archive"
  fi
  mkdir -p "$work/$name"
  # Device files come from the bind mount of /dev.
  tar -C "$work/$name" --exclude='./dev/*' -xf "$archive"
  mkdir -p "$work/$name"/{proc,dev,tmp,root}
  echo "$work/$name"
}

# A root with the C library and nothing else, not even a shell. Debian's C library comes with libgcc_s, which is
# removed, because the program must not need it.
bare_root() { # SUITE, ARCHITECTURE OF DEBIAN
  local folder
  folder=$(root "bare-$1-$2" "$1" --variant=extract --include=libc6 "--architectures=$2")
  find "$folder" -name 'libgcc_s*' -delete
  echo "$folder"
}

# Runs a command in a root. The command sees the root's files, its own processes, and the network of this machine. Mounts and processes end with
# the command.
inside() { # ROOT, COMMAND…
  local folder=$1
  shift
  # shellcheck disable=SC2016  # the inner shell expands these
  # With REPLACE, the command replaces the background shell, so that `kill` reaches the command.
  ${REPLACE:+exec} unshare --mount --pid --fork --kill-child -- sh -ec '
    mount --make-rprivate /
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev"
    folder=$0
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="${RUN_HOME:-/root}" TMPDIR=/tmp DEBIAN_FRONTEND=noninteractive ${RUN_ENV:-} \
      chroot ${RUN_AS:+"--userspec=$RUN_AS"} "$folder" "$@"
  ' "$folder" "$@"
}

start_hub() { # OPTIONS…
  rm -f "$work/hub.log"
  # Serves the embedded model under a name of docs/models.md. The published model has another vocabulary, so the commands below set --vocab.
  python3 tools/dist-check/hub.py assets/models/small-world.safetensors BlinkDL/rwkv7-g1 rwkv7-g1d-0.1b-20260129-ctx8192.pth "$work/hub.log" "$@" &
  started+=($!)
  for ((i = 0; i < 100; i++)); do
    [ -s "$work/hub.log" ] && break
    sleep 0.1
  done
  address=$(head -1 "$work/hub.log")
}

# Continues a prompt with the embedded model, then chats with a model by its name: the download is killed, goes on, and is verified.
try_program() { # HOME, COMMAND…: runs the program; HOME is the folder that it sees as its home
  local home=$1 found killed size
  shift
  step "version"
  ok "$(run "$@" --version | head -1)"
  step "generate, embedded model, CPU"
  found=$(run "$@" generate --device cpu --temperature 0 -n 24 "$prompt" 2>"$work/errors") || fail "$(cat "$work/errors")"
  [ "$found" = "$text" ] || fail "expected \"$text\", found \"$found\""
  ok "$found"

  step "chat -m NAME, killed in the middle of its download"
  start_hub --stop 1500000
  REPLACE=1 RUN_ENV="HF_ENDPOINT=$address" run "$@" chat -m rwkv7-g1-0.1b --vocab small-world --device cpu --yes </dev/null >"$work/killed" 2>&1 &
  killed=$!
  started+=("$killed")
  for ((i = 0; i < 600; i++)); do
    grep -q stopped "$work/hub.log" && break
    kill -0 "$killed" 2>/dev/null || fail "the download ended: $(cat "$work/killed")"
    sleep 0.1
  done
  grep -q stopped "$work/hub.log" || fail "no download within 60 s: $(cat "$work/killed")"
  sleep 1
  kill -9 "$killed"
  wait "$killed" 2>/dev/null || true
  size=$(find "$home" -path '*blobs*' -type f -printf '%s\n' | head -1)
  [ "${size:-0}" -gt 0 ] || fail "nothing was kept"
  ok "$size bytes are on the disk"

  step "chat -m NAME goes on"
  found=$(printf 'What is 7 plus 6?\n' | RUN_ENV="HF_ENDPOINT=$address" run "$@" chat -m rwkv7-g1-0.1b --vocab small-world --device cpu --yes --seed 1 2>"$work/errors") || fail "$(cat "$work/errors")"
  grep -q "^GET from $size sent" "$work/hub.log" || fail "the download did not go on at byte $size: $(tr '\n' ';' <"$work/hub.log")"
  [ -n "$found" ] || fail "no answer: $(cat "$work/errors")"
  ok "from byte $size; the answer: $(tr '\n' ' ' <<<"$found")"

  step "chat -m NAME without a network"
  found=$(printf 'What is 7 plus 6?\n' | RUN_ENV="HF_HUB_OFFLINE=1" run "$@" chat -m rwkv7-g1-0.1b --vocab small-world --device cpu --seed 1 2>&1) || fail "$found"
  ok

  step "a download with a wrong byte is refused"
  run "$@" rm --yes rwkv7-g1-0.1b >/dev/null 2>&1 || fail "rm failed"
  start_hub --damage
  if RUN_ENV="HF_ENDPOINT=$address" run "$@" pull rwkv7-g1-0.1b >"$work/errors" 2>&1; then fail "it was accepted"; fi
  ok "$(tail -1 "$work/errors")"
}

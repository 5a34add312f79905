#!/usr/bin/env bash
# Tests `wingbeat serve` with real clients, under load, and in operation. Prints one line per part.
# usage: test-serve.sh [short|long] [PART…]
# short (default): about two minutes after the first installation. long: 120 seconds of load and of the soak, 300 seconds of generated requests.
# WINGBEAT_BIN                  the program (default: builds target/release/wingbeat)
# WINGBEAT_CLOUD_BIN            a program that was built with the feature `cloud`, for the part s3
# WINGBEAT_TEST_CACHE           folder of the Python environment and the npm packages (default: ~/.cache/wingbeat-tests)
# WINGBEAT_REQUIRE_REGISTRIES   1: a part whose packages cannot be installed fails; otherwise it is skipped
# SOAK_HOURS                    length of the part soak
# WINGBEAT_TEST_VERBOSE         1: prints each check and its time
set -uo pipefail
cd "$(dirname "$0")/.." || exit

tests=server/tests
cache=${WINGBEAT_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat-tests}
length=short
case ${1:-} in short | long) length=$1; shift ;; esac
all=(openai_python openai_node ollama anthropic litellm langchain lm_eval curl schema storm attacks soak conversation ops s3)
parts=("${@:-${all[@]}}")
[ $# -gt 0 ] || parts=("${all[@]}")
for part in "${parts[@]}"; do
  [[ " ${all[*]} " == *" $part "* ]] || { echo "error: unknown part $part; parts: ${all[*]}" >&2; exit 2; }
done
if [ "$length" = long ]; then storm=120 schema=300 turns=20 soak=120; else storm=6 schema=12 turns=20 soak=20; fi
storm=${STORM_SECONDS:-$storm} schema=${SCHEMA_SECONDS:-$schema}

if [ -z "${WINGBEAT_BIN:-}" ]; then
  "${CARGO:-cargo}" build --release || exit 1
  WINGBEAT_BIN=$("${CARGO:-cargo}" metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/wingbeat
fi
WINGBEAT_BIN=$(realpath "$WINGBEAT_BIN")
export WINGBEAT_BIN PYTHONDONTWRITEBYTECODE=1
mkdir -p "$cache"

# Runs an installation once per list of packages. The last line of its output is the reason if it fails.
install() { # STAMP FILE COMMAND…
  local stamp=$1 file=$2
  shift 2
  cmp -s "$file" "$stamp" && return
  echo "== installs the packages of $file"
  "$@" >"$cache/install.log" 2>&1 && cp "$file" "$stamp"
}

# Installs the packages of requirements.txt (20 MB), and with the argument `more` also those of requirements-more.txt (0.9 GB).
install_python() { # [more]
  local file
  for file in requirements ${1:+requirements-$1}; do
    install "$cache/$file.stamp" "$tests/$file.txt" bash -c "python3 -m venv '$cache/venv' && '$cache/venv/bin/pip' install --quiet --disable-pip-version-check -r $tests/$file.txt" || return
  done
}

install_node() {
  install "$cache/node.stamp" $tests/clients/package.json bash -c "mkdir -p '$cache/node' && cp $tests/clients/package.json '$cache/node/' && npm install --loglevel error --no-audit --no-fund --prefix '$cache/node'"
}

# Runs a client with a server whose address is in WINGBEAT_URL.
served() { # FLAGS… -- COMMAND…
  python3 $tests/server.py "$@"
}

python=$cache/venv/bin/python

run() {
  case $1 in
    openai_python) "$python" $tests/clients/openai_python.py ;;
    openai_node) WINGBEAT_NODE_FOLDER=$cache/node served --deterministic -- node $tests/clients/openai_node.mjs ;;
    ollama) "$python" $tests/clients/ollama_test.py ;;
    anthropic) "$python" $tests/clients/anthropic_test.py ;;
    litellm) "$python" $tests/clients/litellm_test.py ;;
    langchain) "$python" $tests/clients/langchain_test.py ;;
    lm_eval) "$python" $tests/clients/lm_eval_test.py ;;
    curl) served -- $tests/clients/curl.sh ;;
    schema) PATH=$cache/venv/bin:$PATH served --slots 16 -- $tests/clients/schema.sh "$schema" ;;
    attacks) python3 $tests/load/attacks.py --seconds "$storm" $([ "$length" = long ] && echo --full) ;;
    storm) python3 $tests/load/storm.py --seconds "$storm" ;;
    soak) python3 $tests/load/soak.py $([ -n "${SOAK_HOURS:-}" ] && echo "--hours $SOAK_HOURS" || echo "--seconds $soak") ;;
    conversation) python3 $tests/load/conversation.py --turns $turns ${CONVERSATION_OUT:+--out "$CONVERSATION_OUT"} ${LLAMA_URL:+--llama "$LLAMA_URL"} ;;
    ops) python3 $tests/ops/ops.py ;;
    s3) WINGBEAT_BIN=$WINGBEAT_CLOUD_BIN "$python" $tests/ops/s3.py ;;
  esac
}

# Prints why a part cannot run, or nothing.
missing() {
  case $1 in
    openai_python | ollama | anthropic) install_python >&2 || echo "packages of Python: $(tail -1 "$cache/install.log")" ;;
    s3)
      if [ -z "${WINGBEAT_CLOUD_BIN:-}" ]; then
        echo "no program with the feature cloud in WINGBEAT_CLOUD_BIN"
      else
        install_python more >&2 || echo "packages of Python: $(tail -1 "$cache/install.log")"
      fi
      ;;
    litellm | langchain | lm_eval | schema) install_python more >&2 || echo "packages of Python: $(tail -1 "$cache/install.log")" ;;
    openai_node)
      if ! command -v npm node >/dev/null; then
        echo "no node and npm (Debian: apt-get install nodejs npm)"
      else
        install_node >&2 || echo "packages of npm: $(tail -1 "$cache/install.log")"
      fi
      ;;
    curl) command -v curl >/dev/null || echo "no curl (Debian: apt-get install curl)" ;;
  esac
}

n_passed=0 n_failed=0 n_skipped=0
for part in "${parts[@]}"; do
  reason=$(missing "$part")
  if [ -n "$reason" ] && [ "${WINGBEAT_REQUIRE_REGISTRIES:-}" != 1 ]; then
    echo "SKIPPED $part ($reason)"
    n_skipped=$((n_skipped + 1))
    continue
  fi
  began=$SECONDS
  if [ -n "$reason" ]; then
    echo "  failed: $reason"
    false
  else
    run "$part"
  fi
  if [ $? = 0 ]; then
    echo "PASSED $part in $((SECONDS - began)) s"
    n_passed=$((n_passed + 1))
  else
    echo "FAILED $part in $((SECONDS - began)) s"
    n_failed=$((n_failed + 1))
  fi
done
echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ $n_failed = 0 ]

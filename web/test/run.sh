#!/usr/bin/env bash
# Tests the package in web/pkg, in Chromium, Node and Deno. Build it before with tools/web.sh.
#
# usage: web/test/run.sh [short|long] [NODE TEST OPTION…]
#   short  downloads, API, faults and texts, in Chromium (default)
#   long   all tests: also bundlers, other places, the demo
#
# Environment:
#   WINGBEAT_REQUIRE_CHROMIUM  1: a missing browser or registry is an error; otherwise the tests are skipped with exit code 0
#   CHROMIUM                   path of the browser (default: chromium, chromium-browser or google-chrome of the PATH)
#   DENO                       path of Deno (default: of the PATH; `long` installs it from npm)
set -euo pipefail
cd "$(dirname "$0")/.."

deno=2.9.6

skip() {
  if [ "${WINGBEAT_REQUIRE_CHROMIUM:-}" = 1 ]; then
    echo "web/test: $1" >&2
    exit 1
  fi
  echo "SKIPPED: $1"
  exit 0
}

part=short
case ${1:-} in
  short | long) part=$1 && shift ;;
esac

command -v node >/dev/null || skip "node is missing (20 or later)"
[ "$(node -p 'process.versions.node.split(".")[0] >= 20')" = true ] || skip "node is too old (20 or later)"
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
[ -n "$CHROMIUM" ] || skip "chromium is missing (Debian and Ubuntu: apt-get install chromium)"
export CHROMIUM
if [ ! -d node_modules/puppeteer-core ]; then
  npm ci --silent --no-audit --no-fund || skip "the npm registry did not deliver the packages of web/package.json"
fi
if [ ! -f pkg/wingbeat_bg.wasm ] || [ ! -f pkg-tiny/index.js ]; then
  echo "web/test: web/pkg has no package; build it with tools/web.sh" >&2
  exit 1
fi

tests=(api cache faults sources texts)
if [ "$part" = long ]; then
  tests=()
  for file in test/*.test.mjs; do tests+=("$(basename "$file" .test.mjs)"); done
  if [ -z "${DENO:-}" ] && ! command -v deno >/dev/null; then
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat/deno
    mkdir -p "$folder"
    if npm install --silent --no-audit --no-fund --prefix "$folder" "deno@$deno"; then export DENO=$folder/node_modules/.bin/deno; fi
  fi
fi
cd test
exec node --test --test-concurrency=1 --test-timeout=300000 "$@" "${tests[@]/%/.test.mjs}"

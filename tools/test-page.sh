#!/usr/bin/env bash
# Tests the chat page of `wingbeat serve` in Chromium, against a mock server. Needs node 20, chromium and the npm registry.
#
# usage: tools/test-page.sh [--pictures] [NODE TEST OPTION…]
#   --pictures  also writes docs/images/serve-*.png: with WINGBEAT_URL all of them, otherwise only serve-text.png, which has answers of the mock
#
# Environment:
#   WINGBEAT_URL              address of a running server to test instead of the mock
#   WINGBEAT_REQUIRE_BROWSER  1: a missing browser or registry is an error; otherwise the tests are skipped with exit code 0
#   WINGBEAT_NPM              folder of the npm packages (default ~/.cache/wingbeat/page)
#   CHROMIUM                  path of the browser (default: chromium, chromium-browser or google-chrome of the PATH)
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=tools/skip.sh
. tools/skip.sh WINGBEAT_REQUIRE_BROWSER

command -v node >/dev/null || skip "node is missing (20 or later)"
wanted() { node -p "require('./server/page/package.json').devDependencies['$1']"; }
playwright=$(wanted playwright-core) axe=$(wanted axe-core)
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
[ -n "$CHROMIUM" ] || skip "chromium is missing (Debian and Ubuntu: apt-get install chromium)"
WINGBEAT_NPM=${WINGBEAT_NPM:-${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat/page}
export CHROMIUM WINGBEAT_NPM

version() { node -p "require('$WINGBEAT_NPM/node_modules/$1/package.json').version" 2>/dev/null || true; }
if [ "$(version playwright-core)" != "$playwright" ] || [ "$(version axe-core)" != "$axe" ]; then
  command -v npm >/dev/null || skip "npm is missing"
  mkdir -p "$WINGBEAT_NPM"
  npm install --silent --no-audit --no-fund --prefix "$WINGBEAT_NPM" "playwright-core@$playwright" "axe-core@$axe" ||
    skip "the npm registry did not deliver playwright-core $playwright and axe-core $axe"
fi

pictures=
if [ "${1:-}" = --pictures ]; then
  pictures=1
  shift
fi
tools/node-test.sh "$@" server/tests/page/*.test.mjs
[ -z "$pictures" ] || {
  mkdir -p docs/images
  node server/tests/page/pictures.mjs docs/images
  # 256 colours: a third of the size
  if command -v pngquant >/dev/null; then pngquant --force --skip-if-larger --ext .png --speed 1 docs/images/serve-*.png; fi
}

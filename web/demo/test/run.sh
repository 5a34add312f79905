#!/usr/bin/env bash
# Tests the demo in Chromium: the page with a fake package, and, where tools/web.sh has built web/pkg, with the real one. Needs node 20 and chromium.
#
# usage: web/demo/test/run.sh [NODE TEST OPTION…]
#
# Environment:
#   WINGBEAT_REQUIRE_BROWSER  1: a missing browser or registry is an error; otherwise the tests are skipped with exit code 0
#   CHROMIUM                  path of the browser
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=tools/skip.sh
. ../tools/skip.sh WINGBEAT_REQUIRE_BROWSER

command -v node >/dev/null || skip "node is missing (20 or later)"
if [ ! -d node_modules/puppeteer-core ] || [ ! -d node_modules/axe-core ]; then
  command -v npm >/dev/null || skip "npm is missing"
  npm ci --silent --no-audit --no-fund || skip "the npm registry did not deliver the packages of web/package.json"
fi
[ -n "$(node -e 'import("./test/browser.mjs").then(({ chromium }) => console.log(chromium ?? ""))')" ] ||
  skip "chromium is missing (Debian and Ubuntu: apt-get install chromium)"
../tools/node-test.sh "$@" demo/test/*.test.mjs

#!/usr/bin/env bash
# Tests the npm package and the demo in Chromium with a software GPU, and in Node. Builds the package if web/pkg is missing. Without Chromium, node
# or npm it prints SKIPPED; with WINGBEAT_REQUIRE_BROWSER=1 that is an error.
# usage: test-web.sh [short|long] [NAME…]     NAME: texts, cache, sources, faults, api, package, bundles, places, demo, docs, selftest, kernels;
# long adds formats and firefox.
# Deno is tested if it is in the PATH, or if DENO names it.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=tools/skip.sh
. tools/skip.sh WINGBEAT_REQUIRE_BROWSER

length=short
case "${1:-}" in short | long) length=$1; shift ;; esac
if command -v node >/dev/null && command -v npm >/dev/null; then :; else skip "node or npm is missing (20 or later)"; fi
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
[ -n "$CHROMIUM" ] || skip "chromium is missing (Debian and Ubuntu: apt-get install chromium)"
export CHROMIUM
[ -d web/node_modules/puppeteer-core ] || (cd web && npm ci --silent --no-audit --no-fund) || skip "the npm registry did not deliver the packages of web/package-lock.json"
[ -f web/pkg/wingbeat_bg.wasm ] || tools/web.sh

names=("$@")
if [ ${#names[@]} = 0 ]; then
  names=(texts cache sources faults api package bundles places demo docs selftest kernels)
  [ "$length" = short ] || names+=(formats firefox)
fi
case " ${names[*]} " in
  *" kernels "*)
    WGSL_TEXTS=$(mktemp)
    export WGSL_TEXTS
    trap 'rm -f "$WGSL_TEXTS"' EXIT
    WGSL_OUT=$WGSL_TEXTS "${CARGO:-cargo}" test --quiet --test main shaders::every_shader_fits >/dev/null
    ;;
esac
files=()
for name in "${names[@]}"; do
  if [ "$name" = demo ]; then files+=(web/demo/test/*.test.mjs); else files+=("web/test/$name.test.mjs"); fi
done
tools/node-test.sh --test-reporter=spec "${files[@]}"

#!/usr/bin/env bash
# Runs tests of node, one file at a time, because each file has a browser of its own.
# usage: node-test.sh [OPTION OF NODE…] FILE…
set -euo pipefail
options=(--test --test-concurrency=1)
# A test that fails may leave a server open. Without this option of node 20.14, its file would never end.
[[ $(node --help) != *--test-force-exit* ]] || options+=(--test-force-exit)
exec node "${options[@]}" "$@"

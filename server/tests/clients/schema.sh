#!/usr/bin/env bash
# Sends generated requests, right and wrong, to every path of /openapi.json: no answer may be a 5xx.
# usage: schema.sh [SECONDS]   (WINGBEAT_URL: address of the server; default 60 s)
set -euo pipefail
seconds=${1:-60}
# schemathesis writes files into the current folder.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# One worker: CPython 3.11 cannot parse syntax trees in several threads, and schemathesis does. A generated request may ask for a very long text: each request has a time limit, and its end cancels the text.
code=0
schemathesis run "$WINGBEAT_URL/openapi.json" --url "$WINGBEAT_URL" --checks not_a_server_error --max-time "$seconds" \
  --phases examples,coverage,fuzzing --workers 1 --request-timeout 10 --seed "${SEED:-1}" --no-shrink --suppress-health-check all --warnings off \
  --continue-on-failure >report 2>&1 || code=$?
if [ "$code" != 0 ]; then
  echo "  failed: expected no answer with a status of 500 or more, found (exit code $code of schemathesis):"
  cut -c1-300 report | tail -80
  exit 1
fi
grep -E 'generated|Operations:' report | sed 's/^ */  /'
curl -sf "$WINGBEAT_URL/health" >/dev/null || { echo "  failed: /health after the requests: expected 200"; exit 1; }

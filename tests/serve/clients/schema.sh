#!/usr/bin/env bash
# Sends generated requests, right and wrong, to every path of /openapi.json: no answer may be a 5xx.
# usage: schema.sh [SECONDS]   (WINGBEAT_URL: address of the server; default 60 s)
set -euo pipefail
seconds=${1:-60}
# A generated request may ask for a very long text: each request has a time limit, and its end cancels the text.
schemathesis run "$WINGBEAT_URL/openapi.json" --url "$WINGBEAT_URL" --checks not_a_server_error --max-time "$seconds" \
  --phases examples,coverage,fuzzing --workers 4 --request-timeout 10 --seed "${SEED:-1}" --no-shrink --suppress-health-check all --warnings off \
  --continue-on-failure >"${TMPDIR:-/tmp}/wingbeat-schema.$$" 2>&1 && code=0 || code=$?
report=${TMPDIR:-/tmp}/wingbeat-schema.$$
trap 'rm -f "$report"' EXIT
grep -E 'Test cases:|generated|passed|failed|errors?:|Operations:' "$report" | head -12 | sed 's/^ */  /' || true
if grep -qE 'Server error|5[0-9][0-9]\]' "$report"; then
  echo "  failed: expected no answer with a status of 500 or more, found:"
  grep -E -B2 -A16 'Server error' "$report" | head -60
  exit 1
fi
# Exit codes of schemathesis above 1, and errors of the schema itself.
[ "$code" = 0 ] || { tail -60 "$report"; exit 1; }
curl -sf "$WINGBEAT_URL/health" >/dev/null || { echo "  failed: /health after the requests: expected 200"; exit 1; }

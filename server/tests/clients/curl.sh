#!/usr/bin/env bash
# Runs one curl line or more per endpoint. WINGBEAT_URL is the address of the server. The lines of docs/api.md are run by `make test-docs`.
set -euo pipefail
url=$WINGBEAT_URL
passed=0 failed=0

# Runs a command of curl; its output must have the text EXPECTED.
check() { # EXPECTED ARGUMENTS…
  local expected=$1 found
  shift
  found=$(curl -sS --max-time 60 --fail-with-body "$@" 2>&1) || found="exit code $?: $found"
  if grep -qF -- "$expected" <<<"$found" && [[ $found != "exit code"* ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '  failed curl %s: expected %s, found %s\n' "$*" "$expected" "${found:0:300}"
  fi
}

light='"messages": [{"role": "user", "content": "light"}], "max_tokens": 8'
check '"chat.completion"' "$url/v1/chat/completions" -d "{$light}"
check 'data: [DONE]' -N "$url/v1/chat/completions" -d "{$light, \"stream\": true}"
check '"text_completion"' "$url/v1/completions" -d '{"prompt": "In the beginning", "max_tokens": 8}'
check '"output_text"' "$url/v1/responses" -d '{"input": "light", "max_output_tokens": 8}'
check '"embedding"' "$url/v1/embeddings" -d '{"input": "light", "model": "vectors"}'
check '"relevance_score"' "$url/v1/rerank" -d '{"query": "light", "documents": ["day", {"text": "night"}], "top_n": 1}'
check '"tokens"' "$url/tokenize" -d '{"content": "light"}'
check '"piece"' "$url/tokenize" -d '{"content": "light", "with_pieces": true}'
check '"content"' "$url/detokenize" -d '{"tokens": [74]}'
check 'light' "$url/apply-template" -d "{$light}"
check '"token_count"' "$url/v1/tokens/count" -d '{"prompt": "light"}'
check '"ok"' "$url/health"
check '# EOF' "$url/metrics"
check '"free_slots"' "$url/slots"
check '"list"' "$url/v1/models"
check '"openapi"' "$url/openapi.json"
check '<title>wingbeat' -H 'accept: text/html' "$url/"
check 'Ollama is running' "$url/"
# A state: saved, listed, continued, copied, downloaded, uploaded, deleted.
check '"story"' "$url/v1/states" -d '{"action": "save", "name": "story", "prompt": "In the beginning"}'
check '"story"' "$url/v1/states"
check '"text"' "$url/v1/completions" -d '{"prompt": " God created", "state": "story", "max_tokens": 8, "save_state": "later"}'
check '"copy"' "$url/v1/states" -d '{"action": "fork", "from": "story", "name": "copy"}'
file=$(mktemp)
trap 'rm -f "$file"' EXIT
check '' "$url/v1/states/copy/content" -o "$file"
check '"again"' -X PUT "$url/v1/states/again/content" --data-binary "@$file"
check '"tokens"' "$url/v1/states/again"
for name in story later copy again; do check '' -X DELETE "$url/v1/states/$name"; done

echo "  $passed checks passed, $failed failed"
[ "$failed" = 0 ]

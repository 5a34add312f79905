#!/usr/bin/env bash
# Checks the files of deploy/, and runs the group of servers that they describe as plain processes (tests/deploy/deploy.py).
# usage: test-deploy.sh
#   WINGBEAT_CLOUD_BIN   a program that was built with the feature `cloud`; by default it is built into target/cloud, which takes minutes
# Without nginx, Prometheus or the packages of Python it prints SKIPPED; with WINGBEAT_REQUIRE_DEPLOY=1 that is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=tools/skip.sh
. tools/skip.sh WINGBEAT_REQUIRE_DEPLOY

PATH=$PATH:/usr/sbin
for program in nginx prometheus promtool; do
  command -v $program >/dev/null || skip "$program is missing (Debian: apt-get install nginx prometheus)"
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
{
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet -r tests/deploy/requirements.txt
  # docker-compose 1.29.2, the last release in Python, contains the schema of compose files.
  "$folder/venv/bin/pip" download --quiet --no-deps --dest "$folder" docker-compose==1.29.2
  python3 -m zipfile -e "$folder"/docker_compose-*.whl "$folder/compose"
} || skip "the packages of the tests cannot be installed"
if [ -z "${WINGBEAT_CLOUD_BIN:-}" ]; then
  "${CARGO:-cargo}" build --quiet --features cloud --target-dir target/cloud
  WINGBEAT_CLOUD_BIN=$PWD/target/cloud/debug/wingbeat
fi
WINGBEAT_BIN=$WINGBEAT_CLOUD_BIN COMPOSE_SCHEMA=$folder/compose/compose/config/compose_spec.json "$folder/venv/bin/python" tests/deploy/deploy.py

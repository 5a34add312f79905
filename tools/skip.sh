# shellcheck shell=bash
# For test scripts that a machine may be unable to run: `. tools/skip.sh VARIABLE` defines `skip WHY`, which ends the script as skipped, or as failed
# if the environment sets VARIABLE to 1.
skip_is_failure=${!1:-}

skip() {
  if [ "$skip_is_failure" = 1 ]; then
    echo "$(basename "$0" .sh): $1" >&2
    exit 1
  fi
  echo "SKIPPED: $1"
  exit 0
}

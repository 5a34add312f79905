# shellcheck shell=bash
# Sourced by the scripts in this folder: error messages, help from the header of the script, options with a value, the program to measure.

# TEXT [EXIT-CODE]
die() {
  echo "$(basename "$0" .sh): $1" >&2
  exit "${2:-1}"
}

usage() {
  sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p;}' "$0"
}

# options NAME... -- ARGUMENT...: reads --NAME VALUE and sets the variable NAME. A - in an option is a _ in its variable.
options() {
  local names=" " name
  while [ "$1" != -- ]; do
    names+="$1 "
    shift
  done
  shift
  while [ $# -gt 0 ]; do
    if [ "$1" = -h ] || [ "$1" = --help ]; then
      usage
      exit 0
    fi
    name=${1#--}
    [[ $1 == --* && $names == *" $name "* && $# -ge 2 ]] || { usage >&2; exit 2; }
    printf -v "${name//-/_}" %s "$2"
    shift 2
  done
}

# Refuses options that are not a whole number from 1.
positive() {
  local name
  for name in "$@"; do
    [[ ${!name} =~ ^[1-9][0-9]*$ ]] || die "--$name: expected a whole number from 1, found '${!name}'" 2
  done
}

# program ROOT: prints the path of the program that WINGBEAT names, or of the release build of the checkout ROOT, which it builds.
program() {
  local path=${WINGBEAT:-} target_dir
  if [ -z "$path" ]; then
    cargo build --quiet --release --bin wingbeat --manifest-path "$1/Cargo.toml"
    target_dir=$(cargo metadata --quiet --no-deps --format-version 1 --manifest-path "$1/Cargo.toml" |
      python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    path=$target_dir/release/wingbeat
  fi
  [ -x "$path" ] || die "no executable at $path"
  echo "$path"
}

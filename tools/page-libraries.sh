#!/usr/bin/env bash
# Bundles the libraries of the chat page into server/page/lib/: one minified ES module each, a style sheet, and their licences. Needs node 20 and the npm registry.
#
# usage: tools/page-libraries.sh [--check]
#   --check  writes nothing; fails if the files in the repository differ
#
# To update a library: change its version in server/page/package.json, run the script, run tools/test-page.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

# Prints the package with its version in server/page/package.json.
versioned() { node -p "'$1@' + require('./server/page/package.json').devDependencies['$1']"; }
bundler=$(versioned esbuild)
# the last four are dependencies of markdown-it
libraries=()
for name in markdown-it highlight.js temml entities linkify-it mdurl uc.micro; do libraries+=("$(versioned "$name")"); done
# highlight.js/lib/common has 36 languages; these are added
languages=(dockerfile haskell julia latex nginx powershell scala)

folder=server/page/lib
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --silent --no-audit --no-fund --save-exact --prefix "$work" "$bundler" "${libraries[@]}"

echo "export { default } from 'markdown-it';" >"$work/markdown.js"
echo "export { default } from 'temml';" >"$work/maths.js"
{
  echo "import highlight from 'highlight.js/lib/common';"
  for name in "${languages[@]}"; do
    echo "import $name from 'highlight.js/lib/languages/$name';"
    echo "highlight.registerLanguage('$name', $name);"
  done
  echo 'export default highlight;'
} >"$work/code.js"

mkdir -p "$work/lib" "$folder"
for name in markdown code maths; do
  (cd "$work" && node_modules/.bin/esbuild "$name.js" --bundle --format=esm --minify --target=es2022 --charset=utf8 --legal-comments=none \
    --log-level=warning --outfile="lib/$name.js")
done
# Temml's own font has script letters only. Without it the browser takes them from another font.
sed '/^@font-face/,/^}/d' "$work/node_modules/temml/dist/Temml-Local.css" >"$work/maths.css"
(cd "$work" && node_modules/.bin/esbuild maths.css --minify --charset=utf8 --log-level=warning --outfile=lib/maths.css)
{
  echo "The files in this folder contain the following libraries. tools/page-libraries.sh made the files."
  for library in "${libraries[@]}"; do
    name=${library%@*}
    printf '\n%s\n%s %s, https://www.npmjs.com/package/%s\n\n' "$(printf '=%.0s' {1..80})" "$name" "${library##*@}" "$name"
    cat "$work/node_modules/$name"/LICENSE*
  done
} >"$work/lib/licences.txt"

if [ "${1:-}" = --check ]; then
  diff -rq "$work/lib" "$folder" && echo "page-libraries: $folder is up to date"
else
  cp "$work"/lib/* "$folder/"
  wc -c "$folder"/*
fi

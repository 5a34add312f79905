#!/usr/bin/env bash
# Bundles the libraries of the chat page into server/page/lib/: one minified ES module each, a style sheet, the font of formulas, and their licences.
# Needs node 20 and the npm registry.
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
font=$(versioned @fontsource/stix-two-math)
# the last two are dependencies of subset-font: their versions determine the bytes of the font
tools=()
for name in subset-font harfbuzzjs wawoff2; do tools+=("$(versioned "$name")"); done
# highlight.js/lib/common has 36 languages; these are added
languages=(dockerfile haskell julia latex nginx powershell scala)

folder=server/page/lib
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --silent --no-audit --no-fund --save-exact --prefix "$work" "$bundler" "${libraries[@]}" "$font" "${tools[@]}"

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
# The characters of formulas, with every size of their brackets. Letters of other scripts come from the fonts of the system.
cat >"$work/font.mjs" <<'END'
import { readFile, writeFile } from 'node:fs/promises';
import subset from 'subset-font';
const RANGES = [
  // letters, digits, accents, Greek
  [0x20, 0x7e], [0xa0, 0xff], [0x131, 0x131], [0x237, 0x237], [0x2b0, 0x36f], [0x370, 0x3ff], [0x2000, 0x209f], [0x20d0, 0x20f0],
  // signs like letters, arrows, operators, brackets, shapes
  [0x2100, 0x214f], [0x2190, 0x23ff], [0x2500, 0x257f], [0x25a0, 0x25ff], [0x2605, 0x2606], [0x2660, 0x266f], [0x2713, 0x2720], [0x27c0, 0x27ff], [0x2900, 0x2bff],
  // letters of formulas: italic, script, double-struck, Fraktur
  [0x1d400, 0x1d7ff],
];
const text = RANGES.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, i) => String.fromCodePoint(first + i))).join('');
const [from, to] = process.argv.slice(2);
await writeFile(to, await subset(await readFile(from), text, { targetFormat: 'woff2', noHinting: true }));
END
node "$work/font.mjs" "$work/node_modules/@fontsource/stix-two-math/files/stix-two-math-latin-400-normal.woff2" "$work/lib/maths.woff2"
# Temml's own font has script letters and primes only, and must not be used commercially. The font above has them too.
sed '/^@font-face/,/^}/d' "$work/node_modules/temml/dist/Temml-Local.css" >"$work/maths.css"
(cd "$work" && node_modules/.bin/esbuild maths.css --minify --charset=utf8 --log-level=warning --outfile=lib/maths.css)
{
  echo "The files in this folder contain the following libraries. tools/page-libraries.sh made the files."
  echo "maths.woff2 is a modified version of the font STIX Two Math: it has fewer characters and no hints."
  for library in "${libraries[@]}" "$font"; do
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

#!/usr/bin/env python3
"""Counts lines, files, names of types and public items, the numbers by which restructuring is judged.

Run in the repository: python3 tools/census.py [-v] [lines] [files] [types] [public]

    lines    production lines of each module of the library and of each front end in Rust (cli, server), and the sum for session, chat,
             conversation, engine, exec and server
    files    source files above 450 lines, and below 60
    types    names of types that the crates define in three or more places
    public   public items of the library that a program reaches outside `low_level`; runs rustdoc, which compiles the crate
    -v       details: lines of each file or folder, the small files, the places of a name, the paths of public items

Without a word it prints all four numbers. Definitions:

lines   A line counts if something other than a comment is on it. Tests do not count: items under `#[cfg(test)]`, files and folders named
        `tests` or `testing`, and modules that their parents declare under `#[cfg(test)]`. Lines that hold only brackets count.
files   Files of tests do not count. All lines count for the upper bound; tests at the end of a file do not count for the lower bound.
types   Structs, enums, traits and aliases. Associated types do not count, nor do types in tests.
public  Modules, structs with their public fields, enums, traits with their items, functions, inherent methods, constants and aliases,
        each once. Variants and their fields, hidden modules and modules named `low_level` do not count.
"""
import collections, json, os, re, subprocess, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Each crate's sources, and the name under which they are counted. `None`: each module counts by itself.
CRATES = {"src": None, "server/src": "server", "cli/src": "cli"}
CORE = ["session", "chat", "conversation", "engine", "exec", "server"]

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'  # comments; this crate has no nested comments
    r'|b?r(?P<hash>#*)".*?"(?P=hash)|b?"(?:\\.|[^"\\])*"'  # strings
    r"|b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\\n])'",  # characters, not lifetimes
    re.DOTALL,
)
# Matches conditions that hold only in tests. `any(test, …)` can also hold elsewhere.
TEST = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*")


def plain(text):
    """Returns Rust source with comments as spaces and the contents of strings as `_`, line breaks kept."""
    def blank(match):
        filler = " " if match[0].startswith("/") else "_"
        return re.sub(r"[^\n]", filler, match[0])
    return TOKEN.sub(blank, text)


def end_of_item(text, at):
    """Returns where the item or field at `at` ends: after its `;`, its body or its comma, or before the bracket around it."""
    depth = 0
    while at < len(text):
        c = text[at]
        depth += (c in "([{") - (c in ")]}")
        if depth < 0:
            return at
        if depth == 0 and c in ";},":
            return at + 1
        at += 1
    return at


def without_tests(text):
    """Returns plain source with items for tests as spaces, and the names of modules of tests that have files of their own."""
    modules, at = set(), 0
    while match := TEST.search(text, at):
        end = end_of_item(text, match.end())
        item = text[match.end():end]
        if declared := re.fullmatch(r"(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+);", item):
            modules.add(declared[1])
        text = text[:match.start()] + re.sub(r"[^\n]", " ", text[match.start():end]) + text[end:]
        at = end
    return text, modules


def sources():
    """Returns path, raw text and plain text without tests of every file that is not for tests only. A path begins with the counted name."""
    files, skipped = [], set()
    for path, crate, prefix in sorted((path, crate, prefix or "") for crate, prefix in CRATES.items() for path in (ROOT / crate).rglob("*.rs")):
        name = path.relative_to(ROOT / crate)
        name = Path(prefix) / name if prefix else name
        raw = path.read_text()
        text, modules = without_tests(plain(raw))
        folder = name.parent if name.stem in ("mod", "lib", "main") else name.with_suffix("")
        skipped |= {folder / module for module in modules}
        files.append((name, raw, text))

    def is_test(name):
        paths = [name.with_suffix(""), *name.parents]
        return any(p.name in ("tests", "testing") or p in skipped for p in paths)
    return [file for file in files if not is_test(file[0])]


def module(name):
    return name.parts[0].removesuffix(".rs")


def lines(files, verbose):
    counts, details = collections.Counter(), collections.Counter()
    for name, _, text in files:
        n = sum(1 for line in text.splitlines() if line.strip())
        counts[module(name)] += n
        details["/".join(name.parts[:2])] += n
    print(f"lines: {sum(counts[m] for m in CORE)} in {' + '.join(CORE)}, {sum(counts.values())} in all crates")
    for m, n in counts.most_common():
        print(f"  {n:6} {m}")
        for part, n in details.most_common() if verbose else []:
            if part.startswith(m + "/"):
                print(f"         {n:6} {part}")


def sizes(files, verbose):
    long = [(len(raw.splitlines()), name) for name, raw, _ in files if len(raw.splitlines()) > 450]
    small = [(n, name) for name, _, text in files if (n := len(text.rstrip().splitlines())) < 60]
    print(f"files: {len(files)}, {len(long)} above 450 lines, {len(small)} below 60")
    for n, name in sorted(long, reverse=True) + (sorted(small) if verbose else []):
        print(f"  {n:6} {name}")


TYPE = re.compile(r"(?m)^(?P<indent> *)(?:pub(?:\([^)]*\))? +)?(?:unsafe +)?(?P<kind>struct|enum|trait|type) +(?P<name>\w+)")


def types(files, verbose):
    places = collections.defaultdict(list)
    for name, _, text in files:
        for match in TYPE.finditer(text):
            if match["kind"] == "type" and is_associated(text, match.start("kind")):
                continue
            line = text.count("\n", 0, match.start("kind")) + 1
            places[match["name"]].append(f"{name}:{line} {match['kind']}")
    without = sum(1 for where in places.values() if sum(not place.endswith(" type") for place in where) >= 3)
    often = sorted((item for item in places.items() if len(item[1]) >= 3), key=lambda item: (-len(item[1]), item[0]))
    print(f"types: {len(often)} names in three or more places ({without} if aliases do not count), of {len(places)} names")
    for name, where in often:
        print(f"  {len(where):6} {name}")
        for place in where if verbose else []:
            print(f"         {place}")


def is_associated(text, at):
    """Returns whether the innermost open block before `at` belongs to an impl or a trait."""
    depth = 0
    for i in range(at - 1, -1, -1):
        depth += (text[i] == "}") - (text[i] == "{")
        if depth < 0:
            head = re.split(r"[;{}]", text[:i])[-1]
            return re.search(r"\b(?:impl|trait)\b", head) is not None
    return False


def public(files, verbose):
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = ["cargo", "rustdoc", "-q", "-p", "wingbeat", "--lib", "--", "-Z", "unstable-options", "--output-format", "json"]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "RUSTC_BOOTSTRAP": "1"})
    crate = json.loads((target / "doc" / "wingbeat.json").read_text())
    found = reachable(crate)
    kinds = collections.Counter(kind for kind, _ in found.values())
    print(f"public: {len(found)} items outside low_level")
    for kind, n in kinds.most_common():
        print(f"  {n:6} {kind}")
    for kind, path in sorted(found.values(), key=lambda item: item[1]) if verbose else []:
        print(f"         {path} ({kind})")
    mentioned = collections.defaultdict(set)
    for key, (kind, path) in found.items():
        for name in types_of(crate, found, crate["index"][key]["inner"]) if kind != "module" else []:
            mentioned[name].add(path)
    print(f"  {len(mentioned):6} types that only low_level names, but public items mention")
    for name, paths in sorted(mentioned.items()) if verbose else []:
        print(f"         {name}: {', '.join(sorted(paths))}")


def reachable(crate):
    """Returns the kind and the path of each public item by id, from the root through modules and re-exports."""
    index, found = crate["index"], {}
    stack = [(crate["root"], "wingbeat")]
    while stack:
        key, path = stack.pop()
        item = index.get(str(key))
        if item is None or str(key) in found or path.endswith("::low_level"):
            continue  # an item of another crate, an item that has a path already, or an item of `low_level`, which promises no stability
        kind, content = next(iter(item["inner"].items()))
        parent = path.rpartition("::")[0]
        if kind == "use" and content["is_glob"]:
            stack += [(k, f"{parent}::{name_of(index, k)}") for k in children(index, content["id"])]
        elif kind == "use":
            stack.append((content["id"], f"{parent}::{content['name']}"))
        else:
            found[str(key)] = (kind, path)
            stack += [(k, f"{path}::{name_of(index, k)}") for k in children(index, key)]
    return found


def types_of(crate, found, part):
    """Yields the path of each type of this crate that a signature mentions and that is not among the public items."""
    if isinstance(part, dict):
        key = str(part.get("id", ""))
        item = crate["paths"].get(key)
        if "path" in part and item and item["crate_id"] == 0 and key not in found:
            yield "::".join(item["path"])
        for name, value in part.items():
            if name not in ("impls", "items", "fields"):
                yield from types_of(crate, found, value)
    elif isinstance(part, list):
        for value in part:
            yield from types_of(crate, found, value)


def children(index, key):
    """Returns the ids of the items of a module or a trait, of the inherent items of a type, and of the public fields of a struct."""
    kind, content = next(iter(index[str(key)]["inner"].items()))
    ids = content["items"] if kind in ("module", "trait") else []
    if kind == "struct" and isinstance(content["kind"], dict):
        shape = content["kind"]
        ids = shape["plain"]["fields"] if "plain" in shape else [field for field in shape["tuple"] if field is not None]
    if kind in ("struct", "enum"):
        impls = [index[str(k)]["inner"]["impl"] for k in content["impls"] if str(k) in index]
        ids = ids + [k for i in impls if i["trait"] is None for k in i["items"]]
    return ids


def name_of(index, key):
    item = index.get(str(key))
    return item and item["name"] or "?"


def main():
    words = sys.argv[1:]
    verbose = "-v" in words
    words = [word for word in words if word != "-v"]
    if any(word not in ("lines", "files", "types", "public") for word in words):
        sys.exit(__doc__)
    files = sources()
    for word in words or ["lines", "files", "types", "public"]:
        {"lines": lines, "files": sizes, "types": types, "public": public}[word](files, verbose)


if __name__ == "__main__":
    main()

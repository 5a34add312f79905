#!/usr/bin/env python3
"""Draws the README's chart of speed beside other engines from the tables in benches/results.

usage: tools/chart.py [--check]      writes assets/speed.svg; --check only says whether the file is up to date

Every bar is a cell of a table: its page, its row and its column. So a new measurement needs a row in a page of benches/results first.
"""
import html
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "assets/speed.svg"
CPU, LLVMPIPE = "2026-11-29-rounded-activations.md", "2026-11-23-llama-cpp.md"
# The column of the page CPU with the latest decode speeds. That change did not affect prefill.
LATEST = "and into the first-level cache"
# A group of bars, and for each weight format the cells (page, row, column) of decode and of prefill.
GROUPS = [
    (
        "RWKV-7 0.1B beside llama.cpp on two cores of an AMD EPYC (Zen 5)",
        {
            "Q4_0": ((CPU, "RWKV-7 0.1B, q4_0", LATEST), (CPU, "q4_0, auto: prefill 512", "ratio")),
            "Q8_0": ((CPU, "RWKV-7 0.1B, q8_0", LATEST), (CPU, "q8_0, auto: prefill 512", "ratio")),
            "f16": ((CPU, "RWKV-7 0.1B, f16", LATEST), (CPU, "RWKV-7 0.1B f16: prefill 512", "ratio")),
        },
    ),
    (
        "GLM-4 0.5B beside llama.cpp, on the same processor",
        {
            "Q4_K_M": ((CPU, "GLM-4 0.5B, q4_k_m", LATEST), (CPU, "GLM-4 0.5B q4_k_m, auto: prefill 256", "ratio")),
            "Q8_0": ((CPU, "GLM-4 0.5B, q8_0", LATEST), (CPU, "q8_0, auto: prefill 256", "ratio")),
            "f16": ((CPU, "GLM-4 0.5B, f16", LATEST), (CPU, "GLM-4 0.5B f16: prefill 256", "ratio")),
        },
    ),
    (
        "RWKV-7 0.1B beside web-rwkv 0.10.20 on llvmpipe, two cores of an Intel Xeon",
        {"f16": ((LLVMPIPE, "decode 16", "Ratio"), (LLVMPIPE, "prefill 512", "Ratio"))},
    ),
]
CSS = """
.back{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d0d7de}.one{stroke:#59636e}.decode{fill:#0969da}.prefill{fill:#80b3f0}
.value{paint-order:stroke;stroke:#ffffff;stroke-width:4px}
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}.head{font-weight:600}.small{font-size:12px}
@media (prefers-color-scheme:dark){.back{fill:#0d1117;stroke:#3d444d}.value{stroke:#0d1117}.text{fill:#f0f6fc}.soft{fill:#9198a1}.grid{stroke:#3d444d}.one{stroke:#9198a1}
.decode{fill:#4493f8}.prefill{fill:#1f4f8f}}
"""
WIDTH, LEFT, RIGHT, BAR, MAX = 752, 86, 60, 14, 2.0


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def ratio(page: str, row: str, column: str) -> float:
    """Returns the number at the beginning of a cell. If several tables of the page have the row and the column, the last one counts."""
    found, header = None, None
    for line in (ROOT / "benches/results" / page).read_text().splitlines():
        if not line.startswith("|"):
            header = None
        elif header is None:
            header = cells(line)
        elif cells(line)[0] == row and column in header:
            found = cells(line)[header.index(column)]
    if not found:
        sys.exit(f"chart: {page} has no row `{row}` with a column `{column}`")
    return float(found.split()[0])


def drawing() -> str:
    scale, out, y = (WIDTH - LEFT - RIGHT) / MAX, [], 62
    for title, formats in GROUPS:
        out.append(f'<text class="text head" x="16" y="{y}">{html.escape(title)}</text>')
        y += 12
        height = len(formats) * (2 * BAR + 10) - 8
        for x in (0, 1, 2):
            out.append(f'<path class="{"one" if x == 1 else "grid"}" d="M{LEFT + x * scale:.1f} {y - 3}v{height + 6}"/>')
        for name, pair in formats.items():
            out.append(f'<text class="soft" x="{LEFT - 10}" y="{y + BAR + 5}" text-anchor="end">{name}</text>')
            for kind, place in zip(("decode", "prefill"), pair):
                value = ratio(*place)
                out.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="{BAR}" rx="2"/>')
                out.append(f'<text class="text small value" x="{LEFT + value * scale + 6:.1f}" y="{y + 11}">{value:.2f}</text>')
                y += BAR + 1
            y += 8
        y += 20
    bottom = y - 22
    names = [f'<text class="soft small" x="{LEFT + x * scale:.1f}" y="{bottom + 16}" text-anchor="middle">{name}</text>'
             for x, name in ((0, "0"), (1, "1: as fast as the other engine"), (2, "2: twice as fast"))]
    # The last name ends at the picture's margin, so that it stays within the picture.
    names[2] = names[2].replace('text-anchor="middle"', 'text-anchor="end"').replace(f'x="{LEFT + 2 * scale:.1f}"', f'x="{WIDTH - 16}"')
    head = ['<text class="text head" x="16" y="27">Speed of wingbeat, as a multiple of another engine’s</text>']
    for x, kind in ((WIDTH - 170, "decode"), (WIDTH - 86, "prefill")):
        head.append(f'<rect class="{kind}" x="{x}" y="17" width="12" height="12" rx="2"/><text class="soft" x="{x + 18}" y="27">{kind}</text>')
    height = bottom + 28
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" aria-label="Speed beside llama.cpp and web-rwkv"><style>{CSS}</style>',
        f'<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>', *head, *out, *names, "</svg>\n",
    ])  # fmt: skip


def main() -> None:
    drawn = drawing()
    if sys.argv[1:] == ["--check"]:
        if not CHART.exists() or CHART.read_text() != drawn:
            sys.exit("chart: assets/speed.svg is not up to date; run tools/chart.py")
    elif sys.argv[1:]:
        sys.exit(__doc__.strip())
    else:
        CHART.write_text(drawn)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records a terminal session of wingbeat and writes it as an SVG picture: the picture at the top of the README.

usage: tools/picture.py WINGBEAT OUT.svg     for example: tools/picture.py target/release/wingbeat assets/session.svg

Every command really runs, on a pseudo-terminal, with the embedded model on the CPU. The seeds are fixed, so only the speeds
in the picture change from one run to the next.
"""
import fcntl
import html
import os
import pty
import re
import select
import struct
import sys
import termios

COLUMNS, ROWS = 92, 200
QUESTIONS = ["Tell me a story about a fox.", "Where did the fox live?", "Give me a record of a cat as JSON.", "/think on", "What is 8 minus 3?"]
# A command, the lines that are typed at its prompts, and the number of output lines to show. None shows all lines.
SESSION = [
    (["inspect"], [], 6),
    (["chat", "--seed", "2"], [*QUESTIONS, "/exit"], None),
]
PROMPT = "User: "
STYLES = {"1": "b", "2": "dim", "32": "green", "33": "yellow", "36": "cyan", "31": "red"}
CSS = """
.w{fill:#16181d}.t{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dae0;white-space:pre}
.b{font-weight:bold}.dim{fill:#868c98}.green{fill:#8ec07c}.yellow{fill:#e5c07b}.cyan{fill:#6cb6ff}.red{fill:#f47067}
"""


def record(command, typed):
    """Returns all bytes that a command writes to a terminal of COLUMNS columns, while the lines of `typed` are typed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS), WINGBEAT_DEVICE="cpu")
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    out, seen, left = b"", 0, list(typed)
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.3)
        if ready:
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
        elif left and PROMPT.encode() in out[seen:]:
            seen = len(out)
            os.write(terminal, left.pop(0).encode() + b"\r")
    os.waitpid(pid, 0)
    return out.decode()


def lines(text):
    """Plays terminal output and returns the screen's lines, each a list of (character, style)."""
    screen, row, column, style = [[]], 0, 0, ""
    tokens = re.findall(r"\x1b\[\??[0-9;]*[A-Za-z]|\x1b.|.|\n", text, re.S)
    for token in tokens:
        if token.startswith("\x1b["):
            number, kind = token[2:-1], token[-1]
            if kind == "m":
                codes = [STYLES.get(code, "") for code in number.split(";")]
                style = "" if codes == [""] and number in ("", "0") else " ".join(filter(None, [style, *codes]))
            elif kind == "C":
                column += int(number or 1)
            elif kind == "D":
                column -= int(number or 1)
            elif kind == "K":
                screen[row] = screen[row][:column]
        elif token == "\r":
            column = 0
        elif token == "\n" or (token.isprintable() and column == COLUMNS):
            screen.append([])
            row, column = row + 1, 0
        if token.isprintable() and not token.startswith("\x1b"):
            screen[row].extend([(" ", "")] * (column + 1 - len(screen[row])))
            screen[row][column] = (token, style)
            column += 1
    while screen and not screen[-1]:
        screen.pop()
    return screen


def shell(words, part):
    """Returns the line that a reader would type."""
    quoted = [f'"{word}"' if " " in word else word for word in words]
    cut = f" | head -{part}" if part else ""
    return [("$", "dim"), *[(c, "b") for c in f" wingbeat {' '.join(quoted)}{cut}"]]


def svg(screen):
    line, margin, bar = 18, 16, 30
    width, height = COLUMNS * 7.83 + 2 * margin, len(screen) * line + 2 * margin + bar
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img" ']
    out.append(f'aria-label="wingbeat in a terminal"><style>{CSS}</style><rect class="w" width="100%" height="100%" rx="8"/>')
    out += [f'<circle cx="{20 + 18 * i}" cy="18" r="5.5" fill="{c}"/>' for i, c in enumerate(("#f47067", "#e5c07b", "#8ec07c"))]
    for i, row in enumerate(screen):
        out.append(f'\n<text class="t" xml:space="preserve" x="{margin}" y="{bar + margin + i * line}">')
        at = 0
        while at < len(row):
            end = next((j for j in range(at, len(row)) if row[j][1] != row[at][1]), len(row))
            text = html.escape("".join(c for c, _ in row[at:end]))
            out.append(f'<tspan class="{row[at][1]}">{text}</tspan>' if row[at][1] else text)
            at = end
        out.append("</text>")
    return "".join(out) + "\n</svg>\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    program, target = sys.argv[1:]
    screen = []
    for words, typed, part in SESSION:
        shown = lines(record([os.path.abspath(program), *words], typed))
        # The line that names the device is the same for every command.
        shown = [row for row in shown if not "".join(c for c, _ in row).startswith("device: ")]
        screen += [shell(words, part), *shown[:part], []]
    with open(target + ".part", "w") as file:
        file.write(svg(screen[:-1]))
    os.replace(target + ".part", target)


if __name__ == "__main__":
    main()

"""Takes samples of the soak's server and draws them. A separate process takes the samples, so that the clients' threads do not delay them.

usage: soak_samples.py FOLDER      draws FOLDER/soak.svg again
"""

import http.client
import json
import math
import multiprocessing
import os
import pathlib
import re
import statistics
import sys
import time

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def look(pid):
    """Returns memory, handles and threads of a process. Raises an `OSError` if the process has ended."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    if "VmRSS" not in status:
        raise ProcessLookupError(pid)
    rss, threads = (int(re.search(rf"{name}:\s+(\d+)", status).group(1)) for name in ("VmRSS", "Threads"))
    return {"rss_mib": round(rss / 1024, 2), "handles": len(os.listdir(f"/proc/{pid}/fd")), "threads": threads}


def fetch(port, path, key=None):
    """Returns status, body and milliseconds of a request on a new connection."""
    began, connection = time.monotonic(), http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        body = response.read()
        return response.status, body, round((time.monotonic() - began) * 1000, 3)
    finally:
        connection.close()


def sample(pid, port, key):
    """Returns a sample of the server. While the server starts or ends, the sample has no values of unanswered requests."""
    one = {}
    try:
        one.update(look(pid))
        one["health"], _, one["health_ms"] = fetch(port, "/health")
        status, body, _ = fetch(port, "/slots", key)
        if status == 200:
            slots = json.loads(body)[0]
            one.update(busy=slots["slots"] - slots["free_slots"], running=slots["running"], waiting=slots["waiting"], paused=slots["paused"])
    except (OSError, http.client.HTTPException):
        pass
    return one


class Sampler:
    """Writes a sample per second to a file of JSON lines. `pid` is the process of the current server, or 0 while no server runs."""

    def __init__(self, path, port, key, began):
        self.path, self.port, self.key, self.began = path, port, key, began
        self.pid, self.ended = multiprocessing.Value("i", 0), multiprocessing.Event()
        self.process = multiprocessing.Process(target=self.run, daemon=True)
        self.process.start()

    def run(self):
        spent, clients, next_ = {}, os.getppid(), time.monotonic()
        with open(self.path, "w") as file:
            while not self.ended.wait(max(0, next_ - time.monotonic())) and os.getppid() == clients:
                next_ = max(next_ + 1, time.monotonic())
                pid, now = self.pid.value, time.monotonic()
                one = {"t": round(now - self.began, 3), "pid": pid, **(sample(pid, self.port, self.key) if pid else {})}
                for name, process in (("cpu_server", pid), ("cpu_clients", clients)):
                    try:
                        used = cpu_seconds(process) if process else None
                    except OSError:
                        continue
                    if used is not None and process in spent:
                        one[name] = round((used - spent[process][0]) / (now - spent[process][1]), 3)
                    spent[process] = used, now
                file.write(json.dumps(one) + "\n")
                file.flush()

    def end(self):
        """Ends the process and returns all samples."""
        self.ended.set()
        self.process.join(40)
        assert self.process.exitcode == 0, f"the process of the samples: expected exit code 0, found {self.process.exitcode}"
        return read(self.path)


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def growth(samples, begin, end):
    """Compares the memory of a stretch without a restart: a minute after its first ten minutes, and its last minute. A short stretch has shorter parts.

    Returns both medians in MiB and the growth in per cent, or None if there are too few samples."""
    settled, part = begin + min(600, (end - begin) / 3), min(60, (end - begin) / 6)
    early, late = ([s["rss_mib"] for s in samples if a <= s["t"] < a + part and "rss_mib" in s] for a in (settled, end - part))
    if not early or not late:
        return None
    early, late = statistics.median(early), statistics.median(late)
    return early, late, (late / early - 1) * 100


WIDTH, LEFT, RIGHT, TOP, PANEL, GAP = 960, 76, 24, 96, 150, 54
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#00805c"
# Title, unit, whether the axis is logarithmic, and the lines: field, name, colour, and the function that combines the samples of one pixel.
PANELS = [
    ("Resident memory", "MiB", False, [("rss_mib", "memory", BLUE, statistics.fmean)]),
    ("Open handles and threads", "number", False, [("handles", "handles", BLUE, statistics.fmean), ("threads", "threads", ORANGE, statistics.fmean)]),
    ("Slots and queue", "requests", False, [("busy", "taken slots", BLUE, statistics.fmean), ("waiting", "waiting requests", ORANGE, statistics.fmean)]),
    ("Time of GET /health on a new connection", "ms", True, [("health_ms", "most", BLUE, max)]),
]


def steps(top, n):
    """Returns round numbers from 0 to at least `top`, at most `n` + 1 of them."""
    size = 10 ** math.floor(math.log10(max(top, 1) / n))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor * n >= max(top, 1))
    return [i * step for i in range(math.ceil(max(top, 1) / step) + 1)]


def picture(samples, summary):
    """Returns an SVG of four panels with a common time axis. `summary` has `title`, `restarts` and `stretch`."""
    longest = max(samples[-1]["t"], 1, *(restart["t"] for restart in summary["restarts"]))
    height = TOP + len(PANELS) * (PANEL + GAP) + 8

    def x(t):
        return LEFT + t / longest * (WIDTH - LEFT - RIGHT)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="26" font-size="17" font-weight="bold">{summary["title"]}</text>',
        f'<line x1="{LEFT}" y1="43" x2="{LEFT + 24}" y2="43" stroke="#888"/><text x="{LEFT + 30}" y="47">restart after SIGTERM</text>',
        f'<line x1="{LEFT + 190}" y1="43" x2="{LEFT + 214}" y2="43" stroke="#c00" stroke-dasharray="4 3"/><text x="{LEFT + 220}" y="47">restart after kill -9</text>',
        f'<rect x="{LEFT + 370}" y="37" width="24" height="12" fill="#eef3fa"/><text x="{LEFT + 400}" y="47">long stretch without a restart</text>',
    ]
    for number, (title, unit, logarithmic, drawn) in enumerate(PANELS):
        top = TOP + number * (PANEL + GAP)
        most = max((s[field] for s in samples for field, *_ in drawn if field in s), default=1)
        if logarithmic:
            least = min((s[field] for s in samples for field, *_ in drawn if s.get(field)), default=0.1)
            low, high = math.floor(math.log10(least)), max(math.ceil(math.log10(most)), math.floor(math.log10(least)) + 1)
            marks = [10.0**i for i in range(low, high + 1)]
        else:
            marks = steps(most, 5)

        def y(value, marks=marks, top=top, logarithmic=logarithmic):
            part = math.log(max(value, marks[0]) / marks[0]) / math.log(marks[-1] / marks[0]) if logarithmic else value / marks[-1]
            return top + PANEL * (1 - part)

        begin, end = summary["stretch"]
        out.append(f'<rect x="{x(begin):.1f}" y="{top}" width="{x(end) - x(begin):.1f}" height="{PANEL}" fill="#eef3fa"/>')
        out.append(f'<text x="{LEFT}" y="{top - 10}" font-size="14" font-weight="bold">{title} ({unit}{", logarithmic" if logarithmic else ""})</text>')
        for mark in marks:
            out.append(f'<line x1="{LEFT}" y1="{y(mark):.1f}" x2="{WIDTH - RIGHT}" y2="{y(mark):.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{LEFT - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:g}</text>')
        for restart in summary["restarts"]:
            style = 'stroke="#888"' if restart["how"] == "SIGTERM" else 'stroke="#c00" stroke-dasharray="4 3"'
            out.append(f'<line x1="{x(restart["t"]):.1f}" y1="{top}" x2="{x(restart["t"]):.1f}" y2="{top + PANEL}" {style}/>')
        right = WIDTH - RIGHT
        for field, name, color, several in reversed(drawn):
            out += [f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>' for points in polylines(samples, field, several, x, y)]
            if len(drawn) > 1:
                out.append(f'<text x="{right}" y="{top - 10}" text-anchor="end" fill="{color}">{name}</text>')
                right -= 7 * len(name) + 6
                out.append(f'<line x1="{right - 20}" y1="{top - 14}" x2="{right}" y2="{top - 14}" stroke="{color}" stroke-width="2"/>')
                right -= 42
        out.append(f'<line x1="{LEFT}" y1="{top + PANEL}" x2="{WIDTH - RIGHT}" y2="{top + PANEL}" stroke="#222"/>')
        # Minutes in long runs, seconds in short ones.
        scale, word = (60, "minutes") if longest >= 300 else (1, "seconds")
        for t in steps(longest / scale, 12):
            if t * scale <= longest:
                out.append(f'<line x1="{x(t * scale):.1f}" y1="{top + PANEL}" x2="{x(t * scale):.1f}" y2="{top + PANEL + 5}" stroke="#222"/>')
                out.append(f'<text x="{x(t * scale):.1f}" y="{top + PANEL + 18}" text-anchor="middle">{t:g}</text>')
        if number == len(PANELS) - 1:
            out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{top + PANEL + 38}" text-anchor="middle">{word} since the start</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def polylines(samples, field, several, x, y):
    """Yields the points of each line. A line ends where no server answers. Samples that share a pixel become one point."""
    lines, last = [], None
    for s in samples:
        if field not in s:
            last = None
            continue
        column = int(x(s["t"]))
        if last == (s["pid"], column):
            lines[-1][-1][1].append(s[field])
            continue
        if last is None or last[0] != s["pid"]:
            lines.append([])
        lines[-1].append((x(s["t"]), [s[field]]))
        last = s["pid"], column
    for line in lines:
        points = [f"{at:.1f},{y(several(values)):.1f}" for at, values in line]
        yield " ".join(points if len(points) > 1 else [points[0], f"{line[0][0] + 1:.1f},{points[0].split(',')[1]}"])


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    (out / "soak.svg").write_text(picture(read(out / "samples.jsonl"), json.loads((out / "summary.json").read_text())))

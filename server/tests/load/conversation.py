"""A conversation of 20 turns, with and without the prefix cache: time to the first token, reused tokens, equal texts. Then two edits.

usage: conversation.py [--turns 20] [--out TABLE.md] [--llama URL] [--url URL] [FLAGS OF serve…]

`--out` writes a table in Markdown, and an SVG chart beside it. `--url` measures a running server. `--llama` adds a llama-server.
"""

import argparse
import http.client
import json
import pathlib
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import server  # noqa: E402
from server import Server, equal  # noqa: E402

WORDS = "Speak to me of the waters and of the dry land, of the beasts of the field and of every thing that creepeth upon the earth. "


def turn(url, messages, more):
    """Sends the messages. Returns the text, the milliseconds to the first token, and the numbers of prompt tokens and reused tokens."""
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=600)
    body = {"messages": messages, "max_tokens": 16, "seed": 1, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, **more}
    began, first, text, usage = time.perf_counter(), None, "", {}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, f"a turn: expected 200, found {response.status} {response.read()[:300]!r}"
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        assert "error" not in chunk, f"a turn: expected a chunk, found {chunk}"
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            delta = choice["delta"].get("content")
            if delta and first is None:
                first = (time.perf_counter() - began) * 1e3
            text += delta or ""
    connection.close()
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return text, first or (time.perf_counter() - began) * 1e3, usage.get("prompt_tokens", 0), cached


def talk(url, n_turns, more):
    messages, turns = [], []
    for number in range(n_turns):
        messages.append({"role": "user", "content": f"{number + 1}. {WORDS}"})
        turns.append(turn(url, messages, more))
        messages.append({"role": "assistant", "content": turns[-1][0]})
    return turns, edits(url, messages, more)


def edits(url, messages, more):
    """Changes one question of the conversation and asks again. Returns the result of `turn`, for the last question and for a middle question."""
    results = {}
    for place, at in (("the last question", len(messages) - 2), ("a question in the middle", len(messages) // 4 * 2)):
        changed = [*messages[:at], {"role": "user", "content": "Tell me of the stars. " + WORDS}, *messages[at + 1 :]]
        results[place] = turn(url, changed[: len(messages) - 1], more)
    return results


def table(series):
    """Returns a table in Markdown: a row per turn, and for each series the milliseconds and the reused tokens."""
    names = list(series)
    lines = ["| turn | prompt tokens | " + " | ".join(f"{name}: ms to the first token | {name}: reused tokens" for name in names) + " |"]
    lines.append("|---|---|" + "---|---|" * len(names))
    for number in range(len(series[names[0]])):
        cells = " | ".join(f"{series[name][number][1]:.1f} | {series[name][number][3]}" for name in names)
        lines.append(f"| {number + 1} | {series[names[0]][number][2]} | {cells} |")
    return "\n".join(lines) + "\n"


def chart(series):
    """Returns an SVG chart of the time to the first token per turn."""
    width, height, left, colors = 640, 320, 56, ["#0072b2", "#d55e00", "#009e73"]
    n, top = max(map(len, series.values())), max(t[1] for turns in series.values() for t in turns)

    def at(number, ms):
        return f"{left + number * (width - left - 16) / max(1, n - 1):.1f},{height - 36 - ms / top * (height - 60):.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">', f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for i, (name, turns) in enumerate(series.items()):
        points = " ".join(at(number, t[1]) for number, t in enumerate(turns))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colors[i % 3]}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 8}" y="{20 + 16 * i}" fill="{colors[i % 3]}">{name}</text>')
    parts.append(f'<text x="4" y="{height - 36}">0 ms</text><text x="4" y="28">{top:.0f} ms</text><text x="{width / 2}" y="{height - 8}">turn (1 to {n})</text></svg>')
    return "\n".join(parts) + "\n"


def measure(url):
    turn(url, [{"role": "user", "content": "warm up"}], {"no_cache": True})
    series = {"cache": talk(url, arguments.turns, {}), "no cache": talk(url, arguments.turns, {"no_cache": True})}
    if arguments.llama:
        series["llama-server"] = talk(arguments.llama, arguments.turns, {"cache_prompt": True})
    edited = {name: results for name, (_, results) in series.items()}
    series = {name: turns for name, (turns, _) in series.items()}
    if arguments.out:
        out = pathlib.Path(arguments.out)
        out.write_text(table(series))
        out.with_suffix(".svg").write_text(chart(series))
    for name, turns in series.items():
        first, last = turns[0], turns[-1]
        print(f"  {name}: {first[1]:.1f} ms to the first token in turn 1, {last[1]:.1f} ms in turn {len(turns)}; {last[3]} of {last[2]} tokens reused in the last turn")
        for place, (_, ms, n_prompt, n_reused) in edited[name].items():
            print(f"  {name}: after an edit of {place}, {n_reused} of {n_prompt} tokens reused, {ms:.1f} ms to the first token")
    return series


def conversation():
    if arguments.url:
        return measure(arguments.url)
    with Server("--deterministic", *flags) as served:
        check(measure(served.url))


def check(series):
    cached, fresh = series["cache"], series["no cache"]
    for number, (a, b) in enumerate(zip(cached, fresh), 1):
        equal(a[0], b[0], f"text of turn {number} with and without the cache")
        equal(b[3], 0, f"reused tokens of turn {number} without the cache")
        # The cache has the prompt of the previous turn, and the answer without its last token.
        least = cached[number - 2][2] if number > 1 else 0
        assert a[3] >= least, f"reused tokens of turn {number}: expected at least the {least} tokens of the prompt before, found {a[3]} of {a[2]}"
    half = len(cached) // 2
    late, early = (sorted(t[1] for t in turns[half:])[(len(turns) - half) // 2] for turns in (fresh, cached))
    assert early < late, f"time to the first token of late turns: expected less than {late:.1f} ms with the cache, found {early:.1f} ms"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--out")
    parser.add_argument("--llama")
    parser.add_argument("--url")
    arguments, flags = parser.parse_known_args()
    server.run(conversation)

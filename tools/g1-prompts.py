#!/usr/bin/env python3
"""Writes src/template/testing/rwkv-g1.json: conversations, and their prompts as Python's jinja2 renders them.

Needs jinja2. Run it in the repository after a change of src/template/testing/rwkv-g1.jinja.
"""

import json
import re
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = Path(__file__).resolve().parent.parent / "src/template/testing"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a “city”.", "parameters": PARAMETERS}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
CALL = {"role": "assistant", "metadata": "get_weather", "content": '{"city": "北京", "days": 2}'}
RESULT = {"role": "observation", "content": '{"celsius": 21.5, "sky": ["clear", null]}'}


def said(role, content):
    return {"role": role, "content": content}


STYLES = [("assistant", "open_think"), ("bot", "fake_think"), ("assistant", "fake_think"), ("bot", "open_think")]
SYSTEMS = [[], [said("system", " Be brief.\r\n\r\n\r\nBe kind. \n")], [said("system", "")]]
TALKS = [
    [said("user", "Hi")],
    [said("user", " a \n\n\nb\t\n"), said("assistant", "<think>\nhm\n</think>\n\nOne. \n\nTwo.\n"), said("user", "c (think a bit)")],
    [said("user", "第一"), said("assistant", ""), said("user", "x ✿ {{ 7 }} <think>|]")],
]
TOOL_TALKS = [
    [said("user", "Weather?\n\nIn Beijing.")],
    [said("user", "?"), CALL, RESULT],
    [said("user", "?"), said("assistant", "I look.\n"), CALL, {**CALL, "metadata": "clock", "content": "{}"}, RESULT, said("observation", "12:30 h"),
     said("assistant", "<think>x</think> Warm."), said("user", "Thanks"), said("system", "Stop soon."), said("user", "More")],
    [said("user", "a"), said("system", "late")],
]


def clean(text, folds):
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = "\n".join(line.rstrip(" \t") for line in text.split("\n")).strip(" \t\n")
    return re.sub(r"\n{2,}", "\n", text) if folds else text


def value(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def openai(messages):
    """Returns the messages as the template reads them: cleaned, without thoughts, with calls inside the answer before them."""
    made = []
    for message in messages:
        role, content = message["role"], message["content"]
        if "metadata" in message:
            if not made or made[-1]["role"] != "assistant":
                made.append({"role": "assistant", "content": ""})
            function = {"name": message["metadata"], "arguments": value(content)}
            made[-1].setdefault("tool_calls", []).append({"type": "function", "function": function})
        elif role == "observation":
            content = clean(content, False)
            made.append({"role": "tool", "content": content, "rwkv_json_content": value(content)})
        else:
            content = content.rsplit("</think>", 1)[-1] if role == "assistant" else content
            made.append({"role": role, "content": clean(content, role in ("user", "system"))})
    return made


def refuse(message):
    raise ValueError(message)


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = refuse
    template = environment.from_string((FOLDER / "rwkv-g1.jinja").read_text())
    cases = []
    for system in SYSTEMS:
        for tools, talks in ([], TALKS), ([], TOOL_TALKS[1:3]), ([WEATHER], TOOL_TALKS), ([WEATHER, CLOCK], TOOL_TALKS[2:3]):
            for talk in talks:
                # With tools, the prompt does not depend on the style, so fewer styles are enough.
                styles = STYLES if talk in TALKS else STYLES[len(cases) % 2 :: 3]
                for style, opening in styles:
                    messages = system + talk
                    prompt = template.render(
                        messages=openai(messages), tools=tools or None, add_generation_prompt=True, bos_token="<|endoftext|>",
                        rwkv_prompt_template=style, rwkv_generation_prompt=opening, rwkv_add_bos=False)
                    cases.append({"style": style, "opening": opening, "messages": messages, "tools": tools, "prompt": prompt})
    (FOLDER / "rwkv-g1.json").write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()

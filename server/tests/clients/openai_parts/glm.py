"""GLM-4 and RWKV-4 to RWKV-6: streams, the prefix cache, saved states. These test models have no chat format of their own."""

from server import Server, equal, models

from .shared import client

TEXT = "In the beginning God created the heaven and the earth. And the earth was without form."
NAMES = {"glm": "tiny-glm4", "rwkv4": "tiny-rwkv4.safetensors", "rwkv5": "tiny-rwkv5.safetensors", "rwkv6": "tiny-rwkv6.safetensors"}


def every_architecture_serves_texts():
    flags = [flag for name, file in NAMES.items() for flag in ("-m", f"{name}={models()}/{file}")]
    with Server("--deterministic", "--slots", "4", *flags) as server:
        for name in NAMES:
            check(server, name)


def check(server, name):
    def complete(prompt=TEXT, **more):
        return client(server).completions.create(**{"model": name, "prompt": prompt, "max_tokens": 12, "temperature": 0, **more})

    first, again = complete(), complete()
    equal((again.model, again.choices[0].text), (name, first.choices[0].text), f"{name}: text of a repeated prompt")
    cached = again.usage.prompt_tokens_details.cached_tokens
    assert cached > 0, f"{name}: cached_tokens of a repeated prompt: expected more than 0, found {cached}"
    equal("".join(c.text for chunk in complete(stream=True) for c in chunk.choices), first.choices[0].text, f"{name}: text of a stream")
    equal(len(complete(n=3, temperature=1).choices), 3, f"{name}: choices with n = 3")
    begin, end = TEXT[:24], TEXT[24:]
    answer = server.post("/v1/states", {"action": "save", "name": "begin", "prompt": begin, "model": name})
    equal(answer.status, 200, f"{name}: saving a state: {answer.body[:200]!r}")
    content = server.get(f"/v1/states/begin/content?model={name}").body
    uploaded = server.request("PUT", f"/v1/states/again/content?model={name}", content)
    equal(uploaded.status, 201, f"{name}: uploading a state: {uploaded.body[:200]!r}")
    for state in ("begin", "again"):
        equal(complete(end, extra_body={"state": state}).choices[0].text, first.choices[0].text, f"{name}: text from the state {state}")
    other = next(other for other in NAMES if other != name)
    answer = server.request("PUT", f"/v1/states/again/content?model={other}", content)
    equal(answer.status, 400, f"{other}: a state of {name}: {answer.body[:200]!r}")


CHECKS = [every_architecture_serves_texts]

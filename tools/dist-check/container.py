#!/usr/bin/env python3
"""Does the steps of a Containerfile in a root, for machines that cannot pull images.

usage: container.py CONTAINERFILE CONTEXT ROOT COMMAND…
  ROOT      folder with the image that FROM names
  COMMAND…  runs a RUN step: it gets the words of the step's command. Variables of ENV are not set for it.

Knows FROM, ARG, COPY, RUN, ENV, USER, WORKDIR, EXPOSE, HEALTHCHECK, ENTRYPOINT, CMD. Prints the image's settings as JSON.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

path, context, root, *command = sys.argv[1:]
settings = {"env": {}, "user": "root", "workdir": "/", "entrypoint": [], "cmd": [], "health": []}
names = {}


def expand(text):
    return re.sub(r"\$\{?(\w+)\}?", lambda found: {**names, **settings["env"]}[found[1]], text)


with open(path, encoding="utf-8") as file:
    lines = [line for line in file.read().split("\n") if not line.lstrip().startswith("#")]
steps = re.sub(r"\\\n", " ", "\n".join(lines)).split("\n")
for step in filter(str.strip, steps):
    verb, rest = step.split(None, 1)
    print(f"{verb} {rest[:100]}", file=sys.stderr)
    if verb == "FROM" or verb == "EXPOSE":
        continue
    if verb == "ARG":
        name, value = rest.split("=", 1)
        names[name] = os.environ.get(name, value)
    elif verb == "ENV":
        name, value = rest.split("=", 1)
        settings["env"][name] = value
    elif verb == "COPY":
        *sources, target = expand(rest).split()
        found = [name for source in sources for name in glob.glob(os.path.join(context, source))]
        if not found:
            sys.exit(f"COPY: no file {rest} in {context}")
        for name in found:
            shutil.copy(name, root + target)
    elif verb == "RUN":
        subprocess.run([*command, "sh", "-c", rest], check=True, stdout=sys.stderr)
    elif verb == "USER":
        settings["user"] = rest
    elif verb == "WORKDIR":
        settings["workdir"] = rest
    elif verb == "HEALTHCHECK":
        settings["health"] = json.loads(rest.split("CMD", 1)[1])
    elif verb in ("ENTRYPOINT", "CMD"):
        settings[verb.lower()] = json.loads(rest)
    else:
        sys.exit(f"unknown instruction {verb}")
print(json.dumps(settings))

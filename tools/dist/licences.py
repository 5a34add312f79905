#!/usr/bin/env python3
"""Prints the licences of all libraries that the program contains: name, version, licence, then each text once.

usage: licences.py FEATURES     Cargo features besides the default ones; runs cargo metadata in the repository's folder
"""
import json
import os
import pathlib
import subprocess
import sys

TEXTS = ("licen", "copying", "notice", "copyright", "unlicense")


def linked(graph):
    """Returns the ids of all packages that the program depends on, without build tools and tests."""
    root = next(package["id"] for package in graph["packages"] if package["name"] == "wingbeat-cli")
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    found, open_ids = set(), [root]
    while open_ids:
        package = open_ids.pop()
        if package in found:
            continue
        found.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                open_ids.append(dependency["pkg"])
    return found - set(graph["workspace_members"])


def main():
    cargo = os.environ.get("CARGO", "cargo")
    graph = json.loads(subprocess.check_output([cargo, "metadata", "--format-version", "1", "--locked", "--features", sys.argv[1], "--manifest-path", "cli/Cargo.toml"]))
    ids = linked(graph)
    packages = sorted((p for p in graph["packages"] if p["id"] in ids), key=lambda p: (p["name"], p["version"]))
    users = {}
    print("The program contains these libraries. The texts of their licences follow.\n")
    for package in packages:
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or package['license_file']}")
        for path in sorted(pathlib.Path(package["manifest_path"]).parent.iterdir()):
            if path.is_file() and path.name.lower().startswith(TEXTS):
                text = path.read_text(encoding="utf-8", errors="replace").strip()
                users.setdefault(text, []).append(name)
    for text, names in sorted(users.items(), key=lambda pair: pair[1]):
        print(f"\n{'=' * 80}\n{', '.join(names)}\n{'=' * 80}\n\n{text}")


main()

#!/usr/bin/env python3
"""Holds generated parts of the docs to the program's own tables.

usage: docs.py PROGRAM SOURCE_ROOT [--write]

A part stands between <!-- generated: NAME --> and <!-- end -->. Without --write, differences are
printed and the exit status is 1; with it, the files are rewritten.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

program, root = sys.argv[1], Path(sys.argv[2])
write = "--write" in sys.argv[3:]


def ask(*arguments):
    return json.loads(subprocess.check_output([program, *arguments, "--json"], text=True))


def cell(text):
    return text.replace("|", "\\|")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def formats():
    return table(["format", "is"],
                 [[f"`{f['name']}:`", cell(f["summary"])] for f in ask("inspect", "--formats")["formats"]])


def options():
    parts = []
    for f in ask("inspect", "--formats")["formats"]:
        rows = []
        for o in f["options"]:
            choices = f" ({', '.join(o['choices'])})" if o.get("choices") else ""
            unit = f" (a bare number is {o['unit']})" if o.get("unit") else ""
            default = f"`{o['default']}`" if o["default"] not in (None, "") else ""
            rows.append([f"`{o['name']}`", default, cell(o["help"] + unit + choices)])
        parts.append(f"`{f['name']}:`\n\n" + table(["option", "default", "meaning"], rows))
    return "\n\n".join(parts)


def transforms():
    return table(["op", "does"],
                 [[f"`{t['name']}({cell(t['arguments'])})`", cell(t["summary"])]
                  for t in ask("inspect", "--transforms")["transforms"]])


def commands():
    text = subprocess.check_output([program, "--help"], text=True)
    lines = text.split("Commands:\n", 1)[1].split("\n\n", 1)[0].splitlines()
    column = re.match(r" +\S+ +", lines[0]).end()
    rows = [(line[:column].strip(), line[column:]) for line in lines]
    return table(["command", "does"], [[f"`millrace {name}`", cell(what)] for name, what in rows])


def reports():
    return table(["report", "shows"], [[f"`{r['name']}`", cell(r["help"])] for r in ask("report", "--list")["list"]])


def rooms():
    """Rows of layers.txt: `room: rooms it may include # what it does`."""
    rows = []
    for line in (root / "tests/project/layers.txt").read_text().splitlines():
        row = re.fullmatch(r"([a-z]+):([^#]*)#\s*(.*)", line)
        if row:
            rows.append([f"`{row[1]}`", row[3], row[2].strip().replace(" ", ", ")])
    return table(["room", "what it does", "may include"], rows)


def names(folder, pattern):
    """Names in the rooms' arrays of variants, read from the sources."""
    found = []
    for file in sorted(f for f in (root / folder).rglob("*.c") if f.name != "absent.c"):  # of the core build
        found += re.findall(pattern, file.read_text())
    return ", ".join(f"`{name}`" for name in found)


def variants():
    rows = [["devices", names("src/device", r"struct mr_device_ops mr_device_(\w+) = ")],
            ["data sets", ", ".join(f"`{f['name']}`" for f in ask("inspect", "--formats")["formats"])],
            ["ops", ", ".join(f"`{t['name']}`" for t in ask("inspect", "--transforms")["transforms"])],
            ["row backends", names("src/loader/backends", r"struct mr_row_backend mr_row_(\w+) = ")],
            ["reports", ", ".join(f"`{r['name']}`" for r in ask("report", "--list")["list"])],
            ["rules", names("src/advice", r"\{\"(\w+)\", judge_\w+\}")]]
    for row in rows:
        if not row[1]:
            sys.exit(f"docs.py: no {row[0]} found: the sources changed their form")
    return table(["family", "variants"], rows)


makers = {f.__name__: f for f in (formats, options, transforms, commands, reports, rooms, variants)}
wrong = seen = 0
for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
    text = path.read_text()

    def make(match):
        global seen
        seen += 1
        if match[1] not in makers:
            sys.exit(f"{path}: nothing makes the part {match[1]}")
        return f"<!-- generated: {match[1]} -->\n\n{makers[match[1]]()}\n\n<!-- end -->"

    new = re.sub(r"<!-- generated: (\w+) -->.*?<!-- end -->", make, text, flags=re.S)
    if new != text:
        wrong += 1
        if write:
            path.write_text(new)
        else:
            print(f"{path}: generated parts are out of date: run tests/project/docs.py PROGRAM ROOT --write")
print(f"{seen} generated parts, {wrong} files {'rewritten' if write else 'out of date'}")
sys.exit(0 if (write or not wrong) and seen else 1)

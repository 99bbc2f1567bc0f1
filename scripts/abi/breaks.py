#!/usr/bin/env python3
"""Reads what abidiff --leaf-changes-only reports and prints what breaks programs; exit status 1 if anything does.

A struct may grow at its end, and an enum may get values, as millrace.h says. FIXED structs are elements of arrays or members of
other structs: they may not grow.
"""
import re
import sys

FIXED = re.compile(r'Arrow(Schema|Array|ArrayStream)$|mr_(arrow_column|spec|rank_step|batch_field|batch_item|sample_context|range|bytes|stored|picture_opts|collate_in|collate_out|'
                   r'collate_context|copy|device_process|percentiles|optim_group|text_column|doubles|shape|limit|option|cell|'
                   r'rng|dlpack\w*)$')
# Private, though abidw takes them for public: their headers have the names of public ones.
OPAQUE = re.compile(r"'struct mr_(dataset|dataset_ops|optim|sampler)' ")


def is_growth(head, lines):
    """Is this change of a type one that programs don't notice?"""
    if re.match(r"'enum ", head):
        return all(re.match(r"type size hasn't|\d+ enumerator insertions?:|'\S+' value|no enumerator", line) for line in lines)
    struct = re.match(r"'struct (\w+)", head)
    size = lines and re.match(r'type size changed from (\d+) to', lines[0])
    if not struct or not size or FIXED.match(struct[1]):
        return False
    for line in lines[1:]:
        member = re.match(r"'.*', at offset (\d+) \(in bits\)", line)
        if member and int(member[1]) < int(size[1]):
            return False
        if not member and not re.match(r'\d+ data member insertions?:|\d+ impacted interface|one impacted interface', line):
            return False
    return True


def main():
    broken = False
    for paragraph in re.split(r"\n(?=\S)", sys.stdin.read()):
        head, *lines = [line.strip() for line in paragraph.splitlines() if line.strip()] or ['']
        if not head or re.match(r'Leaf changes|Changed leaf|Removed/Changed', head):
            continue
        if OPAQUE.match(head):
            continue
        if re.match(r'\d+ Removed', head):  # private functions are for libraries of the same build
            lines = [line for line in lines if '_PRIVATE}' not in line]
            if not lines:
                continue
        if not is_growth(head, lines):
            print('\n  '.join([head, *lines]))
            broken = True
    return broken


sys.exit(main())

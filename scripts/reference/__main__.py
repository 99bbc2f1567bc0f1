#!/usr/bin/env python3
"""Writes the reference from the public headers: man pages and HTML.

usage: python3 scripts/reference INCLUDE OUT VERSION [LIBRARY=HEADER,HEADER...]...

INCLUDE/millrace/*.h are read; OUT/man3 and OUT/html are written. Headers that no LIBRARY names are
in libmillrace. The same headers always give the same bytes.
"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True # in the source tree

import headers # noqa: E402
import html_pages # noqa: E402
import man_pages # noqa: E402


def libraries(arguments):
    return {header: name for a in arguments for name, _, listed in [a.partition("=")]
            for header in listed.split(",")}


include, out, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
reference = headers.Reference(include / "millrace", libraries(sys.argv[4:]), version)
man_pages.write(reference, out / "man3")
html_pages.write(reference, out / "html")

#!/usr/bin/env python3
"""The reference of the C interface: complete, the same each time, and without dead links.

usage: reference.py SOURCE SCRATCH BUILT ARGUMENTS...       ARGUMENTS: of scripts/reference
"""
import html.parser
import re
import shutil
import subprocess
import sys
from pathlib import Path

source, scratch, built, arguments = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
sys.path.insert(0, str(source / "scripts/reference"))
import headers # noqa: E402

complaints = []


def expect(condition, complaint):
    if not condition:
        complaints.append(complaint)


def tree(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for part in ("man3", "html")
            for f in (folder / part).iterdir()}


class Links(html.parser.HTMLParser):
    """Anchors and addresses of a page, and what would be loaded from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "a":
            self.links.append(attributes["href"])
        if tag in ("script", "link", "img", "iframe") or "src" in attributes:
            self.loads.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        expect(self.open and self.open.pop() == tag, f"</{tag}> closes nothing")


def check_pages(pages):
    for name, page in pages.items():
        expect(len(set(page.ids)) == len(page.ids), f"{name}: an anchor occurs twice")
        expect(not page.loads, f"{name}: loads {page.loads}")
        for link in page.links:
            file, _, anchor = link.partition("#")
            if file.startswith("../"): # installed beside docs and examples, as in the source tree
                expect((source / file[3:]).exists(), f"{name}: {link} is not there")
                continue
            expect((file or name) in pages, f"{name}: {link} is not there")
            if anchor and (file or name) in pages:
                expect(anchor in pages[file or name].ids, f"{name}: {link}: no such anchor")


def check_comments(reference):
    """Each function has a comment, alone or with its neighbours."""
    for header in reference.headers:
        for group in header.groups:
            functions = [d for d in group.declarations if d.kind == "function"]
            where = f"{header.path.name}: {', '.join(d.name for d in group.declarations)}"
            if functions:
                expect(group.comment, f"{where}: no comment")


subprocess.run(["rm", "-rf", scratch], check=True)
for name in ("one", "two"):
    subprocess.run([sys.executable, "-B", source / "scripts/reference", source / "include", scratch / name,
                    *arguments], check=True)
files = tree(scratch / "one")
expect(files == tree(scratch / "two"), "two runs differ")
expect(files == tree(built), "the build's pages are not those of these headers")

pages = {Path(n).name: Links(b.decode()) for n, b in files.items() if n.startswith("html/")}
check_pages(pages)
shown = {anchor for page in pages.values() for anchor in page.ids}
declared = set()
for path in (source / "include/millrace").glob("*.h"):
    text = re.sub(r"^\s*#.*", "", path.read_text(), flags=re.M)
    found = re.findall(r"\bMR_API [^(;]*?\b(mr_\w+)(?:\[\w*\])?[(;]", text)
    found += re.findall(r"^(?:struct|enum) (mr_\w+)[ ;]*(?:\{|;|$)", text, flags=re.M)
    for name in found:
        expect(name in shown, f"{path.name}: {name} is on no page")
        expect(f"man3/{name}.3" in files, f"{path.name}: {name} has no man page")
    declared.update(found)
for name, body in files.items():
    link = re.fullmatch(rb"\.so (man3/\w+\.3)\n", body)
    expect(not link or link[1].decode() in files, f"{name}: links to nothing")
    expect(link or len(body) > 1000, f"{name}: {len(body)} bytes only")
check_comments(headers.Reference(source / "include/millrace", {}, ""))
if shutil.which("mandoc"):
    real = [scratch / "one" / n for n, b in files.items() if n.endswith(".3") and not b.startswith(b".so")]
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *real], stdout=subprocess.PIPE, text=True)
    expect(not lint.stdout, lint.stdout)
print(*complaints, sep="\n")
print(f"{len(declared)} names, {len(pages)} pages, {len(complaints)} complaints")
sys.exit(1 if complaints or len(declared) < 300 else 0)

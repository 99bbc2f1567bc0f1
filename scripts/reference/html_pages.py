"""HTML pages: an index and one page a header, without scripts or anything from elsewhere."""
import html
import re

RUN_IN = re.compile(r"^((?:Threads|Errors|Ownership|Signals|CUDA|C\+\+|fork):)")
LINKS = re.compile(r"\b(mr_\w+|MR_\w+|\w+\.h|docs/\w+\.md|examples/\w+\.\w+)\b")
STYLE = """:root {
  --bg: #ffffff; --panel: #f6f7f9; --line: #dfe3e8; --text: #1d2733; --soft: #5b6876;
  --accent: #1f6feb; --hit: #fff6e5;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #12171d; --panel: #1a2129; --line: #2b343f; --text: #e4e9ef; --soft: #a3afbc;
    --accent: #6aa8ff; --hit: #33270f;
  }
}
* { box-sizing: border-box; }
html { color-scheme: light dark; scroll-padding-top: 12px; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 940px; padding: 0 20px 60px; background: var(--bg);
  color: var(--text); font: 15px/1.55 var(--sans); overflow-wrap: break-word; }
header { display: flex; flex-wrap: wrap; gap: 2px 16px; padding: 12px 0;
  border-bottom: 1px solid var(--line); color: var(--soft); font-size: 13px; }
header a { font-weight: 620; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
h1 { font-size: 25px; line-height: 1.25; margin: 26px 0 6px; letter-spacing: -.01em; }
h2 { font-size: 19px; margin: 44px 0 10px; padding-bottom: 5px;
  border-bottom: 1px solid var(--line); }
p { margin: 9px 0; max-width: 76ch; }
.library { color: var(--soft); }
code, pre, dt { font-family: var(--mono); font-size: 13px; }
pre { margin: 10px 0; padding: 10px 14px; overflow-x: auto; line-height: 1.5;
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
.group { margin: 26px 0; }
.declarations { border-left: 3px solid var(--accent); white-space: pre-wrap; }
.declarations span { display: block; padding-left: 4ch; text-indent: -4ch; }
.declarations span + span { margin-top: 7px; }
span:target { background: var(--hit); }
dl { display: grid; grid-template-columns: minmax(120px, max-content) 1fr; gap: 5px 18px;
  margin: 10px 0; }
dl.members { grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); border-top: 1px solid var(--line);
  padding-top: 8px; font-size: 14px; }
dd { margin: 0; }
dt { line-height: 1.7; padding-left: 2ch; text-indent: -2ch; }
dt:target { background: var(--hit); }
dd.note { grid-column: 1 / -1; color: var(--soft); margin-top: 8px; }
.out { color: var(--soft); }
.contents { columns: 270px; margin: 14px 0; padding: 0; list-style: none; font-size: 14px; }
.contents li { break-inside: avoid; }
.contents b { display: block; margin-top: 8px; font-weight: 620; break-after: avoid; }
@media (max-width: 640px) {
  body { padding: 0 14px 40px; }
  h1 { font-size: 21px; }
  dl, dl.members { display: block; }
  dd { margin: 0 0 8px 2ch; }
  code, pre, dt { font-size: 12px; }
}
"""


def capital(text):
    return text[:1].upper() + text[1:]


class Page:
    """One file. header: the one whose page it is."""

    def __init__(self, reference, header):
        self.reference, self.header, self.lines = reference, header, []

    def put(self, *lines):
        self.lines.extend(lines)

    def file(self, header):
        return "index.html" if header.stem == "millrace" else f"{header.stem}.html"

    def target(self, name):
        """The address of what a name in a text stands for; None: nothing that is shown."""
        if "/" in name:
            return f"../{name}"
        if name.endswith(".h"):
            found = [h for h in self.reference.headers if h.path.name == name]
            return self.file(found[0]) if found else None
        if name not in self.reference.where:
            return None
        header = self.reference.where[name][0]
        return ("" if header is self.header else self.file(header)) + f"#{name}"

    def link(self, text, itself=None):
        def one(match):
            target = self.target(match[1])
            if match[1] == itself:
                return f"<b>{match[1]}</b>"
            return f'<a href="{target}">{match[1]}</a>' if target else match[1]
        return LINKS.sub(one, html.escape(text, quote=False))

    def prose(self, text):
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", self.link(text))

    def blocks(self, blocks):
        for kind, content in blocks:
            if kind == "p":
                self.put("<p>" + RUN_IN.sub(r"<b>\1</b>", self.prose(content)) + "</p>")
            elif kind == "pre":
                self.put("<pre><code>" + self.link("\n".join(content)) + "</code></pre>")
            else:
                self.put("<dl>")
                for term, text in content:
                    term = re.sub(r"^(\[.*?\])", r'<span class="out">\1</span>', html.escape(term))
                    self.put(f"<dt>{term}</dt><dd>{self.prose(text)}</dd>")
                self.put("</dl>")

    def declaration(self, d):
        if d.kind != "function":
            return self.link(d.code, d.name)
        line = f"{d.result} {d.name}(".replace("* ", "*")
        whole = line + ", ".join(d.code) + ");"
        if len(whole) > 80:
            whole = line + "\n    " + ",\n    ".join(d.code) + ");"
        return self.link(whole, d.name)

    def members(self, d):
        if d.kind == "macro":
            self.put(*(f"<p>{self.prose(capital(text))}.</p>" for _, text in d.members))
            return
        if not d.members:
            return
        self.put('<dl class="members">')
        for code, text in d.members:
            if code is None:
                self.put(f'<dd class="note">{self.prose(text)}</dd>')
                continue
            anchor = f' id="{code.split()[0]}"' if d.kind == "enum" else ""
            self.put(f"<dt{anchor}>{self.link(code, code.split()[0])}</dt>"
                     f"<dd>{self.prose(text)}</dd>")
        self.put("</dl>")

    def group(self, group):
        declarations = [d for d in group.declarations if d.kind != "opaque" or self.anchor(d)]
        if group.declarations and not declarations:
            return # a struct of another header
        self.put('<div class="group">')
        if declarations:
            self.put('<pre class="declarations"><code>' + "".join(
                f"<span{self.anchor(d)}>{self.declaration(d)}</span>" for d in declarations) +
                "</code></pre>")
        self.blocks(group.blocks())
        for d in group.declarations:
            self.members(d)
        self.put("</div>")

    def anchor(self, d):
        """Each name has one place, though several headers may name a struct."""
        here = d.name and self.reference.where[d.name] == (self.header, d)
        return f' id="{d.name}"' if here else ""

    def contents(self):
        section = ""
        self.put('<ul class="contents">')
        for group in self.header.groups:
            for d in group.declarations:
                if not self.anchor(d) or re.search("_(fill|init)$", d.name):
                    continue
                head = ""
                if group.section != section:
                    section = group.section
                    head = f"<b>{html.escape(capital(section))}</b>"
                self.put(f'<li>{head}<a href="#{d.name}">{d.name}</a></li>')
        self.put("</ul>")

    def begin(self, title, summary):
        self.put("<!DOCTYPE html>", '<html lang="en">', '<meta charset="utf-8">',
                 '<meta name="viewport" content="width=device-width, initial-scale=1">',
                 f"<title>{html.escape(title)} - millrace</title>", f"<style>{STYLE}</style>",
                 f'<header><a href="index.html">millrace</a><span>{self.reference.version}, '
                 f"reference of the C interface</span></header>", "<main>",
                 f"<h1>{html.escape(title)}</h1>", summary)

    def end(self, path):
        self.put("</main>", "</html>")
        path.write_text("\n".join(self.lines) + "\n")


def write_header(reference, header, folder):
    page = Page(reference, header)
    page.begin(header.path.name, f'<p class="library"><code>#include &lt;millrace/'
               f"{header.path.name}&gt;</code>, in lib{header.library}</p>")
    page.blocks(header.blocks())
    page.contents()
    section = ""
    for group in header.groups:
        if group.section != section:
            section = group.section
            page.put(f"<h2>{html.escape(capital(section))}</h2>")
        page.group(group)
    page.end(folder / page.file(header))


def write_index(reference, header, folder):
    page = Page(reference, header)
    page.begin("millrace", f"<p>{page.prose(capital(header.title.split(': ')[1]))}.</p>")
    page.put("<h2>Headers</h2>", "<dl>")
    for other in reference.headers:
        if other is not header:
            page.put(f'<dt><a href="{page.file(other)}">{other.path.name}</a></dt>'
                     f"<dd>{page.prose(other.title)}.</dd>")
    page.put("</dl>", "<h2>About all of them</h2>")
    about = header.blocks()[1:]
    listed = [i for i, (kind, rows) in enumerate(about) if kind == "pre" and len(rows) > 5]
    page.blocks(b for i, b in enumerate(about) if i not in listed and i + 1 not in listed)
    page.put("<h2>Names</h2>", '<ul class="contents">')
    for name, (_, d) in sorted(reference.where.items(), key=lambda item: item[0].lower()):
        page.put(f'<li><a href="{page.target(name)}">{name}</a></li>')
    page.put("</ul>")
    page.end(folder / "index.html")


def write(reference, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for header in reference.headers:
        (write_index if header.stem == "millrace" else write_header)(reference, header, folder)

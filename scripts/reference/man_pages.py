"""Man pages in mdoc: one a header, and a link to it for each function, struct and enum."""
import re
import textwrap

# What troff would print as another character.
LITERAL = str.maketrans({"\\": r"\e", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti",
                         '"': r"\(dq"})
PLAIN = str.maketrans({"\\": r"\e", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"})


def guard(line):
    """No text may begin like a macro."""
    return r"\&" + line if line[:1] in (".", "'") else line


def prose(text):
    text = re.sub(r"(?<![\w)])-(?=[\w-])|(?<=-)-", r"\\-", text.translate(PLAIN))
    sentences = re.split(r"(?<=[.!?]) +|(?<=[.!?][\"')]) +", text)
    return "\n".join(guard(line) for sentence in sentences for line in textwrap.wrap(
        sentence, 96, break_long_words=False, break_on_hyphens=False))


def literal(text):
    return guard(text.translate(LITERAL).replace("-", r"\-"))


def argument(text):
    return '"' + text.translate(LITERAL).replace("-", r"\-") + '"'


def write_blocks(put, blocks):
    for i, (kind, content) in enumerate(blocks):
        if i and kind in ("p", "list"):
            put(".Pp")
        if kind == "p":
            put(prose(content))
        elif kind == "pre":
            put(".Bd -literal -offset indent", *map(literal, content), ".Ed")
        else:
            put(".Bl -tag -width Ds" + (" -compact" if kind == "list" else ""))
            for term, text in content:
                put(f".It {'Sy' if kind == 'list' else 'Ar'} {argument(term)}", *([prose(text)] if text else []))
            put(".El")


def write_members(put, declaration):
    notes = [text for code, text in declaration.members if code is None]
    if declaration.kind == "macro":
        put(*map(prose, notes))
        return
    if not declaration.members:
        return
    put(".Pp", ".Bl -tag -width Ds -compact")
    for code, text in declaration.members:
        if code is None:
            put(".El", ".Pp", prose(text), ".Bl -tag -width Ds -compact")
        else:
            put(f".It {'Dv' if declaration.kind == 'enum' else 'Vt'} {argument(code)}")
            put(*([prose(text)] if text else []))
    put(".El")


def write_group(put, group, own):
    if not group.declarations:
        write_blocks(put, group.blocks())
        return
    declarations = [d for d in group.declarations if own(d)]
    if not declarations:
        return
    put(".Bl -tag -width Ds")
    for d in declarations:
        put(f".It Fn {d.name}" if d.kind == "function" else f".It Vt {argument(d.code)}")
    write_blocks(put, group.blocks())
    for d in group.declarations:
        write_members(put, d)
    put(".El")


def write_synopsis(put, header):
    put(".Sh SYNOPSIS", f".In millrace/{header.stem}.h")
    for d in header.declarations():
        if d.kind == "function":
            put(f".Ft {argument(d.result)}", f".Fo {d.name}")
            put(*(f".Fa {argument(p)}" for p in d.code), ".Fc")


def related(header, reference):
    """Pages of what the header's comments and declarations name; of millrace.h all."""
    if header.page == "millrace":
        return [h.page for h in reference.headers if h is not header]
    names = set(re.findall(r"\bmr_\w+", header.path.read_text()))
    pages = {reference.where[n][0].page for n in names if n in reference.where}
    return sorted((pages | {"millrace"}) - {header.page})


def page(header, reference):
    lines = []

    def own(d):
        return not d.name or reference.where[d.name][0] is header

    def put(*more):
        lines.extend(more)

    put(".Dd January 1, 1970", f".Dt {header.page.upper()} 3", f".Os millrace {reference.version}")
    names = [header.page] + [d.name for d in header.declarations() if d.kind == "function"]
    names = list(dict.fromkeys(names))
    put(".Sh NAME", *(f".Nm {name} ," for name in names[:-1]), f".Nm {names[-1]}")
    put(f".Nd {prose(header.title)}".replace("\n", " "))
    put(".Sh LIBRARY", f"lib{header.library}: pkg-config \\-\\-cflags \\-\\-libs {header.library}")
    write_synopsis(put, header)
    put(".Sh DESCRIPTION")
    write_blocks(put, header.blocks())
    section = ""
    for group in header.groups:
        if group.section != section:
            section = group.section
            put(f".Ss {section[0].upper() + section[1:]}")
        elif not group.declarations:
            put(".Pp")
        write_group(put, group, own)
    others = related(header, reference)
    put(".Sh SEE ALSO", *(f".Xr {p} 3 ," for p in others[:-1]), f".Xr {others[-1]} 3")
    return "\n".join(lines) + "\n"


def write(reference, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for header in reference.headers:
        (folder / f"{header.page}.3").write_text(page(header, reference))
    pages = {h.page for h in reference.headers}
    for name, (header, declaration) in sorted(reference.where.items()):
        if name == declaration.name and name.startswith("mr_") and name not in pages:
            (folder / f"{name}.3").write_text(f".so man3/{header.page}.3\n")

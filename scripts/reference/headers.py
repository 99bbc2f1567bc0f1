"""Reads the public headers: declarations in groups, with the comments that document them.

The rules are those of CONTRIBUTING.md: a header begins with a comment about itself; a comment
documents all declarations up to the next empty line; "/* ---- x ---- */" begins a section.
"""
import re
import sys
import textwrap

LABEL = r"(?:\[(?:in, )?out\] )?"
# What begins a paragraph of its own at the start of a line, behind a full stop.
BEGINS = (r"(?:[A-Z][a-z]+|C\+\+|CUDA|fork): |Errors as |Returns? |Any thread|May block|Blocks\b|"
          r"Does not block|Stops when ")


def split_top(text, separator=","):
    """Splits at separators outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == separator and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in parts + [text[start:]] if p.strip()]


def comment_lines(comment):
    body = comment[2:-2].strip("\n")
    lines = [re.sub(r"^\s*\*? ?", "", line, count=1) if i or "\n" in comment[:4] else line
             for i, line in enumerate(body.split("\n"))]
    return [line.rstrip() for line in lines]


def squeeze(text):
    return " ".join(text.split())


class Declaration:
    """kind: function, struct, enum, macro, opaque. members: (code, text) or (None, text): a note."""

    def __init__(self, kind, name, code):
        self.kind, self.name, self.code = kind, name, code
        self.members, self.result, self.parameters = [], "", []

    def names(self):
        """The names of its parameters."""
        found = []
        for p in self.parameters:
            match = re.search(r"\(\*(\w+)\)", p) or re.search(r"(\w+)(?:\[[^\]]*\])*$", p)
            found.append(match[1])
        return found


class Group:
    """A comment and the declarations below it."""

    def __init__(self, section, comment):
        self.section, self.comment, self.declarations = section, comment, []

    def parameters(self):
        return {n for d in self.declarations for n in d.names()}

    def blocks(self):
        return blocks(self.comment, self.parameters()) if self.comment else []


def parse_members(body, separator):
    """Members of a struct or an enum, with the comments before and behind them."""
    members, position, before = [], 0, []
    token = re.compile(r"\s*(?:(/\*.*?\*/)|([^/" + separator + r"]+" + separator + r"?))", re.S)
    code = ""
    while match := token.match(body, position):
        position = match.end()
        if match[1] is None:
            code += match[2]
            if code.count("(") != code.count(")") or code.count("{") != code.count("}"):
                continue # a separator inside brackets
            if code.strip(" \n" + separator):
                members.append([squeeze(code).rstrip(separator), before])
                before = []
            code = ""
            continue
        text = squeeze(" ".join(comment_lines(match[1])))
        behind = members and not before and "\n" not in body[:match.start(1)].rpartition(
            members[-1][0][-1])[2]
        if behind:
            members[-1].append(text)
        else:
            before.append(text)
    result = []
    for code, before, *behind in members:
        if behind and before: # it is about several members
            result.append((None, " ".join(before)))
            before = []
        result.append((code, " ".join(before + behind)))
    return result


def parse_declaration(text, macros):
    """text: without its final semicolon."""
    bare = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    if match := re.match(r"(struct|enum)\s*(\w*)\s*\{(.*)\}$", text, re.S):
        kind, name, body = match.groups()
        d = Declaration(kind, name, f"{kind} {name}".strip())
        if use := re.search(r"^\s*(MR_\w+)\(X\)", body, re.M): # constants listed by a macro
            listed = re.findall(r"X\((\w+), (.*?)\)", macros[use[1]])
            d.members = [(n, rest.replace('"', "").replace(", ", ": ", 1)) for n, rest in listed]
            body = "\n".join(line for line in body.split("\n")
                             if not re.match(r"\s*(#|MR_\w+\(X\))", line))
        d.members += parse_members(body, ";" if kind == "struct" else ",")
        return d
    if match := re.match(r"struct (\w+)$", bare.strip()):
        return Declaration("opaque", match[1], bare.strip())
    bare = re.sub(r"__attribute__\(\(.*\)\)\s*$|\bMR_API\b|\bstatic inline\b", "", bare, flags=re.S)
    match = re.match(r"(.*?)\b(mr_\w+)\s*\((.*)\)$", squeeze(bare.split("{")[0]).strip())
    if not match:
        sys.exit(f"reference: cannot read this declaration: {squeeze(text)}")
    d = Declaration("function", match[2], "")
    d.result = match[1].strip()
    d.parameters = [p for p in split_top(match[3]) if p not in ("void", "...")]
    d.code = split_top(match[3])
    return d


def end_of(text, position):
    """The end of the declaration that begins here, and whether it is a function with a body."""
    depth, inline = 0, text.startswith("static inline", position)
    comment = re.compile(r"/\*.*?\*/", re.S)
    while True:
        if match := comment.match(text, position):
            position = match.end()
            continue
        c = text[position]
        depth += (c in "({") - (c in ")}")
        position += 1
        if depth == 0 and (c == ";" or (inline and c == "}")):
            return position


class Header:
    """One header: .title and .about from its first comment, .groups of declarations."""

    def __init__(self, path, library):
        self.path, self.library, self.groups = path, library, []
        self.stem = path.stem
        self.page = "millrace" if self.stem == "millrace" else f"mr_{self.stem}"
        text = path.read_text()
        end = text.index("*/") + 2
        self.about = comment_lines(text[:end])
        self.title = re.match(r".*?(?=\. |\.$)", blocks(self.about)[0][1])[0]
        self.parse(text[end:])

    def parse(self, text):
        position, section, macros = 0, "", {}
        group = Group(section, "")
        while match := re.compile(r"\s*").match(text, position):
            position = match.end()
            if match[0].count("\n") > 1:
                group = Group(section, "")
            if position == len(text):
                break
            rest = text[position:]
            if title := re.match(r"/\* -+ (.*?) -+ \*/", rest):
                section = title[1]
                position += title.end()
            elif rest.startswith("/*"):
                end = rest.index("*/") + 2
                group = Group(section, rest[:end])
                self.groups.append(group)
                position += end
            elif rest.startswith("#if defined(__cplusplus)"):  # its comments say what it is for
                position += rest.index("\n#endif") + len("\n#endif")
            elif rest[0] == "#":
                line = re.match(r"#(?:[^\n]*\\\n)*[^\n]*", rest)[0]
                position += len(line)
                if define := re.match(r"#define (MR_\w+)(\([^)]*\))?\s+(.*)", line, re.S):
                    if define[1] != "MR_API":
                        self.add(group, self.macro(define, macros))
            elif brace := re.match(r'extern "C" \{|\}', rest):
                position += brace.end()
            else:
                end = end_of(text, position)
                body = text[position:end].rstrip(";").strip()
                self.add(group, parse_declaration(body, macros))
                position = end

    def add(self, group, declaration):
        if group not in self.groups:
            self.groups.append(group)
        group.declarations.append(declaration)

    @staticmethod
    def macro(define, macros):
        name, arguments, value = define.groups()
        macros[name] = value
        comment = re.search(r"/\*(.*?)\*/", value, re.S)
        value = squeeze(re.sub(r"/\*.*?\*/|\\\n", "", value, flags=re.S))
        d = Declaration("macro", name, f"#define {name}{arguments or ''}" +
                        ("" if arguments else f" {value}"))
        if comment:
            d.members = [(None, squeeze(comment[1]))]
        return d

    def blocks(self):
        return blocks(self.about)

    def declarations(self):
        return [d for g in self.groups for d in g.declarations]


def blocks(comment, parameters=frozenset()):
    """A comment as ("p", text), ("pre", lines), ("list", [(term, text)])."""
    lines = comment_lines(comment) if isinstance(comment, str) else comment
    result = []
    for block in re.split(r"\n\n+", "\n".join(lines).strip("\n")):
        rows = textwrap.dedent(block).split("\n")
        listed = as_list(rows)
        if listed:
            result.append(("list", listed))
        elif block.startswith("  ") or any(re.search(r"\S {3,}\S", row) for row in rows):
            result.append(("pre", rows))
        else:
            result += paragraphs(rows, parameters)
    return result


def as_list(rows):
    """Rows "term   text", whose text goes on in the same column."""
    head = re.match(r"(\S+ {2,})\S", rows[0])
    if not head or len(rows) < 2:
        return None
    column, items, continued = len(head[1]), [], False
    for row in rows:
        if row[:column].strip() == "":
            items[-1][1] += " " + row.strip()
            continued = True
        elif re.match(r"\S+ {2,}$", row[:column] + " "):
            items.append([row[:column].strip(), row[column:].strip()])
        else:
            return None
    return items if continued else None


def paragraphs(rows, parameters):
    """A paragraph; its parameters are a list; "Returns" and "Threads:" begin new ones."""
    text = re.sub(r"(?<=[.)])\n(?=" + BEGINS + ")", "\r", "\n".join(rows))
    text = re.sub(r"(?<=\.)\s+(?=Returns? )", "\r", text)
    names = "|".join(sorted(parameters)) or "(?!)"
    label = re.compile(rf"(?:^|(?<=[.:] )|(?<=\n))({LABEL}(?:{names})(?:, (?:{names}))*)"
                       r"(?:: |\. | (?=NULL: ))")
    result = []
    for part in text.split("\r"):
        part = re.sub(r"\n(?=" + LABEL.rstrip("?") + ")", " ", part)
        pieces = label.split(squeeze(part)) if parameters else [squeeze(part)]
        if pieces[0].strip():
            result.append(("p", pieces[0].strip()))
        if len(pieces) > 1:
            result.append(("parameters", list(zip(pieces[1::2], map(str.strip, pieces[2::2])))))
    return result


class Reference:
    """All headers, and where each name is documented."""

    def __init__(self, folder, in_library, version):
        self.version = version
        self.headers = [Header(path, in_library.get(path.stem, "millrace"))
                        for path in sorted(folder.glob("*.h"))]
        self.where = {}  # name: header, declaration, anchor
        for h in self.headers:
            for d in h.declarations():
                self.put(h, d)

    def put(self, header, d):
        known = self.where.get(d.name)
        # A struct that two headers only name belongs to the one with its name.
        if d.name and (not known or known[1].kind == "opaque" and
                       (d.kind != "opaque" or d.name == f"mr_{header.stem}")):
            self.where[d.name] = (header, d)
        if d.kind == "enum":
            for code, _ in d.members:
                if code:
                    self.where[code.split()[0]] = (header, d)

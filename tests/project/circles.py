#!/usr/bin/env python3
"""Call circles among the files of a room. usage: circles.py SOURCE_ROOT | circles.py --self-test

An arrow from a to b: a function of a.c calls a name that b.c, and no other file of the room, defines
non-statically. Files that reach each other by arrows form a circle: none of them can be understood,
or tested, without the others. A circle may have MOST files. Calls through pointers (a vtable's hooks)
make no arrow: that is how a circle is cut.
"""
import os
import re
import sys
import tempfile

MOST = 3
WORDS = {'if', 'for', 'while', 'switch', 'return', 'sizeof', '_Alignof', 'defined', '__attribute__'}
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.M)
NAME_CALLED = re.compile(r'\b([A-Za-z_]\w*)\s*\(')


def functions(text):
    """Yields (name, is_static, body) of each function that a C source defines."""
    text = DIRECTIVE.sub('', NOISE.sub(' ', text))
    depth = start = 0
    head = ''
    for at, c in enumerate(text):
        if c == '{':
            if depth == 0:
                head, start = text[start:at], at
            depth += 1
        elif c == '}':
            depth -= 1
            if depth == 0:
                name = NAME_CALLED.search(re.sub(r'__attribute__\s*\(\(.*?\)\)', '', head))
                if name and '=' not in head:
                    yield name.group(1), bool(re.search(r'\bstatic\b', head)), text[start:at]
                start = at + 1
        elif c == ';' and depth == 0:
            start = at + 1


def arrows(room):
    """{file: set of files that it calls} for the .c files below a folder."""
    owners, calls, own = {}, {}, {}
    for folder, _, names in os.walk(room):
        for name in names:
            if not name.endswith('.c'):
                continue
            path = os.path.relpath(os.path.join(folder, name), room)
            calls[path], own[path] = set(), set()
            with open(os.path.join(folder, name), encoding='utf-8') as source:
                for function, static, body in functions(source.read()):
                    own[path].add(function)
                    calls[path].update(set(NAME_CALLED.findall(body)) - WORDS)
                    if not static:
                        owners.setdefault(function, set()).add(path)
    return {path: {next(iter(owners[f])) for f in called - own[path] if len(owners.get(f, ())) == 1}
            for path, called in calls.items()}


def circles(graph):
    """The strongly connected components with more than one file (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for to in sorted(graph[node]):
            if to not in index:
                visit(to)
            if to in stack:
                low[node] = min(low[node], low[to])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return [c for c in found if len(c) > 1]


def check(root):
    """Prints the circles that are too large. Returns how many."""
    src, wrong, n_files = os.path.join(root, 'src'), 0, 0
    for room in sorted(os.listdir(src)):
        if not os.path.isdir(os.path.join(src, room)):
            continue
        graph = arrows(os.path.join(src, room))
        n_files += len(graph)
        for circle in circles(graph):
            if len(circle) <= MOST:
                continue
            wrong += 1
            print(f'src/{room}: a call circle of {len(circle)} files, expected at most {MOST}:')
            for path in circle:
                print(f'    {path} -> {" ".join(sorted(graph[path] & set(circle)))}')
    print(f'{n_files} files checked, {wrong} circles too large')
    return wrong if n_files else 1


def self_test():
    def room_of(n):
        root = tempfile.TemporaryDirectory()
        os.makedirs(os.path.join(root.name, 'src', 'room', 'below'))
        for i in range(n):
            path = os.path.join(root.name, 'src', 'room', 'below' if i % 2 else '.', f'f{i}.c')
            with open(path, 'w', encoding='utf-8') as out:
                out.write(f'#define X {{ /* f{i + 2}(); */\nstatic int helper(void)\n{{ return f{(i + 1) % n}(1); }}\n'
                          f'int f{i}(int x)\n{{ const char *s = "{{ f{(i + 3) % n}("; return s && x ? helper() : 0; }}\n'
                          f'struct hooks h{i} = {{.call = f{(i + 2) % n}}};\n')
        return root

    for n, want in ((MOST, 0), (MOST + 1, 1)):
        with room_of(n) as root:
            found = check(root)
        if found != want:
            print(f'self-test: a circle of {n} files: {found} reported, expected {want}')
            return 1
    return 0


def main():
    if sys.argv[1:] == ['--self-test']:
        return self_test()
    return check(sys.argv[1]) > 0


if __name__ == '__main__':
    sys.exit(main())

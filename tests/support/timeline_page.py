"""Opens pages of `millrace timeline` in a browser without a window: timeline_page.py MILLRACE MAKE_TRAINING FOLDER.

Exits with 77 where there is no browser. The page tells of itself by attributes of its root element (data-ready, data-events,
data-found, data-listed, data-error), which --dump-dom prints when the page has come to rest.
"""
import html
import json
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import zlib

from browser import Browser

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]


def browser():
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            ran = subprocess.run([path, "--version"], capture_output=True, timeout=300)
            if ran.returncode == 0:
                return path
    print("SKIP timeline_page: no browser (one of " + ", ".join(BROWSERS) + ") on this machine")
    sys.exit(77)


class Pages:
    def __init__(self, program, make, folder):
        self.program, self.make, self.folder, self.browser = program, make, os.path.abspath(folder), browser()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)

    def page(self, kind, n):
        """Makes a recording and its page; returns the page's path."""
        recording = os.path.join(self.folder, kind + ".sqlite")
        subprocess.run([self.make, recording, kind, str(n)], check=True, timeout=600)
        subprocess.run([self.program, "timeline", recording], check=True, timeout=600, stdout=subprocess.DEVNULL)
        return os.path.join(self.folder, kind + ".html")

    def run(self, page, place, *more):
        command = [self.browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--hide-scrollbars", "--no-first-run", "--user-data-dir=" + os.path.join(self.folder, "browser"),
                   "--window-size=1400,860", "--virtual-time-budget=60000", "--enable-logging=stderr", *more,
                   "file://" + page + ("#" + place if place else "")]
        for _ in range(3):  # browsers that a busy machine starts slowly may give up on their own processes
            ran = subprocess.run(command, capture_output=True, timeout=500)
            if ran.returncode == 0:
                break
        said = [line for line in ran.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
        assert not said, said
        return ran.stdout.decode(errors="replace")

    def dom(self, page, place=""):
        """The page's root attributes, and its text as it stands."""
        text = self.run(page, place, "--dump-dom")
        root = re.search(r"<html[^>]*>", text)
        assert root, "no page: " + text[:300]
        data = {k: html.unescape(v) for k, v in re.findall(r'data-([a-z-]+)="([^"]*)"', root.group(0))}
        assert "error" not in data, data
        assert data.get("ready") == "true", (data, text[:500])
        return data, text

    def picture(self, page, place=""):
        """Pixels of a screenshot: (width, height, rows of bytes, bytes a pixel)."""
        shot = os.path.join(self.folder, "shot.png")
        self.run(page, place, "--screenshot=" + shot)
        return read_png(shot)


def read_png(path):
    data = open(path, "rb").read()
    at, packed = 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + n]
        at += 12 + n
    each = {2: 3, 6: 4}[colour]
    raw, stride, rows, last = zlib.decompress(packed), width * each, [], bytearray(width * each)
    for y in range(height):
        how, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            a = line[i - each] if i >= each else 0
            b = last[i]
            c = last[i - each] if i >= each else 0
            if how == 1:
                line[i] = (line[i] + a) & 255
            elif how == 2:
                line[i] = (line[i] + b) & 255
            elif how == 3:
                line[i] = (line[i] + (a + b) // 2) & 255
            elif how == 4:
                p = a + b - c
                pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
                line[i] = (line[i] + (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
        rows.append(line)
        last = line
    return width, height, rows, each


def colours(picture, left=220, top=200, bottom=620):
    """How many pixels of each colour the rows of the timeline have."""
    width, _, rows, each = picture
    counts = {}
    for row in rows[top:bottom:3]:
        for x in range(left, width, 3):
            colour = tuple(row[x * each:x * each + 3])
            counts[colour] = counts.get(colour, 0) + 1
    return counts


def check_training(pages):
    page = pages.page("training", 12)
    data, text = pages.dom(page)
    assert int(data["events"]) > 1500, data
    assert "12 records were dropped" in text and "GPU busy" in text, "summary"
    assert "data-start" not in text, "the data stays in the page"
    assert re.search(r'id="verdict"[^>]*>[^<]*the GPU', text) and re.search(r'id="parts".*compute \d+%', text), "a step's time"
    drawn = colours(pages.picture(page))
    assert drawn.get((0x5d, 0x78, 0x90), 0) > 50, "the busy engine's colour"
    data, text = pages.dom(page, "search=gemm&next=1&tab=details")
    assert int(data["found"]) == 12 * 18, data  # forward's and weight gradient's
    assert "Made by the call" in text and "cudaLaunchKernel" in text, "the link of what was found"
    data, text = pages.dom(page, "search=no+such+name")
    assert data["found"] == "0" and "no match" in text, data
    data, text = pages.dom(page, "range=10000000-20000000&tab=table")
    assert 50 < int(data["listed"]) < 500, data
    assert text.count('class="cell-row"') > 3 and "Selection" in text, "rows of the table"


PAGE = "window.millrace"
READY = "document.documentElement.dataset.ready === 'true' || document.documentElement.dataset.error"
SETTLED = "new Promise((done) => setTimeout(done, 500))"  # the address follows 200 ms after the view


class Driven:
    """A page in a browser, and its recording."""

    def __init__(self, browser, page):
        self.browser, self.url = browser, "file://" + page
        self.db = sqlite3.connect(page.replace(".html", ".sqlite"))

    def open(self, place="", **how):
        self.browser.open(self.url + ("#" + place if place else ""), **how)
        self.browser.wait(READY)
        assert not self.data("error"), self.data("error")

    def eval(self, script):
        return self.browser.eval(script)

    def data(self, name):
        return self.eval("document.documentElement.dataset." + name)

    def sql(self, text):
        return self.db.execute(text).fetchall()

    def number(self, text):
        return self.sql(text)[0][0]


def check_jump(page):
    """From a finding to its evidence by the mouse, and by the link that the address has then."""
    page.open()
    assert page.eval("location.hash") == "", "the address of what was not touched"
    assert not page.eval("document.querySelector('#pane-findings').hidden"), "findings come first"
    page.browser.click("button.jump[data-rule=pageable_copies]")
    assert page.data("finding") == "pageable_copies"
    page.eval(SETTLED)
    seen = "(() => { const m = %s, v = m.view, f = m.about.findings.find((x) => x.rule === 'pageable_copies').rows[0];" \
           " return [v.from < f.start && v.to > f.start + f.duration && v.to - v.from < 20 * f.duration, f.start," \
           " Math.round(v.from), Math.round(v.to), document.querySelectorAll('.evidence tr.here').length]; })()" % PAGE
    first = page.eval(seen)
    assert first[0] and first[4] == 1, first
    longest = page.number("SELECT start FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1 AND start = %d" % first[1])
    assert longest == first[1], "the evidence is a copy"
    link = page.eval("location.hash")
    assert "finding=pageable_copies" in link and "from=" in link, link
    page.open(link[1:])
    again = page.eval(seen)
    assert [round(x / 2) for x in again[2:4]] == [round(x / 2) for x in first[2:4]], (first, again)
    page.open("finding=pageable_copies")  # as `analyze` prints it
    assert page.eval(seen)[0] and page.data("evidence") == "0"


def found(page, words):
    page.eval("%s.find(%s)" % (PAGE, json.dumps(words)))
    return int(page.data("found"))


def check_search(page):
    page.open()
    copies = page.number("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1")
    assert copies == found(page, "copy h2d") == found(page, "  H2D   copy "), "a kind, in any order"
    stream = page.number("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE streamId = 13")
    assert stream == found(page, "stream 13") and found(page, "stream 1") == 0, "a row"
    one = page.number("SELECT max(correlationId) FROM CUPTI_ACTIVITY_KIND_MEMCPY")
    assert found(page, "#%d" % one) == 2, "a call and its copy"
    tables = ["CUPTI_ACTIVITY_KIND_" + t for t in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")] + ["NVTX_EVENTS", "OSRT_API"]
    long = sum(page.number("SELECT count(*) FROM %s WHERE end - start > 1000000" % t) for t in tables)
    assert long == found(page, ">1ms") and long > 12, (long, "a duration")
    kernels = page.number("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE end - start < 20000")
    assert kernels == found(page, "kernel <20us stream 7") and kernels > 12, "words and a duration"


def check_rates(page):
    """The busy share of any stretch is that of the recording's intervals."""
    page.open()
    work = sorted(page.sql(" UNION ALL ".join("SELECT start, end FROM CUPTI_ACTIVITY_KIND_" + t
                                              for t in ("KERNEL", "MEMCPY", "MEMSET"))))
    for low, high in ((10000000, 11000000), (10000000, 10050000), (0, work[-1][1]), (20000000, 20001000)):
        busy, at = 0, low
        for start, end in work:
            start, end = max(start, at), min(end, high)
            busy, at = busy + max(0, end - start), max(at, min(end, high))
        got = page.eval("(() => { const m = %s, c = m.rates.find((r) => r.name === 'GPU busy'); return m.rateIn(c, %d, %d, 1)[0]; })()"
                        % (PAGE, low, high))
        assert abs(got - 100 * busy / (high - low)) < 1e-6, (low, high, got, busy)
    assert "832\u202fMiBpeak memory" in page.eval("document.querySelector('#tiles').textContent"), "peak of memory"


def check_rows(page):
    page.open("tab=table")
    groups = page.eval(PAGE + ".groups()")
    assert groups[0].startswith("GPU 0") and "main thread" in groups[1], groups
    assert groups[-2] == "Idle threads (1)" and not any("cuda-EvtHandlr" in g for g in groups), groups
    page.eval("%s.show(0, 1e9)" % PAGE)
    page.eval("(() => { const s = document.querySelector('#only'), o = [...s.options].find((x) => x.text.endsWith('Stream 13'));"
              " s.value = o.value; s.onchange(); })()")
    assert int(page.data("listed")) == page.number("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE streamId = 13")


# Every text that is seen: its colour against the first ground below it that is not transparent.
CONTRAST = """(() => {
  const rgb = (s) => { const m = s.match(/[\\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
  const light = (c) => { const [r, g, b] = c.map((x) => x <= 10 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), bad = [];
  let n = 0;
  for (let t = walk.nextNode(); t; t = walk.nextNode()) {
    const e = t.parentElement;
    if (!t.data.trim() || !e.checkVisibility() || e.closest("script, button:disabled") || !e.getClientRects().length) continue;
    let ground = null;
    for (let p = e; p && !ground; p = p.parentElement) ground = rgb(getComputedStyle(p).backgroundColor);
    const a = light(rgb(getComputedStyle(e).color)), b = light(ground || [255, 255, 255]);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    n++;
    if (ratio < 4.5) bad.push([t.data.slice(0, 40), ratio]);
  }
  return [n, bad];
})()"""


def check_looks(page):
    for dark in (False, True):
        for tab in ("findings&finding=pageable_copies", "range", "details&select=3000", "table"):
            page.open("tab=" + tab + "&theme=" + ("dark" if dark else "light"), dark=not dark)  # the link wins
            n, bad = page.eval(CONTRAST)
            assert n > 30 and not bad, (dark, tab, bad)
            ground = page.eval("getComputedStyle(document.body).backgroundColor")
            assert ground == ("rgb(18, 23, 29)" if dark else "rgb(255, 255, 255)"), ground
        first = page.eval("[...document.querySelector('#chart').getContext('2d').getImageData(2, 60, 1, 1).data].slice(0, 3)")
        assert (max(first) < 60) == dark, (dark, first)
    page.open(dark=True)
    assert page.data("theme") == "dark", "the system's"
    wait, others = page.eval("(() => { const of = (id) => [...document.querySelectorAll(id + ' li')].map((l) => [l.textContent, l.firstChild.style.background]);"
                             " const bar = of('#partnames'); return [bar.find((x) => x[0].startsWith('waits for data'))[1],"
                             " [...bar, ...of('#legend')].filter((x) => !x[0].startsWith('waits for data')).map((x) => x[1])]; })()")
    assert wait and wait not in others, "red is waiting for data alone"
    assert page.eval("document.querySelectorAll('#parts span').length === document.querySelectorAll('#partnames li').length")
    for tab in ("findings", "range", "details&select=3000", "table"):
        page.open("tab=" + tab, width=390, height=844)
        wide = page.eval("document.documentElement.scrollWidth")
        assert wide <= 390, (tab, wide)
        out = page.eval("['help', 'into', 'next', 'legend', 'verdict', 'tab-table', 'parts'].filter((id) => { const b = document.getElementById(id)"
                        ".getBoundingClientRect(); return !(b.width > 0 && b.left >= 0 && b.right <= 390); })")
        assert not out, out


def check_driven(pages):
    page = pages.page("pageable", 12)
    with Browser(pages.browser, pages.folder) as browser:
        driven = Driven(browser, page)
        for check in (check_jump, check_search, check_rates, check_rows, check_looks):
            check(driven)
        assert not browser.said, browser.said


def check_odd(pages):
    data, text = pages.dom(pages.page("odd", 0), "tab=table")
    assert int(data["listed"]) == 4, data
    assert "&lt;img src=x" in text and "<img" not in text, "a name is text"


def check_many(pages):
    page = pages.page("many", 1000000)
    data, text = pages.dom(page, "tab=table&search=kernel_31")
    assert int(data["events"]) >= 1000000, data
    assert int(data["found"]) > 5000, data
    assert int(data["ms"]) < 200000, data  # some 3 s; a loaded machine
    assert text.count('class="cell-row"') > 3, "rows of the table"
    print("10^6 events: ready in %s ms" % data["ms"])
    drawn = colours(pages.picture(page))
    assert len(drawn) > 20, drawn


def main():
    pages = Pages(*sys.argv[1:4])
    check_training(pages)
    check_driven(pages)
    check_odd(pages)
    check_many(pages)
    shutil.rmtree(pages.folder, ignore_errors=True)


main()

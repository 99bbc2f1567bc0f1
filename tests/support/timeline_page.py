"""Opens pages of `millrace timeline` in a browser without a window: timeline_page.py MILLRACE MAKE_TRAINING FOLDER.

Exits with 77 where there is no browser. The page tells of itself by attributes of its root element (data-ready, data-events,
data-found, data-listed, data-error), which --dump-dom prints when the page has come to rest.
"""
import html
import os
import re
import shutil
import struct
import subprocess
import sys
import zlib

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
    check_odd(pages)
    check_many(pages)
    shutil.rmtree(pages.folder, ignore_errors=True)


main()

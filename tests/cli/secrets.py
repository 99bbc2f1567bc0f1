#!/usr/bin/env python3
"""Plants credentials where users have them and looks for them in every byte that the program prints or writes.

usage: secrets.py PROGRAM SERVER.py         exit status 0: none found; 1: found, or a command ended otherwise than it should
"""
import gzip
import io
import os
import pathlib
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

PROGRAM, SERVER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MARKS = [b"plantedUSER", b"plantedPASS", b"plantedSIG", b"plantedFRAG", b"plantedENV", b"plantedARG", b"AKTEST",
         b"secretTEST", b"tokenTEST"]
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKTEST", "AWS_SECRET_ACCESS_KEY": "secretTEST", "AWS_SESSION_TOKEN": "tokenTEST",
               "AWS_REGION": "test-1", "HF_TOKEN": "plantedENV"}


def npy(rows, columns, kind):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (
        kind, "%d," % rows if columns == 0 else "%d, %d" % (rows, columns))
    head += " " * (63 - (len(head) + 10) % 64) + "\n"
    values = [(i * 7919) % 97 / 97 if kind == "<f4" else i % 2 for i in range(rows * max(columns, 1))]
    data = struct.pack("<%d%s" % (len(values), "f" if kind == "<f4" else "q"), *values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def png():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(24) for _ in range(8))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_files(root):
    (root / "x.npy").write_bytes(npy(64, 6, "<f4"))
    (root / "y.npy").write_bytes(npy(64, 0, "<i8"))
    (root / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': 1234}}")
    (root / "a.png").write_bytes(png())
    (root / "b.png").write_bytes(b"no picture at all")
    (root / "list.txt").write_text("a.png\t0\nb.png\t1\na.png\t1\n")
    (root / "table.csv").write_text("path,label\na.png,0\na.png,1\nb.png,0\n")
    with tarfile.open(root / "s.tar", "w") as tar:
        for i in range(6):
            for name, data in (("%03d.png" % i, png() if i != 3 else b"broken"), ("%03d.cls" % i, b"%d" % (i % 2))):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    (root / "s.tar.gz").write_bytes(gzip.compress((root / "s.tar").read_bytes()))
    (root / "bucket").mkdir()
    shutil.copy(root / "x.npy", root / "bucket" / "x.npy")


class Session:
    def __init__(self, work, port):
        self.work, self.failed = work, 0
        self.base = "http://plantedUSER:plantedPASS@127.0.0.1:%d" % port
        self.environment = dict(os.environ, **ENVIRONMENT, HOME=str(work), XDG_CACHE_HOME=str(work / "cache"),
                                AWS_ENDPOINT_URL="http://127.0.0.1:%d/s3" % port, LC_ALL="C")

    def url(self, path, what="ok"):
        return "%s/%s/%s?X-Amz-Signature=plantedSIG&part=1#plantedFRAG" % (self.base, what, path)

    def look(self, where, data):
        for mark in MARKS:
            if mark in data:
                at = data.index(mark)
                self.fail("%s: %s is in it: %r" % (where, mark.decode(), data[max(at - 60, 0):at + 40]))

    def fail(self, text):
        print(text)
        self.failed += 1

    def run(self, want, *args, **more):
        """One command: its status must be `want`, and nothing of a secret on its outputs."""
        done = subprocess.run([PROGRAM, *args], cwd=self.work, env=dict(self.environment, **more), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        name = " ".join(a.split("//")[0] for a in args)
        if done.returncode != want:
            self.fail("%s: status %d, expected %d: %s" % (name, done.returncode, want, done.stderr.decode()[-300:]))
        self.look(name + ": standard output", done.stdout)
        self.look(name + ": standard error", done.stderr)
        return done.stdout + done.stderr

    def look_at_files(self):
        n = 0
        for path in self.work.rglob("*"):
            self.look("name of %s" % path, str(path).encode())
            if path.is_file():
                data = path.read_bytes()
                self.look(path.name, data)
                if path.suffix == ".gz":
                    self.look(path.name + ", unpacked", gzip.decompress(data))
                if data.startswith(b"SQLite format 3"):
                    self.look(path.name + ", its rows", "\n".join(sqlite3.connect(path).iterdump()).encode())
                n += 1
        return n


def data_sets(s):
    """feed and inspect: what is printed, listed, traced, cached and kept to go on."""
    x = "npy:%s,labels=%s" % (s.url("x.npy"), s.url("y.npy"))
    common = ["-d", "cpu", "-e", "1", "-w", "2", "--retries", "0"]
    out = s.run(0, "feed", x, *common, "--digest", "--state-out", "f.state", "--trace", "f.trace", "--cache-dir", "chunks")
    s.run(0, "feed", x, *common, "--json", "--state-out", "f.state", "--state-in", "f.state")
    if b"x.npy?..." not in out:
        s.fail("feed: the data set's name is missing: %s" % out.decode())
    for uri in ("tar:" + s.url("s.tar"), s.url("list.txt").join(["list:", ""]), "csv:" + s.url("table.csv"),
                "tar:" + s.url("s.tar.gz"), "tar:" + s.url("{s,s}.tar")):
        s.run(0, "feed", uri, *common, "-t", "resize(4,4)", "--bad", "skip", "--quarantine", "q.json", "--cache-dir", "chunks")
        s.run(0, "feed", uri, *common, "-t", "resize(4,4)", "--bad", "skip", "--quarantine", "q2.json", "--json")
        s.run(1, "feed", uri, *common, "-t", "resize(4,4)")
        s.run(1, "inspect", uri, "--json", "--scan", "9")
        s.run(1, "inspect", uri, "--scan", "9", "-n", "3")
    s.run(0, "inspect", x, "--json", "-n", "2")
    s.run(1, "inspect", "tar:" + s.url("s.tar"), "--sheet", "sheet.png", "-n", "2")
    s.run(0, "feed", "mix:1*[%s],2*[%s]" % (x, x), *common)
    s.run(0, "feed", "npy:s3://bucket/x.npy", *common, "--json")
    s.run(0, "bench", "loader", "--dataset", x, "--cases", "dataset", "--rounds", "1", "--time", "20ms", "--json")


def training(s):
    x = "npy:%s,labels=%s" % (s.url("x.npy"), s.url("y.npy"))
    s.run(0, "train", x, "--test", x, "--classes", "2", "-m", "linear:2", "-e", "2", "-d", "cpu", "-c", "c.st", "--log", "l.csv", "--plot",
          "p.html")
    s.run(0, "train", x, "--classes", "2", "-m", "linear:2", "-e", "1", "-d", "cpu", "--json", "--plot", "p.svg", "-c", "d.st")
    s.run(0, "train", x, "--classes", "2", "-m", "linear:2", "-e", "2", "-d", "cpu", "-c", "d.st", "--resume", "--json")
    s.run(0, "predict", "c.st", x, "-d", "cpu", "--csv", "p.csv")
    s.run(0, "predict", "c.st", x, "-d", "cpu", "--json")
    s.run(2, "bench", "optimizers", x, "--quick", "--json", "-d", "cpu")  # labels of unknown number


def packing(s):
    s.run(0, "pack", "npy:" + s.url("x.npy"), "packed", "--json")
    s.run(1, "pack", "tar:" + s.url("s.tar"), "packed2", "--resize", "4")
    s.run(0, "inspect", "tar:packed", "--json")


def errors(s):
    for what, path in (("s404", "x.npy"), ("s403", "x.npy"), ("s503", "x.npy"), ("ok", "gone.npy"), ("ok", "bad.npy"),
                       ("garbage", "x.npy"), ("loop", "x.npy"), ("away", "x.npy"), ("wrongrange", "x.npy")):
        for command in ("feed", "inspect"):
            s.run(1, command, "npy:" + s.url(path, what), *(["-d", "cpu", "--retries", "0"] if command == "feed" else ["--json"]))
    for uri in ("no:" + s.url("x.npy"), s.url("x.unknown"), "mix:" + s.url("x.npy"), "tar:" + s.url("{a..b}.tar"),
                "tar:" + s.url("{1.tar"), "s3://AKTEST:secretTEST@bucket/x.npy", "npy:s3://AKTEST:secretTEST@bucket/x.npy",
                "npy:http://plantedUSER:planted/PASS@127.0.0.1:1/x.npy"):
        s.run(1 if "unknown" in uri else 2, "inspect", uri)
    s.run(2, "feed", "npy:s3://bucket/x.npy", "-d", "cpu", AWS_REGION="test-1\r\nX-Evil: 1")
    for name in ("AWS_REGION", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        out = s.run(2, "feed", "npy:s3://bucket/x.npy", "-d", "cpu", **{name: "tokenTEST\r\nX-Evil: 1"})
        if name.encode() not in out:
            s.fail("%s with an end of line: %r" % (name, out))


def recordings(s):
    arguments = ["tar:" + s.url("s.tar"), "AWS_SECRET_ACCESS_KEY=plantedARG", "--token", "plantedARG x", "--api-key=plantedARG",
                 "Authorization: Bearer plantedARG", "-x", s.url("x.npy")]
    s.run(0, "profile", "-o", "r.sqlite", "--", "sh", "-c", "sh -c 'exec true' $*; true", "sh", *arguments)
    s.run(127, "profile", "-o", "n.sqlite", "--", "/no/such/program", *arguments)
    s.run(0, "profile", "-f", "-o", "f.sqlite", "--json", "--", PROGRAM, "feed", "npy:" + s.url("x.npy"), "-d", "cpu", "-e", "1")
    for name in ("r.sqlite", "f.sqlite"):
        s.run(0, "report", name)
        s.run(0, "report", name, "--json")
        s.run(0, "report", name, "-f", "csv")
        s.run(0, "analyze", name, "--json")
        for out in ("t.html", "t.svg", "t.pftrace"):
            s.run(0, "timeline", name, "-o", out, "-f")
    text = "\n".join(sqlite3.connect(s.work / "r.sqlite").iterdump())
    if not re.search(r"\*\*\*@127\.0\.0\.1:\d+/ok/s\.tar\?\.\.\.", text):
        s.fail("the recording has no command line")
    s.run(0, "doctor", "--no-disk", "--json")


def main():
    with tempfile.TemporaryDirectory() as folder:
        root, work = pathlib.Path(folder, "root"), pathlib.Path(folder, "work")
        root.mkdir()
        work.mkdir()
        make_files(root)
        server = subprocess.Popen([sys.executable, SERVER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        session = Session(work, int(server.stdout.readline().split()[1]))
        for part in (data_sets, training, packing, errors, recordings):
            part(session)
        n = session.look_at_files()
        server.stdin.close()
        server.wait()
        if n < 20:
            session.fail("only %d files were written" % n)
        print("%d files, %d failures" % (n, session.failed))
        return session.failed > 0


if __name__ == "__main__":
    sys.exit(main())

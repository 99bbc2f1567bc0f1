#!/usr/bin/env python3
"""An HTTP server that serves a folder, well or badly, as the first part of the path says.

usage: fault_server.py ROOT [--latency MS]      prints "PORT n", serves until its standard input ends

/ok/FILE          ranges, ETag, keep-alive
/FAULT/FILE       one of the faults below; /FAULT-N/FILE: the first N requests of that file have it, later ones are fine
/s3/BUCKET/KEY    an S3 of path style: ROOT/BUCKET/KEY, ListObjectsV2 in pages of 3; requests must carry a right signature
                  (keys AKTEST, secretTEST; region test-1; with token tokenTEST if one was sent)
/open/BUCKET/KEY  the same, unsigned: a signed request is refused
/log              how many requests, connections and errors there were, as JSON
"""
import hashlib
import hmac
import json
import os
import socket
import socketserver
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

ROOT = sys.argv[1]
LATENCY = float(sys.argv[sys.argv.index("--latency") + 1]) / 1000 if "--latency" in sys.argv else 0
LATER = {"later": "99999999999", "latermore": "9" * 40, "laterdate": "Fri, 31 Dec 2100 23:59:59 GMT",
         "laterold": "Friday, 31-Dec-60 23:59:59 GMT", "latestold": "Fri Dec 31 23:59:59 2100"}
LOCK = threading.Lock()
SEEN = {}
COUNTS = {"requests": 0, "connections": 0, "most_at_once": 0, "heads": 0, "not_modified": 0, "body_bytes": 0, "hangs": 0}
AT_ONCE = [0]
GATE = threading.Condition()
GATHERED = [0]
FILES = {}
TAGS = {}
OTHERS = {}
STATUSES = {"s400": 400, "s401": 401, "s403": 403, "s404": 404, "s410": 410, "s416": 416, "s429": 429, "s500": 500,
            "s502": 502, "s503": 503, "s504": 504}


def load(path):
    """The bytes of a file under ROOT, kept; None when it is not there."""
    full = os.path.normpath(os.path.join(ROOT, path.lstrip("/")))
    if not full.startswith(os.path.normpath(ROOT)) or not os.path.isfile(full):
        return None
    stamp = os.stat(full).st_mtime_ns
    with LOCK:
        if full not in FILES or FILES[full][0] != stamp:
            with open(full, "rb") as f:
                FILES[full] = (stamp, f.read())
        return FILES[full][1]


def tag_of(data):
    """Hashed once for each of the few contents there are."""
    known = TAGS.get(id(data))
    if not known or known[0] is not data:
        known = TAGS[id(data)] = (data, '"' + hashlib.md5(data).hexdigest() + '"')
    return known[1]


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(method, path, query, headers, authorization):
    """What Signature Version 4 says that the signature must be."""
    fields = dict(part.strip().split("=", 1) for part in authorization[len("AWS4-HMAC-SHA256"):].split(","))
    scope = fields["Credential"].split("/", 1)[1]
    day, region, service, _ = scope.split("/")
    names = fields["SignedHeaders"].split(";")
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical_query = "&".join(urllib.parse.quote(k, safe="-_.~") + "=" + urllib.parse.quote(v, safe="-_.~")
                               for k, v in pairs)
    lines = [method, path, canonical_query]
    lines += [n + ":" + " ".join((headers.get(n) or "").split()) for n in names]
    lines += ["", ";".join(names), headers.get("x-amz-content-sha256", "")]
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope,
                      hashlib.sha256("\n".join(lines).encode()).hexdigest()])
    key = b"AWS4secretTEST"
    for part in (day, region, service, "aws4_request"):
        key = sign(key, part)
    good = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    must = ["host", "x-amz-content-sha256", "x-amz-date"]
    must += ["x-amz-security-token"] if headers.get("x-amz-security-token") else []
    fine = (good == fields["Signature"] and region == "test-1" and service == "s3"
            and fields["Credential"].startswith("AKTEST/") and all(n in names for n in must)
            and headers.get("x-amz-security-token") in (None, "tokenTEST"))
    return fine, good


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        with LOCK:
            COUNTS["connections"] += 1

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        with LOCK:
            COUNTS["requests"] += 1
            COUNTS["heads"] += self.command == "HEAD"
            AT_ONCE[0] += 1
            COUNTS["most_at_once"] = max(COUNTS["most_at_once"], AT_ONCE[0])
        try:
            if LATENCY:
                time.sleep(LATENCY)
            self.answer()
            self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with LOCK:
                AT_ONCE[0] -= 1

    def answer(self):
        url = urllib.parse.urlsplit(self.path)
        kind, _, rest = url.path.lstrip("/").partition("/")
        if kind == "log":
            # of one size: this request counts, too, and who asks for the size first would see it change
            return self.plain(200, json.dumps(COUNTS).ljust(512).encode())
        if kind in ("s3", "open"):
            return self.s3(kind, rest, url)
        fault, _, times = kind.partition("-")
        with LOCK:
            SEEN[self.path] = n = SEEN.get(self.path, 0) + 1
        if times and n > int(times):
            fault = {"change": "changed", "cutchunked": "chunked"}.get(fault, "ok")
        data = load(urllib.parse.unquote(rest))
        if data is None:
            return self.plain(404, b"not here")
        return self.fault(fault, data)

    # ---- answers ----

    def plain(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def span(self, size):
        """First and last byte asked for, None: all."""
        text = self.headers.get("Range")
        if not text or not text.startswith("bytes="):
            return None
        first, _, last = text[6:].partition("-")
        return int(first), min(int(last) if last else size - 1, size - 1)

    def serve(self, data, etag=True, modified=True, ranges=True, chunked=False, **lies):
        tag = tag_of(data)
        if self.headers.get("If-Match") not in (None, tag) and etag:
            return self.plain(412, b"")
        if self.headers.get("If-None-Match") == tag and etag:
            with LOCK:
                COUNTS["not_modified"] += 1
            self.send_response(304)
            self.send_header("ETag", tag)
            self.end_headers()
            return None
        span = self.span(len(data)) if ranges else None
        if span and span[0] >= len(data):
            return self.plain(416, b"", [("Content-Range", "bytes */%d" % len(data))])
        first, last = span or (0, len(data) - 1)
        body = data[first:last + 1]
        self.send_response(206 if span else 200)
        if etag:
            self.send_header("ETag", tag)
        if modified:
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        if span:
            self.send_header("Content-Range", lies.get("range") or "bytes %d-%d/%d" % (first, last, len(data)))
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) + lies.get("more", 0)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if lies.get("cut") is not None:
            body = body[:lies["cut"] if lies["cut"] > 1 else int(len(body) * lies["cut"])]
            self.close_connection = True
        with LOCK:
            COUNTS["body_bytes"] += len(body)
        if chunked:
            for at in range(0, len(body), 1000):
                part = body[at:at + 1000]
                self.wfile.write(b"%x\r\n" % len(part) + part + b"\r\n")
            if not lies.get("unended"):
                self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(body)
        return None

    def fault(self, fault, data):
        head = self.command == "HEAD"
        if fault == "ok" or (head and fault in ("cut", "more", "wrongrange", "badrange", "drip", "hang", "reset",
                                                "empty", "short", "garbage", "chunkcut", "chunkall", "cutchunked")):
            return self.serve(data)
        if fault in STATUSES:
            more = [("Retry-After", "1")] if fault == "s429" else []
            body = b"<Error><Code>SlowDown</Code><Message>told to</Message></Error>" if fault == "s503" else b"no"
            return self.plain(STATUSES[fault], body, more)
        if fault in LATER:
            return self.plain(503, b"no", [("Retry-After", LATER[fault])])
        if fault == "past":
            return self.plain(503, b"no", [("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT")])
        if fault == "large":  # refuses ranges of more than a page that do not begin the file
            span = self.span(len(data))
            return self.plain(403, b"") if span and span[0] > 0 and span[1] - span[0] >= 4096 else self.serve(data)
        if fault == "nohead":
            return self.plain(405, b"") if head else self.serve(data)
        if fault == "noetag":
            return self.serve(data, etag=False)
        if fault == "novalidator":
            return self.serve(data, etag=False, modified=False)
        if fault == "norange":
            return self.serve(data, ranges=False)
        if fault == "chunked":
            return self.serve(data, chunked=True)
        if fault in ("change", "changed"):
            now = data if fault == "change" else OTHERS.setdefault(len(data), data[1:] + data[:1])
            return self.serve(now)
        if fault == "grow":
            return self.serve(data + b"more", etag=False)
        if fault in ("cut", "cutchunked"):
            return self.serve(data, cut=0.5)
        if fault == "chunkcut":
            return self.serve(data, chunked=True, cut=0.5, unended=True)
        if fault == "chunkall":  # all bytes, and then not the end of the body
            return self.serve(data, chunked=True, cut=1.0, unended=True)
        if fault == "more":
            return self.serve(data, more=10, cut=1.0)
        if fault == "wrongrange":
            return self.serve(data, range="bytes 1-%d/%d" % (len(data) - 1, len(data)))
        if fault == "badrange":
            return self.serve(data, range="bytes 9-3/99999999999999999999999")
        if fault == "short":
            span = self.span(len(data)) or (0, len(data) - 1)
            body = data[span[0]:max(span[1] - 4, span[0]) + 1]
            return self.plain(206, body, [("Content-Range", "bytes %d-%d/%d" % (span[0], span[0] + len(body) - 1,
                                                                                len(data)))])
        if fault == "empty":
            self.close_connection = True
            return None
        if fault == "garbage":
            self.wfile.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            self.close_connection = True
            return None
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
            self.close_connection = True
            return None
        if fault == "hang":
            with LOCK:
                COUNTS["hangs"] += 1
            time.sleep(20)
            self.close_connection = True
            return None
        if fault == "gather":  # the first ten wait for each other
            with GATE:
                GATHERED[0] += 1
                GATE.notify_all()
                GATE.wait_for(lambda: GATHERED[0] >= 10, 60)
            return self.serve(data)
        if fault == "held":  # until the test makes the file "go"; "came" says that it may
            if not head:
                open(os.path.join(ROOT, "came"), "w").close()
            for _ in range(0 if head else 6000):
                if os.path.exists(os.path.join(ROOT, "go")):
                    break
                time.sleep(0.01)
            return self.serve(data)
        if fault == "drip":
            return self.drip(data)
        if fault == "redirect":
            return self.plain(302, b"", [("Location", self.path.replace("/redirect/", "/ok/"))])
        if fault == "loop":
            return self.plain(302, b"", [("Location", self.path)])
        if fault == "away":
            return self.plain(302, b"", [("Location", "file:///etc/passwd")])
        return self.plain(404, b"no such fault")

    def drip(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        for b in data[:200]:
            self.wfile.write(bytes([b]))
            self.wfile.flush()
            time.sleep(0.1)
        self.close_connection = True

    # ---- S3 ----

    def refuse(self, code, text):
        body = "<?xml version='1.0'?><Error><Code>%s</Code><Message>%s</Message></Error>" % (code, text)
        self.plain(403, body.encode(), [("Content-Type", "application/xml")])

    def s3(self, kind, rest, url):
        authorization = self.headers.get("Authorization")
        if kind == "open" and authorization:
            return self.refuse("InvalidRequest", "signed, where nobody has keys")
        if kind == "s3":
            if not authorization:
                return self.refuse("AccessDenied", "anonymous")
            fine, _ = signature(self.command, url.path, url.query, self.headers, authorization)
            if not fine:
                return self.refuse("SignatureDoesNotMatch", "the signature is wrong")
        bucket, _, key = urllib.parse.unquote(rest).partition("/")
        if not key:
            return self.s3_list(bucket, dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True)))
        data = load(bucket + "/" + key)
        if data is None:
            return self.plain(404, b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>")
        return self.serve(data)

    def s3_endless(self, bucket, n):
        """Page n of a list without end: the same names again, later ones first, greater ones, or none."""
        names = {"same": ["a", "b"], "back": ["k%06d" % (999999 - n)], "empty": [],
                 "grow": ["k%09d-%d" % (n, i) for i in range(900)],
                 "swap": [["a", "c"], ["b", "d"]][n % 2]}[bucket[len("endless-"):]]
        out = ["<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>"]
        out += ["<Contents><Key>%s</Key><Size>1</Size></Contents>" % name for name in names]
        out.append("<IsTruncated>true</IsTruncated>")
        out.append("<NextContinuationToken>t/+=%d</NextContinuationToken></ListBucketResult>" % (n + 1))
        self.plain(200, "".join(out).encode(), [("Content-Type", "application/xml")])

    def s3_list(self, bucket, query):
        if bucket.startswith("endless-"):
            return self.s3_endless(bucket, int(query.get("continuation-token", "t/+=0")[4:]))
        prefix, names = query.get("prefix", ""), set()
        top = os.path.join(ROOT, bucket)
        for folder, _, files in os.walk(top):
            for name in files:
                key = os.path.relpath(os.path.join(folder, name), top)
                if key.startswith(prefix):
                    more, slash, _ = key[len(prefix):].partition("/")
                    names.add(prefix + more + slash)
        names = sorted(names)
        start = int(query.get("continuation-token", "t/+=0")[4:])
        page = names[start:start + 3]
        out = ["<?xml version='1.0' encoding='UTF-8'?><ListBucketResult "
               "xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Name>%s</Name>" % bucket]
        for name in page:
            text = urllib.parse.quote(name)
            if name.endswith("/"):
                out.append("<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>" % text)
            else:
                size = os.path.getsize(os.path.join(top, name))
                out.append("<Contents><Key>%s</Key><Size>%d</Size><Owner><ID>x</ID></Owner></Contents>" % (text, size))
        more = start + 3 < len(names)
        out.append("<IsTruncated>%s</IsTruncated>" % ("true" if more else "false"))
        if more:
            out.append("<NextContinuationToken>t/+=%d</NextContinuationToken>" % (start + 3))
        out.append("</ListBucketResult>")
        return self.plain(200, "".join(out).encode(), [("Content-Type", "application/xml")])


class Server(socketserver.ThreadingTCPServer):
    def handle_error(self, request, client_address):
        pass  # clients that go away, as the tests want them to

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256


def main():
    server = Server(("127.0.0.1", 0), Handler)
    print("PORT %d" % server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


main()

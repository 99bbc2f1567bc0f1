"""Reads from nginx, a server that others wrote: connections are kept and few, by HTTP/1.1 and by HTTP/2 over TLS, also when
the server ends them after some requests, and through a proxy. The digest is the local file's.

usage: nginx.py PROGRAM
Skips without nginx; the part over TLS without openssl or nginx's module for HTTP/2.
"""
import collections
import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from connect_proxy import proxy  # noqa: E402  # it is in support

PROGRAM = os.path.abspath(sys.argv[1])
for name in list(os.environ):  # what this machine's user trusts, and goes by
    if name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE") or name.lower().endswith("_proxy"):
        del os.environ[name]
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
SAMPLES, BYTES, DEPTH, STREAMS = 600, 20000, 32, 8
ENDS_AFTER = 40  # requests of a connection, with the server that ends them

CONFIG = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log warn;
events {{ worker_connections 2048; }}
http {{
  log_format one '$server_port $connection $server_protocol $status';
  access_log {dir}/access.log one;
  client_body_temp_path {dir}/1; proxy_temp_path {dir}/2; fastcgi_temp_path {dir}/3;
  uwsgi_temp_path {dir}/4; scgi_temp_path {dir}/5;
  root {dir};
  keepalive_requests 100000;
  server {{ listen 127.0.0.1:{http}; }}
  server {{ listen 127.0.0.1:{ends}; keepalive_requests {after}; }}
  {tls}
}}
"""
TLS = """
  ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;
  server {{ listen 127.0.0.1:{h2} ssl http2; }}
  server {{ listen 127.0.0.1:{h2ends} ssl http2; keepalive_requests {after}; }}
  server {{ listen 127.0.0.1:{h1} ssl; }}
  server {{ listen 127.0.0.1:{h2proxy} ssl http2; }}
"""


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run(*words, **more):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def has_http2():
    text = subprocess.run([NGINX, "-V"], stderr=subprocess.PIPE, text=True, check=True).stderr
    return "http_v2_module" in text and "http_ssl_module" in text


def make_certificate(folder):
    if not shutil.which("openssl") or not has_http2():
        return False
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder + "/key.pem",
        "-out", folder + "/cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
        "subjectAltName=IP:127.0.0.1", stderr=subprocess.DEVNULL)
    return True


@contextlib.contextmanager
def server(folder, tls, ports):
    names = dict(zip(("http", "ends", "h2", "h2ends", "h1", "h2proxy"), ports), dir=folder, after=ENDS_AFTER)
    text = CONFIG.format(tls=TLS.format(**names) if tls else "", **names)
    with open(folder + "/nginx.conf", "w") as f:
        f.write(text)
    process = subprocess.Popen([NGINX, "-c", folder + "/nginx.conf", "-p", folder],
                               stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[0])):
                break
            if process.poll() is not None:
                with open(folder + "/error.log") as f:
                    sys.exit("nginx did not start: " + f.read())
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def proxies_http2():
    """libcurl 7.87 and 7.88 can't: HTTP/1.1 is used instead."""
    curl = ctypes.CDLL("libcurl.so.4")
    curl.curl_version.restype = ctypes.c_char_p
    return not curl.curl_version().decode().startswith(("libcurl/7.87.", "libcurl/7.88."))


def feed(place, folder, **more):
    text = run(PROGRAM, "feed", f"tar:{place}/x.tar", "--shuffle", "--batch-size", "16", "--json",
               "--device", "cpu", "--digest", "--epochs", "2", "--queue-depth", str(DEPTH), "-q",
               env=dict(os.environ, **more))
    return json.loads(text)


def served(folder, port):
    """[(connection, protocol, status)] so far."""
    time.sleep(0.3)
    with open(folder + "/access.log") as f:
        rows = [line.split() for line in f]
    return [(c, p, int(s)) for at, c, p, s in rows if at == str(port)]


def check(what, folder, url, port, local, protocol, least, most, **more):
    result = feed(f"{url}:{port}", folder, **more)
    rows = served(folder, port)
    connections = len({c for c, _, _ in rows})
    print(f"{what}: {len(rows)} requests by {connections} connections, {protocol}, "
          f"{result['remote']['retries']} retries")
    assert result["digest"] == local["digest"], (result["digest"], local["digest"])
    assert {p for _, p, _ in rows} == {protocol}, collections.Counter(p for _, p, _ in rows)
    assert all(s in (200, 206) for _, _, s in rows), collections.Counter(s for _, _, s in rows)
    assert len(rows) >= 2 * SAMPLES
    assert least <= connections <= most, (what, connections, least, most)


def refused(port):
    """Without the variable the certificate is not trusted."""
    done = subprocess.run([PROGRAM, "inspect", f"tar:https://127.0.0.1:{port}/x.tar"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "certificate" in done.stderr, done.stderr


def main():
    if not NGINX:
        print("SKIP: no nginx here: package nginx-light")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # nginx's workers are another user's if root starts them
        run(PROGRAM, "synth", "npy", folder + "/x.npy", "--n", str(SAMPLES), "--shape",
            str(BYTES // 4), "--dtype", "f32", "--classes", "0", "-q")
        run(PROGRAM, "pack", f"npy:{folder}/x.npy", folder + "/shards", "--shard-size", "1GiB", "-q")
        for name in os.listdir(folder + "/shards"):
            os.rename(f"{folder}/shards/{name}", folder + "/" + name.replace("shard-000000", "x"))
        ports, tls = free_ports(6), make_certificate(folder)
        local = feed(folder, folder)
        with server(folder, tls, ports):
            check("kept", folder, "http://127.0.0.1", ports[0], local, "HTTP/1.1", 1, DEPTH + 2)
            ended = 2 * SAMPLES // ENDS_AFTER
            check("ended by the server", folder, "http://127.0.0.1", ports[1], local, "HTTP/1.1",
                  ended, 2 * ended + DEPTH + 2)
            if not tls:
                print("SKIP HTTP/2: openssl or nginx's module is not here")
                return
            own = dict(CURL_CA_BUNDLE=folder + "/cert.pem")
            # Each carries several streams; that the first ones were late makes a few more.
            check("HTTP/2", folder, "https://127.0.0.1", ports[2], local, "HTTP/2.0", 1,
                  3 * DEPTH // STREAMS, **own)
            check("HTTP/2, ended by the server", folder, "https://127.0.0.1", ports[3], local,
                  "HTTP/2.0", ended // 2, 3 * ended + 3 * DEPTH // STREAMS, **own)
            check("HTTP/1.1 over TLS", folder, "https://127.0.0.1", ports[4], local, "HTTP/1.1", 1,
                  DEPTH + 2, SSL_CERT_FILE=own["CURL_CA_BUNDLE"])
            with proxy() as place:
                most = 3 * DEPTH // STREAMS if proxies_http2() else DEPTH + 2
                check("through a proxy", folder, "https://127.0.0.1", ports[5], local,
                      "HTTP/2.0" if proxies_http2() else "HTTP/1.1", 1, most, https_proxy=place,
                      **own)
            refused(ports[2])


main()

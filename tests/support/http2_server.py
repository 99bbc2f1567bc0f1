#!/usr/bin/env python3
"""fault_server.py behind nginx, which speaks HTTP/2 over TLS.

usage: http2_server.py ROOT      writes ROOT/cert.pem, prints "PORT n", serves until its standard input ends

ROOT/proxy holds the URL of a proxy for https.

Ends at once without nginx, its module for HTTP/2, or openssl."""
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from connect_proxy import proxy

CONFIG = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log warn;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {dir}/1; proxy_temp_path {dir}/2; fastcgi_temp_path {dir}/3;
  uwsgi_temp_path {dir}/4; scgi_temp_path {dir}/5;
  ssl_certificate {root}/cert.pem; ssl_certificate_key {dir}/key.pem;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    location / {{ proxy_pass http://127.0.0.1:{behind}; proxy_http_version 1.1; proxy_buffering off; }}
  }}
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def find_nginx():
    nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not nginx or not shutil.which("openssl"):
        sys.exit("no nginx or openssl")
    text = subprocess.run([nginx, "-V"], stderr=subprocess.PIPE, text=True, check=True).stderr
    if "http_v2_module" not in text or "http_ssl_module" not in text:
        sys.exit("nginx has no HTTP/2")
    return nginx


def start(nginx, root, folder, behind):
    """nginx, and its port."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder + "/key.pem",
                    "-out", root + "/cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
                    "subjectAltName=IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
    port = free_port()
    with open(folder + "/nginx.conf", "w") as f:
        f.write(CONFIG.format(dir=folder, root=root, port=port, behind=behind))
    process = subprocess.Popen([nginx, "-c", folder + "/nginx.conf", "-p", folder], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.05)
    return process, port


def main():
    root = os.path.abspath(sys.argv[1])
    nginx = find_nginx()
    faults = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "fault_server.py"), root],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    behind = int(faults.stdout.readline().split()[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # nginx's workers are another user's if root starts them
        process, port = start(nginx, root, folder, behind)
        if process.poll() is None:
            with proxy() as place:
                with open(root + "/proxy", "w") as f:
                    f.write(place)
                print(f"PORT {port}", flush=True)
                sys.stdin.read()
            process.terminate()
            process.wait()
    faults.stdin.close()
    faults.wait()


main()

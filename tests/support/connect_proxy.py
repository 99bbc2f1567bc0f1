"""A proxy for https: it knows CONNECT."""
import contextlib
import socket
import socketserver
import threading


class Proxy(socketserver.BaseRequestHandler):
    """CONNECT, and then bytes both ways."""

    def handle(self):
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.request.recv(4096)
        verb, place = head.split()[:2]
        assert verb == b"CONNECT", head
        host, port = place.decode().split(":")
        with socket.create_connection((host, int(port))) as there:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=self.copy, args=(there, self.request))
            back.start()
            self.copy(self.request, there)
            back.join()

    @staticmethod
    def copy(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


class Proxies(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


@contextlib.contextmanager
def proxy():
    with Proxies(("127.0.0.1", 0), Proxy) as p:
        threading.Thread(target=p.serve_forever, daemon=True).start()
        yield "http://127.0.0.1:%d" % p.server_address[1]
        p.shutdown()

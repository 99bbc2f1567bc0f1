#!/usr/bin/env python3
"""A link between two network namespaces that takes some time: forwards IP packets between a tun device here and one in the
namespace of another process, each after a delay.

usage: relay.py PID MILLISECONDS     devices "relay", 10.91.0.1 here and 10.91.0.2 there; prints "READY", ends with its input

Needs /dev/net/tun and CAP_NET_ADMIN in both namespaces, which `unshare -rn` gives."""
import collections
import ctypes
import fcntl
import os
import selectors
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000


def device(address):
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"relay", IFF_TUN | IFF_NO_PI))
    for words in (["addr", "add", address + "/24", "dev", "relay"], ["link", "set", "relay", "up"],
                  ["link", "set", "lo", "up"]):
        subprocess.run(["ip", *words], check=True)
    return tun


def enter(path):
    with open(path, "rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns " + path)


def forward(here, there, delay_s):
    """Packets wait in the order in which they came, so the first one is always due first."""
    waiting = collections.deque()
    with selectors.DefaultSelector() as selector:
        for tun, other in ((here, there), (there, here)):
            selector.register(tun, selectors.EVENT_READ, other)
        selector.register(sys.stdin, selectors.EVENT_READ, None)
        while True:
            timeout = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
            for key, _ in selector.select(timeout):
                if key.data is None:
                    return
                waiting.append((time.monotonic() + delay_s, key.data, os.read(key.fd, 65536)))
            while waiting and waiting[0][0] <= time.monotonic():
                _, to, packet = waiting.popleft()
                try:
                    os.write(to, packet)
                except BlockingIOError:
                    pass  # a full queue drops it, and TCP sends it again


def main():
    pid, delay_ms = sys.argv[1:]
    here = device("10.91.0.1")
    enter(f"/proc/{pid}/ns/net")
    there = device("10.91.0.2")
    print("READY", flush=True)
    forward(here, there, float(delay_ms) / 1000)


if __name__ == "__main__":
    main()

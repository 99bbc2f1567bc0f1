#!/usr/bin/env python3
"""moto's S3 server on a free port, with objects photos/p/0000.bin ... 1202.bin, the first 1000 + i bytes of ROOT/big.bin.

usage: s3_server.py ROOT           prints "PORT n", serves until its standard input ends
       s3_server.py --files FILE...  instead these files, as photos/NAME"""
import logging
import os
import sys

from moto.backends import get_backend
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
os.dup2(1, 3)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
# Straight into its memory: 1,203 signed requests would take it half a minute.
backend = get_backend("s3")["123456789012"]["aws"]
backend.create_bucket("photos", "us-east-1")
if sys.argv[1] == "--files":
    for path in sys.argv[2:]:
        with open(path, "rb") as f:
            backend.put_object("photos", os.path.basename(path), f.read())
else:
    with open(sys.argv[1] + "/big.bin", "rb") as f:
        big = f.read()
    for i in range(1203):
        backend.put_object("photos", "p/%04d.bin" % i, big[:1000 + i])
os.write(3, b"PORT %d\n" % server.get_host_and_port()[1])
os.close(3)
sys.stdin.read()
os._exit(0)

#!/usr/bin/env python3
"""moto's S3 server on a free port: prints "PORT n", serves until its standard input ends."""
import logging
import os
import sys

from moto.moto_server.threaded_moto_server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
os.dup2(1, 3)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
os.write(3, b"PORT %d\n" % server.get_host_and_port()[1])
os.close(3)
sys.stdin.read()
os._exit(0)

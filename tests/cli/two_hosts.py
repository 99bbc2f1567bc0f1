"""millrace train on two hosts that are 20 ms apart, which are two network namespaces here: Open
MPI starts a rank in each and they meet by TCP. The bits are those of one rank.

usage: two_hosts.py PROGRAM RELAY       the latter: tests/support/relay.py
Skips where namespaces, /dev/net/tun or Open MPI are not to be had.
"""
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

PROGRAM, RELAY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DELAY_MS = 20
LIMIT = 100  # seconds: for what hangs
STEPS = 4

for name in list(os.environ):  # nor is this test a rank of something
    if name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE")):
        del os.environ[name]
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def within_namespaces():
    """Goes on in a network namespace of its own, once."""
    if "TWO_HOSTS" in os.environ:
        return
    for word, package in (("mpirun.openmpi", "openmpi-bin"), ("ip", "iproute2"),
                          ("nsenter", "util-linux"), ("unshare", "util-linux")):
        if not shutil.which(word):
            skip(f"{word} is not here: package {package}")
    # With processes of their own: orted leaves the group of who started it, but not these.
    own = ["unshare", "-rnu", "--pid", "--fork", "--kill-child", "--mount-proc"]
    tun = "ip tuntap add dev relay mode tun"
    tried = subprocess.run([*own, "sh", "-c", tun], stderr=subprocess.PIPE, text=True)
    if tried.returncode:
        skip("no network namespaces with tun devices here: " + tried.stderr.strip())
    os.environ["TWO_HOSTS"] = "1"
    os.execvp("unshare", [*own, sys.executable, *sys.argv])


@contextlib.contextmanager
def started(words, **more):
    process = subprocess.Popen(words, text=True, start_new_session=True, **more)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def first_line(process, want):
    line = process.stdout.readline().strip()
    assert line == want, (line, process.args)


def parameters(path):
    with open(path, "rb") as file:
        head = struct.unpack("<Q", file.read(8))[0]
        file.seek(8 + head)
        return file.read()


def command(checkpoint):
    return [PROGRAM, "train", "d", "-q", "-d", "cpu", "--threads", "1", "--seed", "3", "-m",
            "mlp:30s", "-b", "64", "--leaves", "2", "--max-steps", str(STEPS), "--json", "-f",
            "-c", checkpoint]


def on_two_hosts(other):
    """Open MPI reaches the other host by an agent, as by ssh, and both by the relay alone."""
    with open("agent", "w") as agent:
        agent.write(f'#!/bin/sh\nshift\nexec nsenter -t {other} -n -u sh -c "$*"\n')
    os.chmod("agent", 0o755)
    net = "10.91.0.0/24"
    words = ["mpirun.openmpi", "-q", "--bind-to", "none", "--host", "nodea,nodeb", "-n", "2"]
    for name, value in (("plm_rsh_agent", os.path.abspath("agent")), ("btl", "tcp,self"),
                        ("btl_tcp_if_include", net), ("oob_tcp_if_include", net)):
        words += ["--mca", name, value]
    start = time.monotonic()
    with started([*words, *command("two.st")], stdout=subprocess.PIPE,
                 stderr=subprocess.PIPE) as process:
        out, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, (process.returncode, out, errors)
    return json.loads(out), time.monotonic() - start


def main():
    subprocess.run(["hostname", "nodea"], check=True)
    subprocess.run([PROGRAM, "synth", "digits", "d", "-n", "256", "--n-test", "32", "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(command("one.st"), check=True, stdout=subprocess.DEVNULL)
    there = ["unshare", "-nu", "sh", "-c", "hostname nodeb; echo there; exec sleep 600"]
    with started(there, stdout=subprocess.PIPE) as other:
        first_line(other, "there")
        with started([sys.executable, RELAY, str(other.pid), str(DELAY_MS)],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE) as relay:
            first_line(relay, "READY")
            out, seconds = on_two_hosts(other.pid)
    assert out["world"] == 2 and out["engine"] == "mpi", out
    # Sums cross the link, or the ranks were not on two hosts. A rank that comes late waits for less.
    assert out["comm"]["seconds"] > DELAY_MS / 1000, out["comm"]
    assert parameters("two.st") == parameters("one.st")
    print(f"two hosts, {DELAY_MS} ms apart: {STEPS} steps, equal parameters, {seconds:.1f} s")


if __name__ == "__main__":
    within_namespaces()
    folder = tempfile.mkdtemp(prefix="millrace-hosts.")
    os.chdir(folder)
    try:
        main()
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)

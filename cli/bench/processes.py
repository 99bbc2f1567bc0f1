# What `millrace bench processes` measures in Python, with its standard library alone. A line of
# standard input asks, a line of standard output answers: "US ENDED_US CPU_US N BYTES", or
# "error: TEXT". The first answer is Python's version. Ends at the end of its input.
import mmap
import multiprocessing
import multiprocessing.pool
import resource
import statistics
import sys
import threading
import time

FILL, ABSENT = b"\x01", b"\xff"
UNKNOWN = float("nan")
rounds = 0  # of work(), for one item; 0: not known yet


def child_cpu_us(pid):
    """CPU time of a child that runs: what clock_getcpuclockid() of the C library makes of pid."""
    return 1e6 * time.clock_gettime((~pid << 3) | 2)


def family_cpu_us():
    """CPU time of this process and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e6 * (time.process_time() + ended.ru_utime + ended.ru_stime)


def start(way, n):
    """Starts one thread or process after another; each reports by a pipe that it runs."""
    n = int(n)
    reader, writer = multiprocessing.Pipe(duplex=False)
    create = threading.Thread if way == "thread" else multiprocessing.get_context(way).Process
    runs, ended, before = [], [], 0.0
    for i in range(n + 1):
        if i == 1:  # the first was to warm up
            before = family_cpu_us()
        begin = time.perf_counter()
        child = create(target=writer.send_bytes, args=(b"x",))
        child.start()
        reader.recv_bytes()
        runs.append(1e6 * (time.perf_counter() - begin))
        child.join()
        ended.append(1e6 * (time.perf_counter() - begin))
    # a fork server's children are not this process's
    cpu = UNKNOWN if way == "forkserver" else (family_cpu_us() - before) / n
    return statistics.median(runs[1:]), statistics.median(ended[1:]), cpu, n, 0


def produce_pickled(size, sender, reader):
    reader.close()
    batch = bytearray(FILL * size)
    try:
        while True:
            sender.send(batch)
    except OSError:  # who reads has seen enough
        pass


def slots_of(size):
    """As many batches as a pipe would hold, at least four."""
    return max(4, min(64, (64 << 10) // size))


def produce_shared(slots, sender, reader, free, freer):
    """Numbers of slots; the block of memory is the same in both processes, and is full."""
    reader.close()
    freer.close()
    try:
        for i in range(sys.maxsize):
            if i >= slots:
                free.recv_bytes()
            sender.send_bytes(bytes([i % slots]))
    except (EOFError, OSError):
        pass


def check(found, size, want):
    if found >= 0 or size != want:
        raise ValueError("a batch arrived with other bytes")


def batches(way, size, seconds):
    """Every byte of every batch is read, by a search for one that is not there."""
    size, seconds = int(size), float(seconds)
    context = multiprocessing.get_context("fork")
    reader, sender = context.Pipe(duplex=False)
    free, freer = context.Pipe(duplex=False)
    slots = slots_of(size)
    block = mmap.mmap(-1, slots * size)
    block[:] = FILL * len(block)

    def take_pickled():
        batch = reader.recv()
        check(batch.find(ABSENT), len(batch), size)

    def take_shared():
        at = reader.recv_bytes()[0] * size
        check(block.find(ABSENT, at, at + size), size, size)
        freer.send_bytes(b"x")

    def take(duration):
        n, begin = 0, time.perf_counter()
        while n == 0 or time.perf_counter() - begin < duration:
            take_one()
            n += 1
        return n

    if way == "pickle":
        take_one, target, args = take_pickled, produce_pickled, (size, sender, reader)
    else:
        take_one, target = take_shared, produce_shared
        args = slots, sender, reader, free, freer
    child = context.Process(target=target, args=args, daemon=True)
    child.start()
    sender.close()
    free.close()
    take(seconds / 4)
    cpu, begin = family_cpu_us() + child_cpu_us(child.pid), time.perf_counter()
    n = take(seconds)
    us = 1e6 * (time.perf_counter() - begin) / n
    cpu = (family_cpu_us() + child_cpu_us(child.pid) - cpu) / n
    reader.close()
    freer.close()
    child.join()
    return us, UNKNOWN, cpu, n, n * size


def work(x):
    for _ in range(rounds):
        x = (x * 0x5851F42D4C957F2D + 1) & 0xFFFFFFFFFFFFFFFF
    return x


def calibrate(item_ns):
    global rounds
    rounds, times = 20000, []
    for i in range(5):
        begin = time.perf_counter()
        work(i)
        times.append(time.perf_counter() - begin)
    rounds = max(1, round(rounds * int(item_ns) * 1e-9 / statistics.median(times)))


def pool_map(way, n, item_ns, workers, chunk):
    n, workers, chunk = int(n), int(workers), int(chunk)
    if rounds == 0:
        calibrate(item_ns)
    pool, pids = None, []
    if way == "threads":
        pool = multiprocessing.pool.ThreadPool(workers)
    elif way == "processes":
        pool = multiprocessing.get_context("fork").Pool(workers)
        pids = [child.pid for child in multiprocessing.active_children()]
    for _ in "warm-up", "measured":
        cpu, begin = family_cpu_us() + sum(map(child_cpu_us, pids)), time.perf_counter()
        results = pool.map(work, range(n), chunk) if pool else list(map(work, range(n)))
        us = 1e6 * (time.perf_counter() - begin) / n
        cpu = (family_cpu_us() + sum(map(child_cpu_us, pids)) - cpu) / n
    if pool:
        pool.close()
        pool.join()
    if results != [work(i) for i in range(n)]:
        raise ValueError("the results of the map are wrong")
    return us, UNKNOWN, cpu, n, 0


ASKED = {"start": start, "pass": batches, "map": pool_map}
FREE = not getattr(sys, "_is_gil_enabled", lambda: True)()
print("Python", sys.version.split()[0] + (", free-threaded" if FREE else ""), flush=True)
for line in sys.stdin:
    what, *words = line.split()
    try:
        print(*ASKED[what](*words), flush=True)
    except Exception as error:  # each measurement fails alone
        text = str(error) or repr(error)
        print("error:", what, words[0], text.replace("\n", " "), flush=True)

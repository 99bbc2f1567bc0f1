"""Recipes for the worker processes of the tests. Imports little: a fork server imports this."""

import os
import signal
import sys
import threading
import time
import types

ROW = [("x", "u8", (64,)), ("index", "i64", ())]


class Rows:
    """Sample i: 64 bytes made from i and the epoch, and i."""

    fields = ROW
    objects = False

    def __init__(self, dataset=None):
        self.dataset = dataset

    def start(self, info):
        self.info = info

    def row(self, epoch, index):
        return memoryview(bytearray((index * 31 + k + epoch) & 255 for k in range(64))), index

    def fetch(self, epoch, seed, indices, positions, worker):
        return [self.row(epoch, index) for index in indices]


class Slow(Rows):
    """Takes a millisecond for a sample."""

    def row(self, epoch, index):
        time.sleep(0.001)
        return super().row(epoch, index)


class Poison(Rows):
    """Sample 13 kills its worker, each time."""

    def __init__(self, number=signal.SIGKILL):
        super().__init__()
        self.number = number

    def row(self, epoch, index):
        if index == 13:
            os.kill(os.getpid(), self.number)
            time.sleep(5)
        return super().row(epoch, index)


class Refused(Exception):
    """An exception of a module, with an argument that is no text."""

    def __init__(self, index):
        super().__init__("sample %d is refused" % index)
        self.index = index

    def __reduce__(self):
        return Refused, (self.index,)


class Failing(Rows):
    """Samples 7 to 9 raise: what travels, what does not, and SystemExit."""

    def row(self, epoch, index):
        if index == 7:
            raise Refused(index)
        if index == 8:
            error = ValueError("with a lock")
            error.lock = threading.Lock()
            raise error
        if index == 9:
            sys.exit("enough")
        return super().row(epoch, index)


class NoStart(Rows):
    """worker_init_fn raises."""

    def start(self, info):
        raise KeyError("no start")


class NoLoad(Rows):
    """Cannot be unpickled."""

    def __setstate__(self, state):
        raise OSError(2, "the file is gone")

    def __getstate__(self):
        return {"a": 1}


class Hangs(Rows):
    """Sample 5 takes for ever."""

    def row(self, epoch, index):
        if index == 5:
            time.sleep(100)
        return super().row(epoch, index)


class Sleeps(Rows):
    """Each sample takes a minute."""

    def row(self, epoch, index):
        time.sleep(60)


class Tells(Rows):
    """Rows: the worker's id, their number, its pid, SIGINT ignored?"""

    fields = [("id", "i64", ()), ("n", "i64", ()), ("pid", "i64", ()), ("ignored", "bool", ()),
              ("dataset", "i64", ())]

    def row(self, epoch, index):
        from millrace._processes import get_worker_info

        info = get_worker_info()
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        return info.id, info.num_workers, os.getpid(), ignored, info.dataset[3]


class Objects(Rows):
    """Any Python objects."""

    fields = [("ticket", "u64", ())]
    objects = True

    def row(self, epoch, index):
        if index == 3:
            return threading.Lock()
        return {"index": index, "text": "x" * index, "small": [1.5, None],
                "large": bytearray(b"%d" % (index % 10)) * 100_000}


class Arrays(Objects):
    """Numpy arrays, large and small."""

    def row(self, epoch, index):
        import numpy

        return numpy.full((100, 100), index, "f4"), numpy.arange(index)


class Listed(Rows):
    """Rows of a shared list's lengths."""

    fields = [("length", "i64", ())]

    def row(self, epoch, index):
        return len(self.dataset[index])


class Sums(Rows):
    """Reads all of an array."""

    fields = [("sum", "i64", ()), ("pid", "i64", ())]

    def row(self, epoch, index):
        time.sleep(0.005)
        return int(self.dataset.sum()), os.getpid()


class FakeTorch(Rows):
    """Rows of what torch's get_worker_info() tells, beside ours. "torch" is imported late."""

    fields = [(name, "i64", ()) for name in ("ours", "id", "n", "dataset", "threads")]

    def start(self, info):
        super().start(info)
        torch = sys.modules["torch"] = types.ModuleType("torch")
        torch.threads = []
        torch.set_num_threads = torch.threads.append
        worker = types.ModuleType("worker")
        worker.WorkerInfo = types.SimpleNamespace
        sys.modules["torch.utils.data._utils.worker"] = worker

    def row(self, epoch, index):
        info = sys.modules["torch.utils.data._utils.worker"]._worker_info
        threads = sys.modules["torch"].threads
        return self.info.id, info.id, info.num_workers, info.dataset[0], threads[0]


class Setups:
    """A map-style data set whose samples write to a file whether their worker's rows are copied."""

    def __init__(self, path):
        self.path = str(path)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        frame = sys._getframe()
        while "setup" not in frame.f_locals:  # of _worker.run()
            frame = frame.f_back
        with open(self.path, "a") as file:
            file.write(f"{frame.f_locals['setup'].copied}\n")
        return index

"""One loader process, several trainers: each gets every batch, whatever happens to the others."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
import traceback

import millrace
import numpy as np
import pytest
from loader_sets import Raising, Squares

torch = pytest.importorskip("torch")

N, BATCH = 640, 32
_numbers = itertools.count()


def data():
    x = np.arange(N * 6, dtype=np.float32).reshape(N, 6)
    return x, np.arange(N)


def loader(dataset=None, **options):
    options = {"batch_size": BATCH, "shuffle": True, "seed": 5, "as_": "numpy", **options}
    return millrace.DataLoader(data() if dataset is None else dataset, **options)


@pytest.fixture
def address():
    return f"@millrace-test-{os.getpid()}-{next(_numbers)}"


class Child:
    """A forked process that runs work(); it sends back a line of text, or its exception's."""

    def __init__(self, work):
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                text = str(work())
            except BaseException:
                text = traceback.format_exc()
            os.write(write, text.encode()[:60000])
            os._exit(0)
        os.close(write)
        self._read = read

    def text(self):
        """What it sent, after its end."""
        with open(self._read, "rb") as file:
            text = file.read().decode()
        os.waitpid(self.pid, 0)
        return text


def labels(address, **options):
    """Attaches, and gives each batch's epoch, index and labels."""
    options = {"as_": "numpy", "connect_timeout": None, **options}
    with millrace.attach(address, **options) as trainer:
        seen = []
        for batch in trainer:
            assert (batch["f0"][:, 0] == batch["f1"] * 6).all()
            seen.append((trainer.epoch, trainer.index, np.asarray(batch["f1"]).tolist()))
            del batch
        return seen


def alone(epochs):
    """The same of a loader of its own."""
    with loader(epochs=epochs) as own:
        found = [labels.tolist() for _, labels in own]
    n = N // BATCH
    return [(i // n, i % n, labels) for i, labels in enumerate(found)]


def test_two_trainers_get_every_batch(address):
    trainers = [Child(lambda: labels(address)), Child(lambda: labels(address, as_="torch"))]
    with loader(epochs=2) as served, served.serve(address, trainers=2) as server:
        assert server.wait(30)
        info = server.info()
    expected = str(alone(2))
    assert [child.text() for child in trainers] == [expected, expected]
    assert (info.attached, info.dropped, info.batches, info.held) == (2, 0, 2 * N // BATCH, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_of_python(address, workers):
    def train():
        with millrace.attach(address, as_="numpy", form="list", connect_timeout=None) as trainer:
            return sorted(int(i) for x, y in trainer for i in y if (x[0] == y[0] ** 2).all())

    child = Child(train)
    more = {"multiprocessing_context": "fork"} if workers else {}
    with loader(Squares(100), num_workers=workers, **more) as served:
        with served.serve(address) as server:
            assert server.wait(30)
    assert child.text() == str(list(range(100)))


def test_a_dead_trainer_is_dropped(address):
    def dies():
        trainer = millrace.attach(address, as_="numpy", connect_timeout=None)
        held = [next(trainer), next(trainer)]
        os.kill(os.getpid(), signal.SIGKILL)
        return held

    dead, other = Child(dies), Child(lambda: len(labels(address)))
    with loader(epochs=3) as served, served.serve(address, trainers=2, ahead=3) as server:
        assert server.wait(30)
        assert (server.info().attached, server.info().dropped) == (2, 1)
    assert (dead.text(), other.text()) == ("", str(3 * N // BATCH))


def test_a_slow_trainer_holds_the_others(address):
    with loader() as served, served.serve(address, trainers=2, ahead=3) as server:
        fast = Child(lambda: len(labels(address)))
        slow = millrace.attach(address, as_="numpy", connect_timeout=None)
        first = next(slow)
        while server.info().batches < 4:
            time.sleep(0.001)
        assert not server.wait(0.05)
        info = server.info()
        assert (info.batches, info.behind, info.slowest, info.ahead) == (4, 4, os.getpid(), 3)
        del first
        assert sum(1 for _ in slow) == N // BATCH - 1
        slow.close()
        assert server.wait(30)
    assert fast.text() == str(N // BATCH)


def test_a_late_trainer_begins_with_the_next_batch(address):
    with loader() as served, served.serve(address, ahead=0) as server:
        early = millrace.attach(address, as_="torch")
        next(early)
        late = millrace.attach(address, as_="torch")
        missed = late.info().missed
        assert missed in (1, 2)  # the next one may have been sent to the other
        got = []
        thread = threading.Thread(target=lambda: got.extend(early))
        thread.start()
        assert sum(1 for _ in late) == N // BATCH - missed
        thread.join()
        assert len(got) == N // BATCH - 1 and late.index == early.index == N // BATCH - 1
        early.close(), late.close()
        assert server.wait(30)


def test_batches_on_the_host(address):
    """numpy's are views that cannot be written; torch's are copies that can be kept."""
    with loader() as served, served.serve(address, trainers=2, ahead=2):
        views = millrace.attach(address, as_="numpy")
        copies = millrace.attach(address, as_="torch", timeout=0.2)
        x = next(views)["f0"]
        assert not x.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1
        kept = [next(copies), next(copies)]
        kept[0]["f0"] += 1
        assert (kept[0]["f0"].numpy() == x + 1).all()
        held = [x, next(views), next(views)]
        with pytest.raises(RuntimeError, match="holds 3 batches.*`ahead` of 2 allows no more"):
            next(views)
        kept.append(next(copies))
        with pytest.raises(millrace.LoaderTimeout, match="no batch for 0.2 seconds"):
            next(copies)
        del held, x
        views.close()
        assert len(kept) + len(list(copies)) == N // BATCH
        copies.close()


def test_a_batch_outlives_what_it_came_from(address):
    with loader() as served:
        with served.serve(address):
            trainer = millrace.attach(address, as_="numpy")
            batch = next(trainer)
            trainer.close()
            with pytest.raises(ValueError, match="closed"):
                next(trainer)
            del trainer
    assert (batch["f0"][:, 0] == batch["f1"] * 6).all()


@pytest.mark.parametrize("as_", ["torch", "dlpack"])
def test_on_a_device(address, as_):
    with loader() as served, served.serve(address, ahead=4) as server:
        trainer = millrace.attach(address, as_=as_, device="sim", form="list")
        n = 0
        for x, y in trainer:
            assert (torch.from_dlpack(x)[:, 0] == 6 * torch.from_dlpack(y)).all()
            n += 1
            del x, y
        trainer.close()
        assert n == N // BATCH and server.wait(30)


def test_the_place_goes_on(address):
    """serve() takes the epochs that a loop would; a state continues there."""
    with loader(epochs=1) as served:
        assert len(list(served)) == N // BATCH
        child = Child(lambda: labels(address))
        with served.serve(address) as server:
            assert server.wait(30)
        assert child.text() == str(alone(2)[N // BATCH :])
        assert served.epoch == 2


def test_an_address_is_a_path(tmp_path):
    path = tmp_path / "batches"
    with loader() as served, served.serve(path) as server:
        assert server.address == str(path) and path.is_socket()
        with loader() as second, pytest.raises(OSError, match="in use"):
            second.serve(path)
        trainer = millrace.attach(path)
        assert len(list(trainer)) == N // BATCH
        trainer.close()
        assert server.wait(30)
    assert not path.exists()


# ---- errors ----


def test_no_server(address, tmp_path):
    started = time.monotonic()
    with pytest.raises(OSError, match=address) as caught:
        millrace.attach(address, connect_timeout=0.6)
    assert isinstance(caught.value, ConnectionRefusedError | TimeoutError)
    assert time.monotonic() - started > 0.5
    with pytest.raises((FileNotFoundError, TimeoutError)):
        millrace.attach(tmp_path / "none", connect_timeout=0)


def test_the_server_ends(address):
    ready, write = os.pipe()

    def serve():
        server = loader(epochs=0).serve(address)
        os.write(write, b"x")
        return server.wait()

    child = Child(serve)
    os.read(ready, 1)
    trainer = millrace.attach(address, as_="numpy", connect_timeout=None)
    batch = next(trainer)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(BrokenPipeError):
        list(map(lambda batch: None, trainer))
    assert (batch["f0"][:, 0] == batch["f1"] * 6).all()
    trainer.close()
    child.text()


def test_cancel(address):
    with loader(epochs=0) as served, served.serve(address) as server:
        trainer = millrace.attach(address, as_="numpy")
        next(trainer)
        server.cancel()
        with pytest.raises(millrace.Cancelled):
            list(map(lambda batch: None, trainer))
        with pytest.raises(millrace.Cancelled):
            server.wait()
        trainer.close()


def test_a_bad_sample_ends_both(address):
    with loader(Raising(100, bad=(40,)), shuffle=False) as served:
        with served.serve(address) as server:
            trainer = millrace.attach(address, as_="numpy")
            with pytest.raises(RuntimeError, match="sample 40"):
                list(map(lambda batch: None, trainer))
            trainer.close()
            with pytest.raises(KeyError, match="no picture 40"):
                server.wait(30)


def test_closing_the_loader_ends_the_server(address):
    served = loader(epochs=0)
    server = served.serve(address)
    trainer = millrace.attach(address, as_="numpy")
    next(trainer)
    errors = []

    def wait():
        try:
            server.wait()
        except (millrace.Cancelled, ValueError) as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    served.close()
    thread.join(10)
    assert not thread.is_alive() and len(errors) == 1
    with pytest.raises((millrace.Cancelled, BrokenPipeError)):
        list(map(lambda batch: None, trainer))
    trainer.close()
    with pytest.raises(ValueError, match="closed"):
        server.info()
    with pytest.raises(ValueError, match="closed"):
        served.serve(address)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"device": "sim", "as_": "torch"}, "trainers choose their device"),
        ({"sampler": iter([1, 2, 3]), "shuffle": None}, "a sampler object"),
        ({"collate_fn": list}, "made in Python: collate_fn"),
    ],
)
def test_what_cannot_be_served(address, options, text):
    dataset = Squares(100) if "collate_fn" in options else None
    with loader(dataset, **options) as served:
        with pytest.raises(ValueError, match=text):
            served.serve(address)


def test_arguments(address):
    with loader() as served, pytest.raises(ValueError, match="ahead"):
        served.serve(address, ahead=5000)
    with pytest.raises(ValueError, match="form='set'"):
        millrace.attach(address, form="set")
    with pytest.raises(ValueError, match="copy=True"):
        millrace.attach(address, copy=True, device="sim")
    with pytest.raises(ValueError, match="dlpack"):
        with loader() as served, served.serve(address):
            millrace.attach(address, copy=True, as_="dlpack")


def test_an_inherited_end_is_refused(address):
    with loader() as served, served.serve(address):
        trainer = millrace.attach(address, as_="numpy")

        def use():
            with pytest.raises(RuntimeError, match="attach after the fork"):
                next(trainer)
            return "refused"

        assert Child(use).text() == "refused"
        assert len(list(map(len, trainer))) == N // BATCH
        trainer.close()


def test_a_program_that_ends_with_both(clean, address):
    clean(
        "import millrace, numpy as np\n"
        "loader = millrace.DataLoader(np.zeros((100, 3)), batch_size=5, epochs=0, as_='numpy')\n"
        f"server = loader.serve({address!r})\n"
        f"trainer = millrace.attach({address!r}, as_='numpy')\n"
        "batch = next(trainer)\n"
    )

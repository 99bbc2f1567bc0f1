"""A worker is killed at a random moment of an epoch: all samples once, bits equal.

MILLRACE_KILLS=100 makes 100 such epochs with each start method, instead of a few.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import numpy
import process_recipes as recipes
import process_support as support
import pytest

RUNS = int(os.environ.get("MILLRACE_KILLS", "4"))
SAMPLES = 200


def kill_one(pool, moment: float, choice: random.Random, killed: list[int]) -> None:
    """Kills one of the workers after `moment` seconds."""
    time.sleep(moment)
    while not (alive := [pid for pid in pool.pids if support.is_alive(pid)]):
        time.sleep(0.001)
    killed.append(choice.choice(alive))
    os.kill(killed[0], signal.SIGKILL)


def epoch_with_a_kill(pool, run: int) -> None:
    choice, killed = random.Random(run), []
    # An epoch takes 0.1 s or more: 200 samples of 1 ms by two workers.
    thread = threading.Thread(target=kill_one, args=(pool, choice.uniform(0, 0.1), choice, killed))
    thread.start()
    found, bad = support.batches(pool.dataset, shuffle=run)
    thread.join()
    assert len(killed) == 1 and bad == []
    index = numpy.concatenate([batch[1] for batch in found])
    assert sorted(index.tolist()) == list(range(SAMPLES))
    assert (numpy.concatenate([batch[0] for batch in found]) == support.expected(index)).all()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_one_kill_an_epoch(method: str) -> None:
    pool = support.pool(recipes.Slow(), SAMPLES, context=method)
    try:
        for run in range(RUNS):
            epoch_with_a_kill(pool, run)
    finally:
        pool.close()

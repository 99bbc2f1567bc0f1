"""What the tests of `millrace profile` on Python programs share: a stand-in for torch, and how the profiler is run.

A test's first argument is PROGRAM.
"""
import glob
import os
import pathlib
import subprocess
import sys

PROGRAM = os.path.abspath(sys.argv[1])

# What the hook knows of torch, and no more.
FAKE = {
    "torch/__init__.py": "from . import autograd, optim\n",
    "torch/autograd/__init__.py": """
def backward(tensors):
    if tensors is None:
        raise ValueError("no tensors")
    return tensors
""",
    "torch/optim/__init__.py": "from .optimizer import Optimizer\n",
    "torch/optim/optimizer.py": """
import functools

class Optimizer:
    def __init__(self):
        if not getattr(self.__class__.step, "hooked", None):
            self.__class__.step = self.profile_hook_step(self.__class__.step)
            self.__class__.step.hooked = True

    @staticmethod
    def profile_hook_step(func):
        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            return func(*args, **kwargs)
        return wrapper
""",
    "millrace/__init__.py": "",
    "millrace/_iterator.py": """
class LoaderIterator:
    n = 2
    def __next__(self):
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return self.n
    def __iter__(self):
        return self
""",
    "millrace/loader.py": """
from ._iterator import LoaderIterator

class DataLoader:
    def __iter__(self):
        return LoaderIterator()
""",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "from .dataloader import DataLoader\n",
    "torch/utils/data/dataloader.py": """
class _BaseDataLoaderIter:
    def __init__(self, loader):
        self.items = iter(loader.items)
    def __iter__(self):
        return self
    def __next__(self):
        return next(self.items)

class DataLoader:
    def __init__(self, items):
        self.items = items
    def __iter__(self):
        return _BaseDataLoaderIter(self)
""",
}


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def profile(folder, command, *options, check=True, **environment):
    """Runs a command under the profiler. Returns (its result, the recording's path)."""
    path = os.path.join(folder, "r.sqlite")
    done = subprocess.run([PROGRAM, "profile", "-q", "-f", "-o", path, *options, "--", *command], cwd=folder,
                          env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if check and done.returncode != 0:
        raise AssertionError("%s: status %d: %s%s" % (command, done.returncode, done.stdout, done.stderr))
    return done, path


def pythons():
    """All versions on PATH and pyenv's."""
    found = {}
    places = os.environ.get("PATH", "").split(":") + glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))
    for place in places:
        for path in glob.glob(os.path.join(place, "python[23].[0-9]")) + glob.glob(os.path.join(place, "python3.1[0-9]")):
            asked = subprocess.run([path, "-c", "import sys; print(sys.version.split()[0])"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
            if asked.returncode == 0:
                found.setdefault(asked.stdout.strip(), path)
    return found


def has_torch(python):
    asked = subprocess.run([python, "-c", "import torch.utils.data, numpy"], stderr=subprocess.DEVNULL)
    return asked.returncode == 0


def write_files(folder, files):
    """Writes files by name; makes their folders."""
    for name, text in files.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

"""Ranges around what training loops in Python have in common, without changing the program.

A finder waits for modules of torch and millrace. When one has been imported, it is wrapped:
"DataLoader" is a DataLoader's iterator at work on the next batch, "DataLoader start" the making of
the iterator and its workers, "backward" a backward pass, "optimizer step" an optimizer's step. The
ranges go to the recorder in this process by its own exported functions (recorder/nvtx/direct.c).

What fails here leaves the program as it is, without ranges.
"""
import functools
import os
import sys

DOMAIN = b"python"


class _Recorder:
    """The recorder's functions: push(range) -> number, pop(number)."""

    def __init__(self):
        import ctypes

        # PyDLL keeps the GIL: the calls are shorter than its release.
        library = ctypes.PyDLL(os.environ["MILLRACE_RECORD_MODULE"])
        self.push, self.pop = library.mr_record_push, library.mr_record_pop
        self._range, self._handle = library.mr_record_range, ctypes.c_void_p
        self._range.argtypes, self._range.restype = [ctypes.c_char_p] * 2, ctypes.c_void_p
        self.push.argtypes, self.push.restype = [ctypes.c_void_p], ctypes.c_uint64
        self.pop.argtypes, self.pop.restype = [ctypes.c_uint64], None

    def range(self, name, domain=None):
        """What push() takes for this name; None: no ranges are recorded in this process."""
        handle = self._range(domain, name.encode())
        return self._handle(handle) if handle else None


@functools.lru_cache(maxsize=None)
def recorder():
    """This process's; raises without one."""
    return _Recorder()


def _never():
    return False


_compiling = _never  # torch.compiler.is_compiling, once there is one


def ranged(function, name):
    """The function inside a range of this name; itself if none are recorded."""
    record = recorder()
    range_ = record.range(name, DOMAIN)
    if range_ is None:
        return function
    push, pop = record.push, record.pop

    @functools.wraps(function)
    def in_range(*args, **kwargs):
        if _compiling():  # torch.compile traces the function as if it were not wrapped
            return function(*args, **kwargs)
        number = push(range_)
        try:
            return function(*args, **kwargs)
        finally:
            pop(number)

    return in_range


def _patch_torch(module):
    global _compiling
    compiler = getattr(module, "compiler", None)
    _compiling = getattr(compiler, "is_compiling", _never)


def _patch_dynamo(module):
    """torch.compile looks through a wrapper in what it compiles, but does not begin at one."""
    wrapper = sys.modules["torch.autograd"].backward
    if hasattr(wrapper, "__wrapped__"):
        module.skip_code(wrapper.__code__)  # all wrappers have the same


def _patch_autograd(module):
    module.backward = ranged(module.backward, "backward")  # Tensor.backward calls it, too


def _patch_optimizer(module):
    """Every class of optimizers passes its step through this hook, those of programs as well."""
    hook = module.Optimizer.profile_hook_step

    def profile_hook_step(step):
        return ranged(hook(step), "optimizer step")

    module.Optimizer.profile_hook_step = staticmethod(functools.wraps(hook)(profile_hook_step))


def _patch_dataloader(module):
    iterator, loader = module._BaseDataLoaderIter, module.DataLoader
    iterator.__next__ = ranged(iterator.__next__, "DataLoader")
    loader.__iter__ = ranged(loader.__iter__, "DataLoader start")


def _patch_millrace_iterator(module):
    iterator = module.LoaderIterator
    iterator.__next__ = ranged(iterator.__next__, "DataLoader")


def _patch_millrace_loader(module):
    loader = module.DataLoader
    loader.__iter__ = ranged(loader.__iter__, "DataLoader start")


_patches = {
    "millrace._iterator": _patch_millrace_iterator,
    "millrace.loader": _patch_millrace_loader,
    "torch": _patch_torch,
    "torch._dynamo.eval_frame": _patch_dynamo,
    "torch.autograd": _patch_autograd,
    "torch.optim.optimizer": _patch_optimizer,
    "torch.utils.data.dataloader": _patch_dataloader,
}


def _patch(module):
    try:
        _patches.pop(module.__name__)(module)
    except Exception:
        pass
    if not _patches and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _Loader:
    """A module's own loader, and the patch behind it."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _patch(module)


class _Finder:
    """Asks the other finders, and takes part where a module is to be patched."""

    def find_spec(self, name, path=None, target=None):
        if name not in _patches:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


_finder = _Finder()


def begin():
    """Patches what is imported already, and the rest when it is."""
    for name in list(_patches):
        if name in sys.modules:
            _patch(sys.modules[name])
    if _patches and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)

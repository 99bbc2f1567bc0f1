"""Samples the Python stacks of all threads of this process, waiting ones as well.

A thread of its own wakes MILLRACE_RECORD_STACKS_HZ times a second, takes the GIL for some ten
microseconds and walks sys._current_frames(). What a thread does is counted for the time since the
sample before, so that a line that keeps the GIL gets what it took. A stack that stays the same is
one record, of at most _LONGEST_NS.

A thread that runs Python gives up the GIL when another has waited for it for the switch interval,
or earlier, when it waits itself. With Python's 5 ms a line that runs for less than that would
hardly be seen, and the wait after it get its time; so the interval is made shorter.

No signals are sent, so no call of the program is interrupted. A forked child starts its own
sampler. What fails here leaves the program as it is, without stacks.
"""
import _thread
import atexit
import os
import sys
import time

_LONGEST_NS = 250_000_000  # of a record: a killed process loses at most this much more
_SWITCH_S = 0.0005  # a tenth of the default; shorter costs programs whose threads compete for the GIL
_DEEPEST = 256  # frames of a stack; it loses its outermost ones
_REMEMBERED = 20_000  # whole stacks that are found at once, and places in code
_SEVERAL = b"the program has several Python interpreters"
_sleep, _now, _start = time.sleep, time.monotonic_ns, _thread.start_new_thread
_cpu_clock, _clock = time.pthread_getcpuclockid, time.clock_gettime_ns


class _Recorder:
    """The recorder's functions, and CPython's that count interpreters."""

    def __init__(self):
        import ctypes

        # PyDLL keeps the GIL: the calls are shorter than its release.
        library = ctypes.PyDLL(os.environ["MILLRACE_RECORD_MODULE"])
        u32, u64, text = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
        self.begin, self.wanted = library.mr_record_sampler, library.mr_record_samples_wanted
        self.stack, self.sample = library.mr_record_stack, library.mr_record_sample
        self.none = library.mr_record_no_stacks
        self.begin.argtypes = self.wanted.argtypes = []
        self.stack.argtypes, self.stack.restype = [u32, text, text, u32], u32
        self.sample.argtypes, self.sample.restype = [u32, u32, u64, u64, u64, u32], None
        self.none.argtypes, self.none.restype = [text], None
        self._first = ctypes.pythonapi.PyInterpreterState_Head
        self._next = ctypes.pythonapi.PyInterpreterState_Next
        self._first.argtypes, self._first.restype = [], ctypes.c_void_p
        self._next.argtypes, self._next.restype = [ctypes.c_void_p], ctypes.c_void_p

    def alone(self):
        """Whether the process has one interpreter: frames of others may run while we look."""
        return self._next(self._first()) is None


class _Span:
    """A thread, and since when it is in its present stack."""

    __slots__ = ("tid", "clock", "stack", "start", "end", "n", "cpu", "last_cpu")

    def __init__(self, tid, clock, now):
        self.tid, self.clock, self.stack = tid, clock, 0
        self.start = self.end = now
        self.n = self.cpu = self.last_cpu = 0


class _Sampler:
    def __init__(self, recorder, hz):
        self._recorder, self._period = recorder, 1 / hz
        self._places = {}  # (id of a code, offset) -> what mr_record_stack() takes, and the code
        self._stacks = {}  # (parent, function, file, line) -> stack
        self._known = {}  # all places of a stack -> stack
        self._spans = {}  # identity of a thread -> _Span
        self._lock = _thread.allocate_lock()  # held while it samples
        self._over = False

    def run(self):
        """The thread."""
        own = _thread.get_ident()
        try:
            if not self._recorder.begin():
                return
            while not self._over:
                _sleep(self._period)
                with self._lock:
                    if self._over:
                        return
                    if self._recorder.wanted():
                        if not self._recorder.alone():
                            self._recorder.none(_SEVERAL)
                            self._over = True
                            return
                        self._look(own)
                    elif self._spans:
                        self._end_all()
        except Exception as error:  # the program comes first
            self._over = True
            self._recorder.none(f"sampling ended early: {error!r}".encode("utf-8", "replace"))

    def finish(self):
        """Writes what is open; at the end of the interpreter."""
        if self._lock.acquire(timeout=1):  # and is not released: the thread stops there
            self._over = True
            self._end_all()

    def _look(self, own):
        now, spans = _now(), self._spans
        frames = sys._current_frames()
        frames.pop(own, None)
        for ident in [ident for ident in spans if ident not in frames]:
            self._end(spans.pop(ident))
        while frames:
            ident, frame = frames.popitem()
            self._saw(ident, self._stack_of(frame), now)
            frame = None  # kept no longer than needed: it holds the program's objects

    def _saw(self, ident, stack, now):
        span, clock = self._spans.get(ident), _cpu_clock(ident)
        cpu = _clock(clock)
        if span is None or span.clock != clock:
            if span is not None:
                self._end(span)
            # of its time before the first sample nothing is known
            span = self._spans[ident] = _Span(~(clock >> 3), clock, now)
            span.stack, span.last_cpu = stack, cpu
            return
        if span.stack != stack or now - span.start > _LONGEST_NS:
            self._end(span)
            span.stack, span.start, span.n, span.cpu = stack, span.end, 0, 0
        span.n += 1
        span.cpu += cpu - span.last_cpu
        span.end, span.last_cpu = now, cpu

    def _end(self, span):
        if span.n > 0 and span.stack:
            self._recorder.sample(span.tid, span.stack, span.start, span.end, span.cpu, span.n)

    def _end_all(self):
        for span in self._spans.values():
            self._end(span)
        self._spans.clear()

    def _stack_of(self, frame):
        """The number of the stack whose innermost frame this is."""
        places, key, codes = self._places, [], []
        while frame is not None and len(key) < _DEEPEST:
            code = frame.f_code
            place = (id(code), frame.f_lasti)
            if place not in places:
                places[place] = self._place(code, frame.f_lineno)
            key.append(place)
            frame = frame.f_back
        key = tuple(key)
        stack = self._known.get(key)
        if stack is None:
            stack = self._add(key)
        return stack

    @staticmethod
    def _place(code, line):
        """The code is kept, so that no other gets its id."""
        name = getattr(code, "co_qualname", code.co_name)
        return (name.encode("utf-8", "replace"), os.fsencode(code.co_filename), line or 0, code)

    def _add(self, key):
        stack = 0
        for place in reversed(key):
            function, file, line, _ = self._places[place]
            at = (stack, function, file, line)
            stack = self._stacks.get(at)
            if stack is None:
                stack = self._stacks[at] = self._recorder.stack(*at)
        if max(len(self._known), len(self._places)) >= _REMEMBERED:
            self._known.clear()  # with the places: its keys hold ids of their codes
            self._places.clear()
        else:
            self._known[key] = stack
        return stack


_sampler = None


def _begin_here(recorder, hz):
    """A sampler of this process, which gets no signals."""
    global _sampler
    import _signal

    _sampler = _Sampler(recorder, hz)
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    try:
        _start(_sampler.run, ())
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


def _begin_in_child(recorder, hz):
    try:
        _begin_here(recorder, hz)
    except Exception:
        pass


def _finish():
    if _sampler is not None:
        _sampler.finish()


def begin(hz):
    """Samples this process, and those that it forks off."""
    recorder = _Recorder()
    if not recorder.alone():
        recorder.none(_SEVERAL)
        return
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        recorder.none(b"this Python runs without the GIL")
        return
    if sys.getswitchinterval() > _SWITCH_S:
        sys.setswitchinterval(_SWITCH_S)
    _begin_here(recorder, hz)
    os.register_at_fork(after_in_child=lambda: _begin_in_child(recorder, hz))
    atexit.register(_finish)

"""Power cuts, simulated: replays what power_log.c logged up to any point, and drops, tears and reorders what was not synced.

What a cut may leave, which is more than any one file system would:
- Names: an operation on a name is there for certain once its folder was synced. Of the others either the first ones are there (as
  a journal keeps them) or any choice of them (as nothing keeps them). A rename is there or not; it is never half there.
- Contents: what was synced is there. Of later writes each block of 512 or 4096 bytes is there or not, in any order, and where a
  file grew, a block that is not there reads as zeros. A file's size is any that it had, or between them.
"""
import os
import shutil
import subprocess

FOLDER = object()


class Op:
    """One line of the log: names = {path: file or None}, of folder; or a sync; or contents."""

    def __init__(self, kind, names=None, folder=None, file=None, data=None):
        self.kind, self.names, self.folder, self.file, self.data = kind, names, folder, file, data


class File:
    """An inode, by the names it had and what it held: [(number of the operation, synced, bytes)]."""

    def __init__(self):
        self.held = []


def record(command, log, root, shim, **more):
    """Runs a command, which must succeed; returns its Log."""
    os.makedirs(log)
    environment = dict(os.environ, LD_PRELOAD=shim, POWER_LOG=log, POWER_ROOT=root, **more.pop("environment", {}))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600,
                          **more)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return Log(log, root)


class Log:
    def __init__(self, folder, root):
        self.folder, self.root, self.ops = folder, root, []
        self.live, self.files = {root: FOLDER}, {}
        with open(os.path.join(folder, "ops"), encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                getattr(self, "on_" + line.split("\t")[0])(*line.rstrip("\n").split("\t")[1:])
        assert self.ops, f"{folder}: nothing was logged"

    def add_names(self, names):
        (folder,) = {os.path.dirname(path) for path in names}  # nothing of ours moves files between folders
        self.live.update(names)
        self.ops.append(Op("names", names=names, folder=folder))

    def on_create(self, path, inode):
        if path not in self.live or self.live[path] is None or self.files.get(inode) is not self.live[path]:
            self.files[inode] = File()
            self.add_names({path: self.files[inode]})

    def on_mkdir(self, path):
        self.add_names({path: FOLDER})

    def on_rename(self, a, b):
        self.add_names({a: None, b: self.live[a]})

    def on_exchange(self, a, b):
        self.add_names({a: self.live[b], b: self.live[a]})

    def on_link(self, a, b):
        self.add_names({b: self.live[a]})

    def on_unlink(self, path):
        self.add_names({path: None})

    def on_syncdir(self, path):
        self.ops.append(Op("syncdir", folder=path))

    def keep(self, inode, number, synced):
        with open(os.path.join(self.folder, number), "rb") as f:
            data = f.read()
        file = self.files.get(inode)
        if file is not None:  # else one that was there before
            file.held.append((len(self.ops), synced, data))
            self.ops.append(Op("sync" if synced else "data", file=file, data=data))

    def on_data(self, inode, number):
        self.keep(inode, number, False)

    def on_sync(self, inode, number):
        self.keep(inode, number, True)

    def whole(self, path):
        """All that a path ever named, whole: the versions that a reader may find."""
        versions = []
        for i, op in enumerate(self.ops):
            if op.kind == "names" and op.names.get(path) not in (None, FOLDER):
                before = [data for at, _, data in op.names[path].held if at <= i]
                versions.append(before[-1] if before else b"")
        return versions

    def names_at(self, cut, chance):
        """The names that a cut after `cut` operations leaves."""
        names, last = {self.root: FOLDER}, {}
        for i, op in enumerate(self.ops[:cut]):
            if op.kind == "syncdir":
                last[op.folder] = i
        journal, kept = chance.random() < 0.5, chance.choice([0.2, 0.5, 0.8, 0.95])
        upto = chance.randint(max(last.values(), default=0), cut)
        for i, op in enumerate(self.ops[:cut]):
            if op.kind == "names" and (i < last.get(op.folder, -1) or (i < upto if journal else chance.random() < kept)):
                names.update(op.names)
        return {path: file for path, file in names.items() if file is not None}

    @staticmethod
    def bytes_at(file, cut, chance):
        """What a file holds after a cut."""
        before = [h for h in file.held if h[0] < cut]
        synced = max((i for i, h in enumerate(before) if h[1]), default=-1)
        base = before[synced][2] if synced >= 0 else b""
        later = [h[2] for h in before[synced + 1:]]
        after = [h[2] for h in file.held if h[0] >= cut][:1]
        if after and after[0] != base and (not before or chance.random() < 0.5):
            later += after  # it was being written when the power went
        if not later:
            return base
        sizes = sorted({len(base), *map(len, later)})
        size = chance.choice(sizes) if chance.random() < 0.7 else chance.randint(sizes[0], sizes[-1])
        block, kept, out = chance.choice([512, 4096]), chance.choice([0.0, 0.5, 0.9, 1.0]), bytearray()
        for at in range(0, size, block):
            source = chance.choice(later) if chance.random() < kept else base
            out += source[at:at + block].ljust(block, b"\0")
        return bytes(out[:size])

    def cut(self, cut, chance, to):
        """Makes the folder `to` as a cut after `cut` operations leaves the root."""
        shutil.rmtree(to, ignore_errors=True)
        os.makedirs(to)
        names = self.names_at(cut, chance)
        for path in sorted(names):
            place = os.path.join(to, os.path.relpath(path, self.root))
            if path == self.root or not os.path.isdir(os.path.dirname(place)):
                continue
            if names[path] is FOLDER:
                os.mkdir(place)
                continue
            with open(place, "wb") as f:
                f.write(self.bytes_at(names[path], cut, chance))

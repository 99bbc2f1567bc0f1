"""The long run of `soak.py python`: a loader with two worker processes, which others may kill. Prints a line for each epoch.
usage: soak_workers.py SECONDS"""
import sys
import time

import millrace
import numpy


class Squares:
    begun = False

    def __len__(self):
        return 4000

    def __getitem__(self, i):
        if not self.begun:  # soak.py kills those that have
            self.begun = True
            with open("/proc/self/comm", "w", encoding="ascii") as file:
                file.write("has-begun")
        return numpy.full(256, i * i % 251, dtype="u1"), i


def main():
    end = time.monotonic() + float(sys.argv[1])
    loader = millrace.DataLoader(Squares(), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    epochs = 0
    while time.monotonic() < end:
        seen = []
        for x, index in loader:
            values, indices = numpy.asarray(x), numpy.asarray(index)
            assert (values == (indices * indices % 251)[:, None]).all()
            seen += indices.tolist()
        assert sorted(seen) == list(range(4000)), len(seen)
        epochs += 1
        print("epoch", epochs, flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Training steps of nets (forward, loss, backward, optimizer) with the batch in the device's memory: millrace beside PyTorch, one
by one and as a CUDA graph, in one run, as one markdown table. Of PyTorch's two memory formats the faster counts, and is named.

usage: nn_step.py [--device cuda|cpu] [--seconds 0.5] [--program nn_step] [--models "mnist-cnn softmax"]
The peer is left out, with a line that says so, where this Python has no PyTorch.
"""
import argparse
import json
import subprocess
import sys

from peer import find, timed

MODELS = "mnist-cnn mlp:300s,100r,50s softmax resnet20".split()


def block(nn, c_in, c_out, stride):
    body = nn.Sequential(nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(),
                         nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out))
    same = nn.Identity() if stride == 1 and c_in == c_out else nn.Sequential(
        nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.same = body, same

        def forward(self, x):
            return (self.body(x) + self.same(x)).relu()

    return Block()


def net_of(nn, model):
    if model == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    if model.startswith("mlp:"):
        layers, width = [nn.Flatten()], 784
        acts = {"s": nn.Sigmoid, "r": nn.ReLU, "t": nn.Tanh, "g": nn.GELU}
        for hidden in model[4:].split(","):
            if hidden[-1] not in acts:
                return None
            layers += [nn.Linear(width, int(hidden[:-1])), acts[hidden[-1]]()]
            width = int(hidden[:-1])
        return nn.Sequential(*layers, nn.Linear(width, 10))
    if model == "mnist-cnn":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
                             nn.Linear(128, 10))
    if model == "resnet20":
        layers, c_in = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
        for stage, c_out in enumerate((16, 32, 64)):
            for i in range(3):
                layers.append(block(nn, c_in, c_out, 2 if stage and not i else 1))
                c_in = c_out
        return nn.Sequential(*layers, nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, 10))
    return None


class Peer:
    """One net of PyTorch's; float16 with its GradScaler, which no graph of ours takes: one by one alone."""

    def __init__(self, torch, device, model, kind, n, layout):
        self.torch, self.device, self.kind = torch, device, kind
        cuda = device.startswith("cuda")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind != "f32"
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        layout = getattr(torch, layout)
        self.net = net_of(torch.nn, model).to(device, memory_format=layout)
        shape = (3, 32, 32) if model == "resnet20" else (1, 28, 28)
        self.x = torch.rand(n, *shape, device=device).contiguous(memory_format=layout)
        self.y = torch.arange(n, device=device) % 10
        options = dict(lr=1.0)
        if cuda:
            options["capturable"] = True
        self.optimizer = torch.optim.Adadelta(self.net.parameters(), **options)
        self.scaler = torch.amp.GradScaler(device) if kind == "f16" else None

    def step(self):
        torch = self.torch
        kinds = {"bf16": torch.bfloat16, "f16": torch.float16}
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.split(":")[0], dtype=kinds.get(self.kind, torch.bfloat16), enabled=self.kind in kinds,
                            cache_enabled=False):
            loss = torch.nn.functional.cross_entropy(self.net(self.x), self.y)
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()

    def graph(self):
        """A step as a graph; None where this PyTorch cannot."""
        torch = self.torch
        if self.scaler or not self.device.startswith("cuda"):
            return None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def best(torch, peers, args, key, how):
    """Milliseconds and memory format of the faster one; None where PyTorch cannot. peers: nets of this key, kept for both ways."""
    model, batch, kind = key
    if key not in peers:
        peers.clear()
        vectors = model == "softmax" or model.startswith("mlp:")
        layouts = ["contiguous_format"] if vectors else ["contiguous_format", "channels_last"]
        peers[key] = {layout: Peer(torch, args.device, model, kind, batch, layout) for layout in layouts}
    steps = [(peer.step if how == "steps" else peer.graph(), layout) for layout, peer in peers[key].items()]
    return min(((timed(torch, step, args.device, args.seconds, 20), layout) for step, layout in steps if step), default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--program")
    parser.add_argument("--models", default=None, help="separated by spaces")
    args = parser.parse_args()
    models = args.models.split() if args.models else MODELS
    command = [find("nn_step", args.program), args.device, str(args.seconds), "adadelta:lr=1", *models]
    ours = [json.loads(line) for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]
    for line in ours:
        if line["not_finite"] > 0:
            sys.exit(f"nn_step: {line['model']}, {line['type']}: {line['not_finite']} losses are not finite: no step to time")
    try:
        import torch

        if args.device.startswith("cuda") and not torch.cuda.is_available():
            raise ImportError("this PyTorch has no CUDA")
        name = "PyTorch " + torch.__version__.split("+")[0]
    except ImportError as error:
        torch, name = None, "no peer"
        print(f"nn_step: the peer is left out: {error}", file=sys.stderr)
    print(f"| net | batch | type | how | millrace ms | {name} ms | memory format | millrace / it |")
    print("| --- | ---: | --- | --- | ---: | ---: | --- | ---: |")
    peers = {}
    for line in ours:
        key, theirs = (line["model"], line["batch"], line["type"]), None
        if torch and net_of(torch.nn, line["model"]) is not None:
            try:
                theirs = best(torch, peers, args, key, line["how"])
            except RuntimeError as error:
                print(f"nn_step: PyTorch, {key}, {line['how']}: {str(error).splitlines()[0]}", file=sys.stderr)
        ratio = f"{theirs[0] / line['ms']:.2f} x" if theirs else ""
        print(f"| {line['model']} | {line['batch']} | {line['type']} | {line['how']} | {line['ms']:.3f} | "
              + (f"{theirs[0]:.3f} | {theirs[1]}" if theirs else " | ") + f" | {ratio} |", flush=True)


if __name__ == "__main__":
    main()

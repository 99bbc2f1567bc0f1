#!/usr/bin/env python3
"""Writes optim_vectors.h: what PyTorch's optimizers and schedules give, for tests/unit/test_optim.c and test_schedule.c.
Lion, which PyTorch does not have, is its paper's formula in numpy, in the same precision. usage: make_optim_vectors.py > optim_vectors.h"""
import math
import warnings

import numpy as np
import torch
from torch import optim
from torch.optim import lr_scheduler as sched

warnings.filterwarnings("ignore")
N, STEPS, LOOKS = 6, 100, (10, 100)


def draw(i, t):
    """-1 .. 1, 20 bits: exact in every float. test_optim.c has the same."""
    x = (i * 7919 + t * 104729 + 12345) * 2654435761 & 0xFFFFFFFF
    x = ((x ^ x >> 15) * 2246822519) & 0xFFFFFFFF
    return (x >> 12) / 2**19 - 1


def gradient(t):
    return [(draw(i, t) + 0.25) * 2.0 ** (i % 5 - 2) for i in range(N)]


def start():
    return [draw(i, 1000) * 2 + (0.5 if draw(i, 1000) > 0 else -0.5) for i in range(N)]


class Lion(optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                w, g = p.data.numpy(), p.grad.numpy()
                g = -g if group["maximize"] else g
                m = self.state[p].setdefault("m", np.zeros_like(w))
                lr, real = group["lr"], w.dtype.type
                b1, b2 = group["betas"]
                c = real(b1) * m + real(1 - b1) * g
                w *= real(1 - lr * group["weight_decay"])  # as the authors' own code orders it
                w -= real(lr) * np.sign(c)
                m[:] = real(b2) * m + real(1 - b2) * g


O = optim
CASES = [
    ("sgd:lr=0.05", O.SGD, dict(lr=0.05)),
    ("sgd:lr=0.05,weight_decay=0.1", O.SGD, dict(lr=0.05, weight_decay=0.1)),
    ("sgd:lr=0.05,maximize,weight_decay=0.1", O.SGD, dict(lr=0.05, weight_decay=0.1, maximize=True)),
    ("sgd:lr=0.02,momentum=0.9", O.SGD, dict(lr=0.02, momentum=0.9)),
    ("sgd:lr=0.02,momentum=0.8,nesterov,weight_decay=0.01", O.SGD, dict(lr=0.02, momentum=0.8, nesterov=True, weight_decay=0.01)),
    ("momentum", O.SGD, dict(lr=1e-3, momentum=0.9)),
    ("momentum:lr=0.02,momentum=0.7,dampening=0.3,weight_decay=0.02", O.SGD,
     dict(lr=0.02, momentum=0.7, dampening=0.3, weight_decay=0.02)),
    ("momentum:lr=0.02,maximize", O.SGD, dict(lr=0.02, momentum=0.9, maximize=True)),
    ("nesterov", O.SGD, dict(lr=1e-3, momentum=0.9, nesterov=True)),
    ("nesterov:lr=0.01,momentum=0.95,weight_decay=0.05,maximize", O.SGD,
     dict(lr=0.01, momentum=0.95, nesterov=True, weight_decay=0.05, maximize=True)),
    ("adagrad", O.Adagrad, {}),
    ("adagrad:lr=0.1,lr_decay=0.01,weight_decay=0.02,initial_accumulator_value=0.3,eps=1e-6", O.Adagrad,
     dict(lr=0.1, lr_decay=0.01, weight_decay=0.02, initial_accumulator_value=0.3, eps=1e-6)),
    ("adagrad:maximize", O.Adagrad, dict(maximize=True)),
    ("adadelta", O.Adadelta, {}),
    ("adadelta:lr=0.5,rho=0.95,eps=1e-4,weight_decay=0.03", O.Adadelta, dict(lr=0.5, rho=0.95, eps=1e-4, weight_decay=0.03)),
    ("adadelta:maximize", O.Adadelta, dict(maximize=True)),
    ("rmsprop", O.RMSprop, {}),
    ("rmsprop:lr=0.02,alpha=0.9,eps=1e-6,weight_decay=0.01", O.RMSprop, dict(lr=0.02, alpha=0.9, eps=1e-6, weight_decay=0.01)),
    ("rmsprop:momentum=0.9", O.RMSprop, dict(momentum=0.9)),
    ("rmsprop:centered", O.RMSprop, dict(centered=True)),
    ("rmsprop:lr=0.005,centered,momentum=0.8,weight_decay=0.1,maximize", O.RMSprop,
     dict(lr=0.005, centered=True, momentum=0.8, weight_decay=0.1, maximize=True)),
    ("adam", O.Adam, {}),
    ("adam:lr=0.02,betas=0.8/0.99,eps=1e-5,weight_decay=0.05", O.Adam, dict(lr=0.02, betas=(0.8, 0.99), eps=1e-5, weight_decay=0.05)),
    ("adam:lr=0.02,betas=0.4/0.9", O.Adam, dict(lr=0.02, betas=(0.4, 0.9))),
    ("adam:lr=0.02,amsgrad,betas=0.9/0.8", O.Adam, dict(lr=0.02, amsgrad=True, betas=(0.9, 0.8))),
    ("adam:lr=0.02,maximize,weight_decay=0.05", O.Adam, dict(lr=0.02, maximize=True, weight_decay=0.05)),
    ("adam:lr=0.02,weight_decay=0.05,decoupled", O.AdamW, dict(lr=0.02, weight_decay=0.05)),
    ("adamw", O.AdamW, {}),
    ("adamw:lr=0.02,betas=0.85/0.9,weight_decay=0.1,amsgrad", O.AdamW, dict(lr=0.02, betas=(0.85, 0.9), weight_decay=0.1, amsgrad=True)),
    ("adamw:lr=0.02,maximize", O.AdamW, dict(lr=0.02, maximize=True)),
    ("amsgrad:lr=0.01,betas=0.9/0.8", O.Adam, dict(lr=0.01, betas=(0.9, 0.8), amsgrad=True)),
    ("amsgrad:lr=0.01,weight_decay=0.1,maximize,eps=1e-4", O.Adam,
     dict(lr=0.01, weight_decay=0.1, maximize=True, eps=1e-4, amsgrad=True)),
    ("adamax", O.Adamax, {}),
    ("adamax:lr=0.02,betas=0.8/0.95,eps=1e-4,weight_decay=0.05", O.Adamax, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.05)),
    ("adamax:maximize", O.Adamax, dict(maximize=True)),
    ("nadam", O.NAdam, {}),
    ("nadam:lr=0.02,betas=0.8/0.95,eps=1e-5,weight_decay=0.05,momentum_decay=0.02", O.NAdam,
     dict(lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.05, momentum_decay=0.02)),
    ("nadam:lr=0.02,weight_decay=0.05,decoupled,maximize", O.NAdam,
     dict(lr=0.02, weight_decay=0.05, decoupled_weight_decay=True, maximize=True)),
    ("radam", O.RAdam, {}),
    ("radam:lr=0.02,betas=0.8/0.95,eps=1e-5,weight_decay=0.05", O.RAdam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.05)),
    ("radam:lr=0.02,weight_decay=0.05,decoupled,maximize", O.RAdam,
     dict(lr=0.02, weight_decay=0.05, decoupled_weight_decay=True, maximize=True)),
    ("lion", Lion, {}),
    ("lion:lr=0.01,betas=0.95/0.98,weight_decay=0.1", Lion, dict(lr=0.01, betas=(0.95, 0.98), weight_decay=0.1)),
    ("lion:lr=0.01,maximize", Lion, dict(lr=0.01, maximize=True)),
    ("sgd:lr=0.1,clip_norm=0.8", O.SGD, dict(lr=0.1, clip_norm=0.8)),
    ("sgd:lr=0.1,clip_norm=100", O.SGD, dict(lr=0.1, clip_norm=100.0)),
    ("adam:lr=0.02,clip_norm=0.5,clip_value=0.3", O.Adam, dict(lr=0.02, clip_norm=0.5, clip_value=0.3)),
    ("momentum:lr=0.02,clip_value=0.4", O.SGD, dict(lr=0.02, momentum=0.9, clip_value=0.4)),
    ("adamw:lr=0.01,accumulate=4", O.AdamW, dict(lr=0.01, accumulate=4)),
]


def run(make, options, dtype):
    options = dict(options)
    norm, value, every = options.pop("clip_norm", 0), options.pop("clip_value", 0), options.pop("accumulate", 1)
    torch.set_default_dtype(dtype)  # NAdam keeps its product in it
    p = torch.tensor(start(), dtype=dtype)
    # foreach=False: the plain formulas
    opt = make([p], **options) if make is Lion else make([p], foreach=False, **options)
    total, looks = 0, []
    for t in range(1, STEPS + 1):
        total = total + torch.tensor(gradient(t), dtype=dtype) / every
        if t % every == 0:
            p.grad, total = total.clone(), 0
            if norm:
                torch.nn.utils.clip_grad_norm_([p], norm, foreach=False)
            if value:
                torch.nn.utils.clip_grad_value_([p], value, foreach=False)
            opt.step()
        if t in LOOKS:
            looks.append(p.tolist())
    return looks


def rates(make, steps, base=0.1, each=None):
    p = torch.zeros(1, requires_grad=True)
    opt = optim.SGD([p], lr=base)
    s = make(opt)
    out = []
    for t in range(steps):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        if each is None:
            s.step()
        else:
            s.step(each(t))
    return out


def metric(t):
    """Falls, then stays, with some noise: 10 bits."""
    return max(1 - t / 16, 0.25) + (t * 37 % 16) / 1024


S = sched
SCHEDULES = [
    ("constant", lambda o: S.ConstantLR(o, factor=1, total_iters=1)),
    ("step:0.7", lambda o: S.StepLR(o, 1, 0.7)),
    ("step:0.5/7", lambda o: S.StepLR(o, 7, 0.5)),
    ("multistep:0.3/5:11:30", lambda o: S.MultiStepLR(o, [5, 11, 30], 0.3)),
    ("exponential:0.93", lambda o: S.ExponentialLR(o, 0.93)),
    ("linear:0.2/25", lambda o: S.LinearLR(o, 1.0, 0.2, 25)),
    ("cosine:49", lambda o: S.CosineAnnealingLR(o, 49)),
    ("cosine:49/min=0.01", lambda o: S.CosineAnnealingLR(o, 49, 0.01)),
    ("cosine:7/restarts", lambda o: S.CosineAnnealingWarmRestarts(o, 7)),
    ("cosine:4/restarts/mult=2/min=0.003", lambda o: S.CosineAnnealingWarmRestarts(o, 4, 2, 0.003)),
    ("onecycle:50", lambda o: S.OneCycleLR(o, 0.1, total_steps=50, cycle_momentum=False)),
    ("onecycle:50/pct=0.4/div=10/final_div=100/linear",
     lambda o: S.OneCycleLR(o, 0.1, total_steps=50, pct_start=0.4, div_factor=10, final_div_factor=100, anneal_strategy="linear", cycle_momentum=False)),
    ("onecycle:50/three_phase", lambda o: S.OneCycleLR(o, 0.1, total_steps=50, three_phase=True, cycle_momentum=False)),
    ("warmup:10/start=0.1/per=epoch,cosine:39",
     lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 10), S.CosineAnnealingLR(o, 39)], [10])),
    ("warmup:8/start=0.25,step:0.5/5/per=iteration",
     lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.25, 1.0, 8), S.StepLR(o, 5, 0.5)], [8])),
]
PLATEAUS = [
    ("plateau:0.5/patience=2", lambda o: S.ReduceLROnPlateau(o, factor=0.5, patience=2)),
    ("plateau:0.2/patience=1/cooldown=3/min=0.002/threshold=0.01/absolute",
     lambda o: S.ReduceLROnPlateau(o, factor=0.2, patience=1, cooldown=3, min_lr=0.002, threshold=0.01, threshold_mode="abs")),
    ("plateau:patience=3/max", lambda o: S.ReduceLROnPlateau(o, patience=3, mode="max")),
]


def hexes(values):
    return ", ".join(float(v).hex().replace("0000000000p", "p") for v in values)


print("/* Made by make_optim_vectors.py with PyTorch %s. */" % torch.__version__.split("+")[0])
print("#ifndef MR_TEST_OPTIM_VECTORS_H\n#define MR_TEST_OPTIM_VECTORS_H\n")
print("enum { VECTOR_N = %d, VECTOR_STEPS = %d, VECTOR_LOOKS = %d, VECTOR_RATES = 50 };" % (N, STEPS, len(LOOKS)))
print("static const int vector_look[VECTOR_LOOKS] = {%s};" % ", ".join(map(str, LOOKS)))
print("/* clang-format off */")
print("static const struct {\n    const char *spec;\n    double f64[VECTOR_LOOKS][VECTOR_N];\n    float f32[VECTOR_LOOKS][VECTOR_N];\n} optim_vectors[] = {")
for spec, make, options in CASES:
    wide, narrow = (run(make, options, d) for d in (torch.float64, torch.float32))
    print('    {"%s",' % spec)
    print("     {%s}," % ",\n      ".join("{%s}" % hexes(v) for v in wide))
    print("     {%s}}," % ",\n      ".join("{%s}" % ", ".join("%.9gf" % x if "." in "%.9g" % x or "e" in "%.9g" % x else "%.9g.0f" % x for x in v) for v in narrow))
print("};")
for name, table, each in (("schedule", SCHEDULES, None), ("plateau", PLATEAUS, metric)):
    print("static const struct {\n    const char *text;\n    double lr[VECTOR_RATES];\n} %s_vectors[] = {" % name)
    for text, make in table:
        values = ["%.12g" % v for v in rates(make, 50, each=each)]
        lines = [", ".join(values[i : i + 10]) for i in range(0, 50, 10)]
        print('    {"%s",\n     {%s}},' % (text, ",\n      ".join(lines)))
    print("};")
print("/* clang-format on */\n\n#endif")

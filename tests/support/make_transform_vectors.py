#!/usr/bin/env python3
"""Writes transform_vectors.h: inputs, and what PyTorch and torchvision make of them, for tests/unit/test_transform.c.

    python3 tests/support/make_transform_vectors.py > tests/support/transform_vectors.h

Each case has a chain for millrace and the same thing done by torch/torchvision. `ulps` is how far a float may be from
theirs: 0 but for normalize, where torch divides by std and we multiply by its reciprocal.
Casts of floats to integers are not compared: torch truncates and wraps, we round and saturate (checked in C).
"""
import numpy as np
import torch
import torchvision.transforms.functional as F

DTYPES = {
    torch.uint8: "MR_U8", torch.int8: "MR_I8", torch.int16: "MR_I16", torch.int32: "MR_I32", torch.int64: "MR_I64",
    torch.float16: "MR_F16", torch.bfloat16: "MR_BF16", torch.float32: "MR_F32", torch.float64: "MR_F64",
}
rng = np.random.default_rng(20240607)
arrays, cases, names = [], [], {}


def name_of(t):
    """The bytes as a C string of hex digits; equal tensors share one."""
    text = bytes(t.contiguous().reshape(-1).view(torch.uint8).numpy()).hex()
    if text not in names:
        names[text] = f"vector_{len(names)}"
        arrays.append(f'static const char {names[text]}[] = "{text}";')
    return names[text]


def case(chain, x, y, ulps=0):
    dims = ",".join(str(d) for d in x.shape)
    out_dims = ",".join(str(d) for d in y.shape)
    cases.append(f'    {{"{chain}", {DTYPES[x.dtype]}, {x.dim()}, {{{dims}}}, {DTYPES[y.dtype]}, {y.dim()}, '
                 f"{{{out_dims}}}, {name_of(x)}, {name_of(y)}, {ulps}}},")


def u8(*shape):
    return torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8))


def f32(*shape):
    return torch.from_numpy((rng.standard_normal(shape) * 10 ** rng.uniform(-3, 3, shape)).astype(np.float32))


def pointwise():
    x = u8(1, 17, 19)
    case("cast(f32),scale(1/255)", x, x.float() * torch.tensor(1 / 255, dtype=torch.float32))
    case("cast(f32),scale(1/255),normalize(0.1307,0.3081)", x,
         F.normalize(x.float() * torch.tensor(1 / 255, dtype=torch.float32), [0.1307], [0.3081]), 2)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    lists = "[0.485,0.456,0.406],[0.229,0.224,0.225]"
    x = f32(3, 11, 13)
    case(f"normalize({lists})", x, F.normalize(x, mean, std), 2)
    x = u8(9, 11, 3)
    y = x.float() * torch.tensor(1 / 255, dtype=torch.float32)
    case(f"cast(f32),scale(1/255),normalize({lists},axis=2)", x,
         F.normalize(y.permute(2, 0, 1), mean, std).permute(1, 2, 0).contiguous(), 2)
    x = f32(5, 7).double()
    case("scale(0.1),scale(3)", x, x * 0.1 * 3)
    x = f32(5, 7)
    case("scale(0.3,-2.5)", x, x * torch.tensor(0.3) + torch.tensor(-2.5))


def casts():
    wild = torch.cat([f32(64), f32(24) * 1e4, f32(24) * 1e-6,
                      torch.tensor([0.0, -0.0, 65504.0, 65519.9, 65520.0, 2 ** -24, 2 ** -25, 3 * 2 ** -26, 1 + 2 ** -11,
                                    1 + 3 * 2 ** -11, float("inf"), -float("inf"), 1 + 2 ** -8, 1 + 3 * 2 ** -8, 3.4e38])])
    for to, name in ((torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.float64, "f64")):
        case(f"cast({name})", wild, wild.to(to))
    for x in (wild.half(), wild.bfloat16(), wild.double() * 1.0000001):
        case("cast(f32)", x, x.float())
    ints = torch.from_numpy(rng.integers(-2 ** 62, 2 ** 62, 64)) >> torch.from_numpy(rng.integers(0, 60, 64))
    for x in (ints, ints.int(), ints.short(), ints.char(), ints.byte()):
        case("cast(f32)", x, x.float())
        case("cast(f64)", x, x.double())
    case("cast(f16)", ints.byte(), ints.byte().half())
    case("cast(bf16)", ints.short(), ints.short().bfloat16())


def geometry():
    for h, w, ch, cw in ((10, 12, 5, 6), (9, 9, 4, 2), (7, 11, 7, 4), (13, 10, 6, 3)):
        x = u8(3, h, w)
        case(f"crop({ch},{cw})", x, F.center_crop(x, [ch, cw]))
    x = f32(2, 6, 7)
    case("crop(3,4,2,1)", x, F.crop(x, 2, 1, 3, 4))
    case("pad(2)", x, F.pad(x, [2]))
    case("pad(1:2:3:4,0.5)", x, F.pad(x, [3, 1, 4, 2], fill=0.5))
    case("hflip(1)", x, F.hflip(x))
    x = u8(3, 6, 7)
    case("pad(1:0:2:0,7)", x, F.pad(x, [2, 1, 0, 0], fill=7))
    case("layout(nhwc)", x, x.permute(1, 2, 0).contiguous())
    case("hflip(1),pad(1),crop(5,5)", x, F.center_crop(F.pad(F.hflip(x), [1]), [5, 5]))
    x = u8(6, 7, 3)
    case("layout(nchw)", x, x.permute(2, 0, 1).contiguous())
    case("hflip(1)", x, x.flip(1).contiguous())
    case("crop(4,4)", x, F.center_crop(x.permute(2, 0, 1), [4, 4]).permute(1, 2, 0).contiguous())


pointwise()
casts()
geometry()
print("/* Made by make_transform_vectors.py from torch %s; do not edit. */" % torch.__version__.split("+")[0])
print("/* clang-format off */")
print("\n".join(arrays))
print("static const struct transform_vector transform_vectors[] = {")
print("\n".join(cases))
print("};")

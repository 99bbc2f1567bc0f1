/* Conversions between f32 and the 16-bit floats, bit by bit: the host and GPUs round alike. */
#ifndef MR_KERNELS_HALF_H
#define MR_KERNELS_HALF_H

#include "base/host_device.h"
#include <stdint.h>
#include <string.h>

MR_HOST_DEVICE uint32_t mr_bits_of_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

MR_HOST_DEVICE float mr_f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest even. Subnormals: adding 0.5 puts their bits, rounded, at the low end of the mantissa.
 * Else: the rounding carry may run into the exponent, up to infinity. */
MR_HOST_DEVICE uint16_t mr_f16_of_f32(float f)
{
    uint32_t all = mr_bits_of_f32(f), u = all & 0x7fffffff;
    uint32_t subnormal = mr_bits_of_f32(mr_f32_of_bits(u) + 0.5f) - 0x3f000000;
    uint32_t normal = (u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13;
    uint32_t special = u > 0x7f800000 ? 0x7e00 : 0x7c00;
    uint32_t r = u >= 0x47800000 ? special : u < 0x38800000 ? subnormal : normal;
    return (uint16_t)(r | (all >> 16 & 0x8000));
}

MR_HOST_DEVICE uint16_t mr_bf16_of_f32(float f)
{
    uint32_t u = mr_bits_of_f32(f);
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? (u >> 16 & 0x8000) | 0x7fc0 : rounded);
}

/* The exponent moves by a multiplication by 2^112, which also normalises subnormals. */
MR_HOST_DEVICE float mr_f32_of_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t scaled = mr_bits_of_f32(mr_f32_of_bits(magnitude) * mr_f32_of_bits(0x77800000));
    uint32_t special = magnitude | 0x7f800000;
    return mr_f32_of_bits((magnitude >= 0x0f800000 ? special : scaled) | (uint32_t)(h & 0x8000)
                                                                             << 16);
}

MR_HOST_DEVICE float mr_f32_of_bf16(uint16_t h)
{
    return mr_f32_of_bits((uint32_t)h << 16);
}

#endif

/*
 * Element types and shapes.
 *
 * A tensor here is dense and in C order (last dimension fastest) in the machine's byte order. A spec describes one field
 * of a sample (or of a batch, with the batch dimension in front). A dimension may vary from sample to sample: then its
 * bit in var_dims is set and dim[] holds the upper bound, which sizes buffers.
 */
#ifndef MILLRACE_TENSOR_H
#define MILLRACE_TENSOR_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_RANK   8 /* dimensions of one tensor */
#define MR_MAX_FIELDS 8 /* tensors of one sample */
#define MR_NAME_BYTES 24

/* name, element bytes, text. bool is one byte, 0 or 1; c64 and c128 are pairs of f32 and f64. */
#define MR_DTYPES(X)                                                                                                   \
    X(MR_BOOL, 1, "bool")                                                                                              \
    X(MR_U8, 1, "u8")                                                                                                  \
    X(MR_I8, 1, "i8")                                                                                                  \
    X(MR_U16, 2, "u16")                                                                                                \
    X(MR_I16, 2, "i16")                                                                                                \
    X(MR_U32, 4, "u32")                                                                                                \
    X(MR_I32, 4, "i32")                                                                                                \
    X(MR_U64, 8, "u64")                                                                                                \
    X(MR_I64, 8, "i64")                                                                                                \
    X(MR_F16, 2, "f16")                                                                                                \
    X(MR_BF16, 2, "bf16")                                                                                              \
    X(MR_F32, 4, "f32")                                                                                                \
    X(MR_F64, 8, "f64")                                                                                                \
    X(MR_C64, 8, "c64")                                                                                                \
    X(MR_C128, 16, "c128")

enum mr_dtype {
#define X(name, bytes, text) name,
    MR_DTYPES(X)
#undef X
        MR_N_DTYPES
};

/* One field of a sample. */
struct mr_spec {
    char name[MR_NAME_BYTES]; /* "image", "label", ...: unique within a sample, NUL-terminated */
    enum mr_dtype dtype;
    int32_t rank;      /* 0 (a scalar) .. MR_MAX_RANK */
    uint32_t var_dims; /* bit d: dim[d] varies from 0 to dim[d] */
    uint64_t dim[MR_MAX_RANK];
};

/* Element size in bytes, 0 for a value that is no dtype. */
MR_API size_t mr_dtype_size(enum mr_dtype dtype);

/* "u8", "f32", ...; "?" for a value that is no dtype. */
MR_API const char *mr_dtype_name(enum mr_dtype dtype);

/* Reads a name as mr_dtype_name() writes it, or numpy's and PyTorch's ("uint8", "float32", "half").
 * [out] out: written on success. Returns 0 or MR_EOPTION. */
MR_API int mr_dtype_parse(const char *text, enum mr_dtype *out);

/* Bytes of a tensor of this spec, variable dimensions at their bound.
 * [out] out: written on success. Returns 0, or MR_ELIMIT when the product overflows 2^62. */
MR_API int mr_spec_bytes(const struct mr_spec *spec, uint64_t *out);

/* Writes "image u8[28,28]" (variable dimensions as "<=28") into buf of cap bytes, cut to fit. Returns buf. */
MR_API const char *mr_spec_format(const struct mr_spec *spec, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif
#endif

/*
 * Element types, shapes and specs.
 *
 * A tensor is dense, in C order (the last dimension is contiguous) and in the machine's byte order.
 * struct mr_spec describes one field of a sample: its name, element type and shape. The spec of a
 * batch's field has the batch dimension in front.
 *
 * A dimension may vary from sample to sample. Bit d of var_dims then marks dimension d, and dim[d]
 * is its upper bound, which sizes buffers. A sequence of at most 512 token ids:
 *
 *     struct mr_spec spec = {.name = "ids", .dtype = MR_I32, .rank = 1, .var_dims = 1,
 *                            .dim = {512}};
 *
 * Threads: every function here may be called from any thread, also in a forked child; none blocks.
 */
#ifndef MILLRACE_TENSOR_H
#define MILLRACE_TENSOR_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_RANK   8  /* dimensions of a tensor */
#define MR_MAX_FIELDS 32 /* fields of a sample */
#define MR_NAME_BYTES 24 /* a field's name, with its NUL */

/* A length that is not known: see iterable.h. */
#define MR_UNKNOWN    UINT64_MAX

/* All element types: name, bytes, text. A bool is one byte, 0 or 1; c64 and c128 are complex
 * numbers, pairs of f32 and f64. */
#define MR_DTYPES(X)                                                                               \
    X(MR_BOOL, 1, "bool")                                                                          \
    X(MR_U8, 1, "u8")                                                                              \
    X(MR_I8, 1, "i8")                                                                              \
    X(MR_U16, 2, "u16")                                                                            \
    X(MR_I16, 2, "i16")                                                                            \
    X(MR_U32, 4, "u32")                                                                            \
    X(MR_I32, 4, "i32")                                                                            \
    X(MR_U64, 8, "u64")                                                                            \
    X(MR_I64, 8, "i64")                                                                            \
    X(MR_F16, 2, "f16")                                                                            \
    X(MR_BF16, 2, "bf16")                                                                          \
    X(MR_F32, 4, "f32")                                                                            \
    X(MR_F64, 8, "f64")                                                                            \
    X(MR_C64, 8, "c64")                                                                            \
    X(MR_C128, 16, "c128")

enum mr_dtype {
#define X(name, bytes, text) name,
    MR_DTYPES(X)
#undef X
        MR_N_DTYPES
};

/*
 * What a field's elements are. BYTES and STRING are texts: dtype u8, rank 1, var_dims 1, dim[0] the
 * most bytes that a sample may have. A string is UTF-8: its source promises that, and nothing
 * checks it. Any byte may occur, 0 too, and none is added at the end. A batch has texts end to end,
 * whatever its collation is: mr_batch_text() (loader.h) finds one.
 */
enum mr_kind { MR_KIND_TENSOR, MR_KIND_BYTES, MR_KIND_STRING };

/* One field of a sample. */
struct mr_spec {
    char name[MR_NAME_BYTES]; /* "image", "label": unique within a sample, NUL-terminated */
    enum mr_dtype dtype;
    int32_t rank;      /* dimensions: 0 (a scalar) to MR_MAX_RANK */
    uint32_t var_dims; /* bit d: dimension d varies between 0 and dim[d] */
    uint32_t kind;     /* enum mr_kind; 0: a tensor */
    uint64_t dim[MR_MAX_RANK];
    uint64_t reserved[3]; /* 0; the struct has 128 bytes for good */
};

/* The size of one element in bytes; 0 for a value that is no element type. */
MR_API size_t mr_dtype_size(enum mr_dtype dtype);

/* The name of an element type: "u8", "f32". "?" for a value that is no element type. Constant. */
MR_API const char *mr_dtype_name(enum mr_dtype dtype);

/*
 * Reads an element type from text.
 * text: a name that mr_dtype_name() gives, or numpy's or PyTorch's ("uint8", "float32", "half").
 * [out] out: on success. Returns 0 or MR_EOPTION.
 */
MR_API int mr_dtype_parse(const char *text, enum mr_dtype *out);

/*
 * Computes the size of a tensor in bytes, with variable dimensions at their bound.
 * [out] out: on success. Returns 0, or MR_ELIMIT when the product exceeds 2^62.
 */
MR_API int mr_spec_bytes(const struct mr_spec *spec, uint64_t *out);

/* Writes a spec as text, "image u8[28,28]"; a variable dimension as "<=28"; "caption string[<=99]",
 * "raw bytes[<=99]". [out] buf: cap bytes, cut to fit. Returns buf. */
MR_API const char *mr_spec_format(const struct mr_spec *spec, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif
#endif

/*
 * DLPack: batches as tensors of PyTorch, JAX, NumPy, CuPy and other libraries, without a copy.
 *
 *     struct mr_dlpack_versioned *tensor;
 *     mr_loader_next(loader, stream, &batch);
 *     mr_batch_to_dlpack_versioned(&batch, 0, MR_DLPACK_DATA, stream, &tensor);
 *     mr_loader_release(loader, &batch, stream);
 *     ... // hand the tensor to a library, which calls tensor->deleter(tensor) when it is done
 *
 * The structs have the layout of DLManagedTensor and DLManagedTensorVersioned in dlpack.h, whose
 * pointers they can be cast to. The receiver owns a tensor and calls its deleter once, on any
 * thread.
 *
 * Each tensor keeps its whole batch: the batch's memory is used again when the program has released
 * the batch and all of its tensors have ended, in whatever order. Tensors may outlive the loader:
 * then the last one gives the memory back. The device and the streams that tensors were made with
 * must outlive the tensors.
 *
 * Threads: any thread may make tensors of a batch and end them, at the same time.
 * fork: a child may end the tensors that it inherits, which does nothing to their batches. It may
 * read those in host memory if the parent keeps them. Making one fails with MR_EMISUSE.
 */
#ifndef MILLRACE_DLPACK_H
#define MILLRACE_DLPACK_H

#include <millrace/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What mr_dlpack_tensor's numbers mean, as in dlpack.h. */
enum {
    MR_DLPACK_CPU = 1, /* device_type: host memory, page-locked or not */
    MR_DLPACK_CUDA = 2,

    MR_DLPACK_INT = 0, /* code */
    MR_DLPACK_UINT = 1,
    MR_DLPACK_FLOAT = 2,
    MR_DLPACK_BFLOAT = 4,
    MR_DLPACK_COMPLEX = 5,
    MR_DLPACK_BOOL = 6,

    MR_DLPACK_READ_ONLY = 1 /* flags */
};

/* DLTensor. */
struct mr_dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits; /* of an element */
    uint16_t lanes;     /* 1 */
    int64_t *shape;
    int64_t *strides; /* in elements; set for all tensors that have dimensions */
    uint64_t byte_offset;
};

/* DLManagedTensor. */
struct mr_dlpack {
    struct mr_dlpack_tensor tensor;
    void *manager; /* private */
    void (*deleter)(struct mr_dlpack *self);
};

/* DLManagedTensorVersioned, of version 1.0. */
struct mr_dlpack_versioned {
    uint32_t major, minor;
    void *manager; /* private */
    void (*deleter)(struct mr_dlpack_versioned *self);
    uint64_t flags;
    struct mr_dlpack_tensor tensor;
};

/* The part of a field that a tensor gives access to. Only MR_DLPACK_DATA may be written to:
 * versioned tensors of the other parts have the flag MR_DLPACK_READ_ONLY. */
enum mr_dlpack_part {
    MR_DLPACK_DATA,    /* mr_batch_field.data */
    MR_DLPACK_HOST,    /* mr_batch_field.host */
    MR_DLPACK_OFFSETS, /* mr_batch_field.offsets, as i64[n + 1] */
    MR_DLPACK_LENGTHS, /* mr_batch_field.lengths, as i64[n] */
};

/*
 * Makes a tensor of a field of a held batch. The bytes are not copied. It allocates a few hundred
 * bytes.
 * batch: held; after mr_loader_close(), one that was held then and still has a tensor.
 * field: from 0.
 * stream: the stream in which the tensor is used: when the tensor ends, its memory is used again
 * behind all work that was enqueued to the stream until then.
 * mr_stream_any(): the same for all streams of the device, for a library whose streams you do not
 * know (PyTorch records no events for memory that is not its own). NULL: that work is done when the
 * tensor ends. It may differ from the stream passed to mr_loader_next(): then make it wait for that
 * one first. After mr_loader_close() the end of a tensor waits for its stream.
 * [out] out: on success.
 * Returns 0, MR_EMISUSE (the batch is not held, or has no such field), MR_EUNSUPPORTED (the field
 * has no such part), -ENOMEM. Any thread that has the batch.
 */
MR_API int mr_batch_to_dlpack(const struct mr_batch *batch, int field, enum mr_dlpack_part part,
                              struct mr_stream *stream, struct mr_dlpack **out);
MR_API int mr_batch_to_dlpack_versioned(const struct mr_batch *batch, int field,
                                        enum mr_dlpack_part part, struct mr_stream *stream,
                                        struct mr_dlpack_versioned **out);

#ifdef __cplusplus
}
#endif
#endif

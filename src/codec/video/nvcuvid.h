/*
 * NVIDIA's driver and libnvcuvid, as far as NVDEC needs them: our own declarations, since neither
 * is there when this is built. Layouts are those of the Video Codec SDK 8 to 13, which the driver
 * keeps: reserved members are zero.
 */
#ifndef MR_CODEC_VIDEO_NVCUVID_H
#define MR_CODEC_VIDEO_NVCUVID_H

#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;

enum {
    CUDA_OK = 0,
    CUDA_NO_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_NO_DEVICE = 100,
    CUDA_NOT_SUPPORTED = 801
};
enum cuvid_codec {
    CUVID_MPEG1 = 0,
    CUVID_MPEG2 = 1,
    CUVID_MPEG4 = 2,
    CUVID_H264 = 4,
    CUVID_HEVC = 8,
    CUVID_VP8 = 9,
    CUVID_VP9 = 10,
    CUVID_AV1 = 11,
};
enum { CUVID_CHROMA_420 = 1 };
enum { CUVID_NV12 = 0, CUVID_P016 = 1 };
enum { CUVID_PREFER_CUVID = 4 };
enum { CUVID_END_OF_STREAM = 1, CUVID_TIMESTAMP = 2, CUVID_END_OF_PICTURE = 8 };

struct cuvid_caps {
    int codec, chroma;
    unsigned depth_minus8, reserved1[3];
    uint8_t supported, n_engines;
    uint16_t output_formats;
    unsigned max_width, max_height, max_macroblocks;
    uint16_t min_width, min_height;
    uint8_t histogram, histogram_depth;
    uint16_t histogram_bins;
    unsigned reserved3[10];
};

struct cuvid_format {
    int codec;
    unsigned rate_numerator, rate_denominator;
    uint8_t progressive, luma_depth_minus8, chroma_depth_minus8, min_surfaces;
    unsigned coded_width, coded_height;
    struct {
        int left, top, right, bottom;
    } display;
    int chroma;
    unsigned bitrate;
    int aspect_x, aspect_y;
    uint8_t signal[4];
    unsigned header_bytes;
};

struct cuvid_area {
    int16_t left, top, right, bottom;
};
struct cuvid_create {
    unsigned long width, height, n_surfaces;
    int codec, chroma;
    unsigned long flags, depth_minus8, intra_only, max_width, max_height, reserved1;
    struct cuvid_area display;
    int output_format, deinterlace; /* 0: no deinterlacing */
    unsigned long target_width, target_height, n_output_surfaces;
    void *lock;
    struct cuvid_area target;
    unsigned long histogram, reserved2[4];
};

struct cuvid_map {
    int progressive, second_field, top_field_first, unpaired_field;
    unsigned reserved_flags, reserved_zero;
    unsigned long long raw_input;
    unsigned raw_input_pitch, raw_input_format;
    unsigned long long raw_output;
    unsigned raw_output_pitch, reserved1;
    struct CUstream_st *stream;
    unsigned reserved[46];
    unsigned long long *histogram;
    void *reserved2[1];
};

struct cuvid_packet {
    unsigned long flags, bytes;
    const uint8_t *data;
    long long timestamp;
};

struct cuvid_shown {
    int picture, progressive, top_field_first, repeat_first_field;
    long long timestamp;
};

struct cuvid_picture; /* what the parser hands to the decoder */

struct cuvid_parser {
    int codec;
    unsigned max_surfaces, clock_rate, error_threshold, max_display_delay, flags, reserved1[4];
    void *user;
    int (*on_sequence)(void *user, struct cuvid_format *format); /* 0: failed; > 1: surfaces */
    int (*on_decode)(void *user, struct cuvid_picture *picture);
    int (*on_display)(void *user, struct cuvid_shown *shown);
    void *reserved2[7];
    void *extended;
};

struct cuda_copy_2d {
    size_t from_x, from_y;
    int from_kind; /* 1: host, 2: device */
    const void *from_host;
    unsigned long long from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_kind;
    void *to_host;
    unsigned long long to_device;
    void *to_array;
    size_t to_pitch, row_bytes, rows;
};

/* Of headers of SDK 11.1 and CUDA 11 on 64-bit Linux. */
_Static_assert(sizeof(struct cuvid_caps) == 88, "CUVIDDECODECAPS");
_Static_assert(sizeof(struct cuvid_format) == 64, "CUVIDEOFORMAT");
_Static_assert(sizeof(struct cuvid_create) == 176, "CUVIDDECODECREATEINFO");
_Static_assert(sizeof(struct cuvid_map) == 264, "CUVIDPROCPARAMS");
_Static_assert(sizeof(struct cuvid_packet) == 32, "CUVIDSOURCEDATAPACKET");
_Static_assert(sizeof(struct cuvid_shown) == 24, "CUVIDPARSERDISPINFO");
_Static_assert(sizeof(struct cuvid_parser) == 136, "CUVIDPARSERPARAMS");
_Static_assert(sizeof(struct cuda_copy_2d) == 128, "CUDA_MEMCPY2D");

#define NV_CUDA(X)                                                                                 \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDeviceGetCount, (int *out))                                                                \
    X(cuDeviceGet, (int *out, int number))                                                         \
    X(cuDevicePrimaryCtxRetain, (struct CUctx_st * *out, int device))                              \
    X(cuCtxPushCurrent_v2, (struct CUctx_st * context))                                            \
    X(cuCtxPopCurrent_v2, (struct CUctx_st * *out))                                                \
    X(cuStreamCreate, (struct CUstream_st * *out, unsigned flags))                                 \
    X(cuStreamSynchronize, (struct CUstream_st * stream))                                          \
    X(cuMemcpy2DAsync_v2, (const struct cuda_copy_2d *copy, struct CUstream_st *stream))           \
    X(cuGetErrorName, (int result, const char **out))

#define NV_CUVID(X)                                                                                \
    X(cuvidGetDecoderCaps, (struct cuvid_caps * caps))                                             \
    X(cuvidCreateDecoder, (void **out, struct cuvid_create *how))                                  \
    X(cuvidDestroyDecoder, (void *decoder))                                                        \
    X(cuvidDecodePicture, (void *decoder, struct cuvid_picture *picture))                          \
    X(cuvidMapVideoFrame64, (void *decoder, int picture, unsigned long long *out, unsigned *pitch, \
                             struct cuvid_map *how))                                               \
    X(cuvidUnmapVideoFrame64, (void *decoder, unsigned long long frame))                           \
    X(cuvidCreateVideoParser, (void **out, struct cuvid_parser *how))                              \
    X(cuvidParseVideoData, (void *parser, struct cuvid_packet *packet))                            \
    X(cuvidDestroyVideoParser, (void *parser))

struct nv_calls {
#define X(symbol, arguments) int(*symbol) arguments;
    NV_CUDA(X)
    NV_CUVID(X)
#undef X
};

#endif

/* Launches: kernels of src/kernels, and the simple ones that each device brings by itself. */
#include "device/device.h"
#include "device/host.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} simple[MR_N_SIMPLE] = {
    [MR_SIMPLE_BUSY] = {"busy", sizeof(struct mr_kernel_busy)},
    [MR_SIMPLE_WAIT] = {"wait", sizeof(uint32_t *)},
    [MR_SIMPLE_COPY] = {"copy", sizeof(struct mr_kernel_copy)},
    [MR_SIMPLE_MATMUL] = {"matmul_f32", sizeof(struct mr_kernel_matmul)},
};

#define LOOK_NS 5000000 /* how often a sleep asks whether it is to end */

uint64_t mr_device_sleep(uint64_t from_ns, const struct mr_kernel_busy *busy)
{
    uint64_t end_ns = busy->ns > UINT64_MAX - from_ns ? UINT64_MAX : from_ns + busy->ns;
    while (busy->stop && mr_time_ns() < end_ns) {
        if (__atomic_load_n(busy->stop, __ATOMIC_ACQUIRE))
            return MR_MAX(from_ns, mr_time_ns());
        mr_sleep_until(MR_MIN(end_ns, mr_time_ns() + LOOK_NS));
    }
    mr_sleep_until(end_ns);
    return end_ns;
}

/* Negative: no such name. */
static int find_simple(const char *name)
{
    for (int i = 0; i < MR_N_SIMPLE; i++)
        if (strcmp(simple[i].name, name) == 0)
            return i;
    return -1;
}

static int unknown_kernel(const struct mr_device_ops *ops, const char *kernel)
{
    char known[64] = "";
    for (int i = 0; i < ops->n_simple; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", simple[i].name);
    }
    return mr_error_set(MR_EUNSUPPORTED, "device %s: no kernel \"%.64s\"; it has: %s", ops->name,
                        kernel, known);
}

static int launch_simple(struct mr_stream *stream, const char *kernel, const void *args,
                         size_t args_bytes)
{
    const struct mr_device_ops *ops = stream->dev->ops;
    struct mr_simple_launch it = {0};
    int found = find_simple(kernel);
    if (found < 0 || found >= ops->n_simple)
        return unknown_kernel(ops, kernel);
    it.kernel = (enum mr_simple_kernel)found;
    bool shorter =
        (found == MR_SIMPLE_MATMUL && args_bytes == offsetof(struct mr_kernel_matmul, rows)) ||
        (found == MR_SIMPLE_BUSY && args_bytes == offsetof(struct mr_kernel_busy, stop));
    if (args_bytes != simple[found].bytes && !shorter)
        return mr_error_set(MR_EMISUSE, "kernel %s: expected %zu bytes of arguments, got %zu",
                            kernel, simple[found].bytes, args_bytes);
    memcpy(&it.matmul, args, args_bytes); /* all members of the union begin at one place */
    if (found == MR_SIMPLE_MATMUL && it.matmul.rows == 0)
        it.matmul.rows = it.matmul.n;
    return ops->launch_simple(stream, &it);
}

/* [out] ranges: all of them, on success. */
static int check_args(const struct mr_device *dev, const struct mr_kernel *kernel, const void *args,
                      struct mr_kernel_range ranges[MR_KERNEL_RANGES])
{
    memset(ranges, 0, MR_KERNEL_RANGES * sizeof *ranges);
    const char *wrong = kernel->check ? kernel->check(args, ranges) : NULL;
    for (int i = 0; i < 2 && !wrong; i++)
        wrong = ranges[i].ptr || ranges[i].bytes == 0 ? NULL : "in or out is NULL";
    if (wrong)
        return mr_error_set(MR_EMISUSE, "%s: kernel \"%s\": %s", dev->ops->name, kernel->name,
                            wrong);
    return 0;
}

int mr_launch_kernel(struct mr_stream *stream, const struct mr_kernel *kernel, const void *args,
                     const unsigned grid[2])
{
    struct mr_kernel_range ranges[MR_KERNEL_RANGES];
    int rc = check_args(stream->dev, kernel, args, ranges);
    return rc < 0 ? rc : stream->dev->ops->launch(stream, kernel, args, ranges, grid);
}

int mr_launch(struct mr_stream *stream, const char *kernel, const void *args, size_t arg_bytes)
{
    int rc = mr_stream_check(stream, "mr_launch");
    if (rc < 0)
        return rc;
    if (!kernel || (arg_bytes && !args))
        return mr_error_set(MR_EMISUSE, "mr_launch: the kernel's name or its arguments are NULL");
    const struct mr_kernel *k = mr_kernel_find(kernel);
    if (!k)
        return launch_simple(stream, kernel, args, arg_bytes);
    if (arg_bytes != k->args_bytes)
        return mr_error_set(MR_EMISUSE, "%s: kernel \"%s\": arguments of %zu bytes, expected %zu",
                            stream->dev->ops->name, kernel, arg_bytes, k->args_bytes);
    return mr_launch_kernel(stream, k, args, NULL);
}

int mr_device_load_kernels(struct mr_device *dev, const struct mr_kernel_module *module)
{
    if (dev->ops->load)
        return dev->ops->load(dev, module);
    if (!module->kernels[0].run)
        return mr_error_set(MR_EUNSUPPORTED, "device %s: the kernels \"%s\" run on GPUs only",
                            dev->ops->name, module->name);
    return 0;
}

int mr_device_has_kernel(struct mr_device *dev, const char *kernel)
{
    int rc = mr_device_check(dev, "mr_device_has_kernel");
    if (rc < 0)
        return rc;
    if (!kernel)
        return mr_error_set(MR_EMISUSE, "mr_device_has_kernel: expected a name, found NULL");
    int found = find_simple(kernel);
    if (found >= 0)
        return found < dev->ops->n_simple;
    const struct mr_kernel *k = mr_kernel_find(kernel);
    if (!k)
        return 0;
    rc = mr_device_load_kernels(dev, k->module);
    return rc == MR_EUNSUPPORTED ? 0 : rc < 0 ? rc : 1;
}

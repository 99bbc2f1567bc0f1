/*
 * Kernels on a GPU. A module's image is a fatbin, machine code for several generations of GPUs and
 * PTX for later ones; it is loaded once per device, with all functions of the module: afterwards
 * they can be launched while a graph is recorded, when the driver may not load anything.
 */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

struct cuda_module {
    struct cuda_module *next;
    const struct mr_kernel_module *of;
    struct CUmod_st *handle;
    struct CUfunc_st *function[]; /* as of->kernels */
};

void mr_cuda_unload(struct mr_cuda *c)
{
    mr_cuda_unload_simple(c);
    while (c->modules) {
        struct cuda_module *m = c->modules;
        c->modules = m->next;
        c->cu->cuModuleUnload(m->handle);
        free(m);
    }
}

/* The image has nothing for this GPU or driver: no error, the host does the work. */
static bool does_not_suit(int result)
{
    return result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
           result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

/* The functions of m, whose image is loaded. */
static int find_functions(const struct mr_cuda *c, struct cuda_module *m)
{
    for (size_t i = 0; i < m->of->n_kernels; i++) {
        char symbol[64];
        snprintf(symbol, sizeof symbol, "mr_%s", m->of->kernels[i].name);
        int result = c->cu->cuModuleGetFunction(&m->function[i], m->handle, symbol);
        if (result != CUDA_SUCCESS)
            return mr_cuda_error(c->cu, result, c->name, "cuModuleGetFunction(%s)", symbol);
    }
    return 0;
}

/* With the context current, under the lock. Returns 0, MR_EUNSUPPORTED, MR_EDEVICE, -ENOMEM. */
static int load(struct mr_cuda *c, const struct mr_kernel_module *module, struct cuda_module **out)
{
    size_t bytes = sizeof(struct cuda_module) + module->n_kernels * sizeof(void *);
    if (!module->image)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: no kernels \"%s\": this build was made without nvcc", c->name,
                            module->name);
    struct cuda_module *m = calloc(1, bytes);
    if (!m)
        return mr_error_nomem("a GPU's kernels", bytes);
    m->of = module;
    int result = c->cu->cuModuleLoadData(&m->handle, module->image);
    int rc = 0;
    if (does_not_suit(result))
        rc = mr_error_set(MR_EUNSUPPORTED, "%s: the kernels in this build do not run on this GPU",
                          c->name);
    else if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuModuleLoadData(%s)", module->name);
    if (rc < 0)
        goto free_module;
    rc = find_functions(c, m);
    if (rc < 0)
        goto unload;
    m->next = c->modules;
    c->modules = m;
    *out = m;
    return 0;
unload:
    c->cu->cuModuleUnload(m->handle);
free_module:
    free(m);
    return rc;
}

/* With the context current. [out] out: on success; it stays until mr_cuda_unload(). */
static int get_module(struct mr_cuda *c, const struct mr_kernel_module *module,
                      struct cuda_module **out)
{
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    struct cuda_module *m = c->modules;
    while (m && m->of != module)
        m = m->next;
    if (m)
        *out = m;
    else
        rc = load(c, module, out);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int mr_cuda_load(struct mr_device *dev, const struct mr_kernel_module *module)
{
    struct mr_cuda *c = dev->state;
    struct cuda_module *m = NULL;
    int rc = mr_cuda_enter(c);
    return rc < 0 ? rc : mr_cuda_leave(c, get_module(c, module, &m));
}

/* With the context current. grid as in mr_cuda_launch(). */
static int start(struct mr_cuda *c, struct mr_stream *stream, const struct mr_kernel *kernel,
                 const void *args, const unsigned grid[2])
{
    const struct cuda_stream *s = stream->state;
    struct cuda_module *m = NULL;
    _Alignas(16) unsigned char copy[MR_KERNEL_ARGS];
    void *params[] = {copy}; /* the driver reads them before it returns */
    unsigned own[2] = {0};
    int rc = get_module(c, kernel->module, &m);
    if (rc < 0)
        return rc;
    memcpy(copy, args, kernel->args_bytes);
    if (!grid) {
        kernel->grid(copy, own);
        grid = own;
    }
    if (grid[1] == 0)
        return 0;
    int result =
        c->cu->cuLaunchKernel(m->function[kernel - kernel->module->kernels], grid[0], grid[1], 1,
                              MR_KERNEL_THREADS, 1, 1, 0, s->handle, params, NULL);
    if (result == CUDA_SUCCESS)
        return 0;
    return mr_cuda_error(c->cu, result, c->name, "cuLaunchKernel(%s, %u x %u blocks)", kernel->name,
                         grid[0], grid[1]);
}

int mr_cuda_launch(struct mr_stream *stream, const struct mr_kernel *kernel, const void *args,
                   const struct mr_kernel_range ranges[MR_KERNEL_RANGES], const unsigned grid[2])
{
    (void)ranges;
    struct mr_cuda *c = stream->dev->state;
    int rc = mr_cuda_enter(c);
    return rc < 0 ? rc : mr_cuda_leave(c, start(c, stream, kernel, args, grid));
}

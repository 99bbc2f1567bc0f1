/* What a decoder answered, or what it died of. */
#include "base/libc.h"
#include "loader/sandbox_private.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

const char *mr_sandbox_name_of(const struct mr_loader *ld, const struct mr_run_sample *s)
{
    const char *name = NULL;
    if (s->n_extents > 0 && !s->item)
        name = mr_files_name(ld->ds->files, s->extent[0].at.file);
    else if (ld->ds->ops->file)
        name = ld->ds->ops->file(ld->ds, s->index);
    return name ? name : mr_dataset_text(ld->ds);
}

/* [out] text: " (openat)", or nothing. */
static void name_call(int number, char text[32])
{
    static const struct {
        int number;
        const char *name;
    } known[] = {{SYS_openat, "openat"},     {SYS_socket, "socket"}, {SYS_connect, "connect"},
                 {SYS_read, "read"},         {SYS_write, "write"},   {SYS_writev, "writev"},
                 {SYS_execve, "execve"},     {SYS_kill, "kill"},     {SYS_mmap, "mmap"},
                 {SYS_mprotect, "mprotect"}, {SYS_ioctl, "ioctl"},   {SYS_unlinkat, "unlinkat"},
                 {SYS_clone, "clone"},       {SYS_ptrace, "ptrace"}, {SYS_madvise, "madvise"}};
    text[0] = 0;
    for (size_t i = 0; i < MR_COUNT(known); i++)
        if (known[i].number == number)
            snprintf(text, 32, " (%s)", known[i].name);
}

/* glibc writes what it found by writev(), which decoders have no use for, and calls abort(). */
static int refused_error(const char *file, unsigned long long index, int number)
{
    char name[32];
    name_call(number, name);
    if (number == SYS_writev)
        return mr_error_set(MR_EFORMAT,
                            "%s: sample %llu: its decoder crashed: the C library stopped it, most "
                            "likely for damaged memory (it was to print a message)",
                            file, index);
    return mr_error_set(MR_EFORMAT,
                        "%s: sample %llu: its decoder tried what the sandbox forbids and was "
                        "killed: system call %d%s",
                        file, index, number, name);
}

int mr_sandbox_death_error(const struct mr_worker *w, const struct mr_run_sample *s,
                           struct mr_sandbox_call *call)
{
    int status = atomic_load(&w->ld->sandbox->board->status[w->id]);
    int refused = atomic_load(&call->refused) - 1, sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const char *file = mr_sandbox_name_of(w->ld, s), *name = mr_libc_signal_name(sig);
    unsigned long long index = s->index;
    if (sig == SIGSYS && refused < 0) /* while it blocked all signals, as fork() does */
        return mr_error_set(MR_EFORMAT,
                            "%s: sample %llu: its decoder tried what the sandbox forbids and was "
                            "killed (SIGSYS)",
                            file, index);
    if (sig == SIGSYS)
        return refused_error(file, index, refused);
    if (sig)
        return mr_error_set(MR_EFORMAT,
                            "%s: sample %llu: its decoder was killed by signal %d "
                            "(SIG%s), %d times in a row",
                            file, index, sig, name ? name : "?", MR_SANDBOX_TRIES);
    return mr_error_set(MR_EFORMAT, "%s: sample %llu: its decoder ended with status %d", file,
                        index, WEXITSTATUS(status));
}

/* Codes that say something about this process or the run are not for a decoder to say: a sample
 * could end a run that skips bad ones. Out of memory is one: its sample is bad. */
static int sample_fault(int rc)
{
    switch (rc) {
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
    case MR_SANDBOX_GONE:
    case MR_ECANCELLED:
        return MR_EFORMAT;
    default:
        return rc;
    }
}

int mr_sandbox_answered_error(const struct mr_sandbox_call *call, int rc, const char *name)
{
    char text[MR_ERROR_BYTES];
    mr_sandbox_copy(text, call->text, sizeof text);
    text[sizeof text - 1] = 0;
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < 32 || *c == 127 ? '?' : *c;
    return mr_error_set(sample_fault(rc), "%s", text[0] ? text : name);
}

/* Are these dimensions that the field can have? [out] bytes: of so many elements. */
static bool dims_fit(const struct mr_spec *spec, const uint64_t *dim, uint64_t *bytes)
{
    *bytes = mr_dtype_size(spec->dtype);
    for (int d = 0; d < spec->rank; d++) {
        if (dim[d] > spec->dim[d] || (!(spec->var_dims >> d & 1) && dim[d] != spec->dim[d]))
            return false;
        *bytes *= dim[d];
    }
    return true;
}

static int take_picture(const struct mr_worker *w, const struct mr_run_sample *s,
                        const struct mr_sandbox_call *call, struct mr_sample *out)
{
    struct mr_sandbox *b = w->ld->sandbox;
    const struct mr_dataset *ds = w->ld->ds;
    const struct mr_spec *spec = &ds->field[ds->picture];
    struct mr_picture *p = &out->picture;
    mr_sandbox_copy(p, &call->picture, sizeof *p);
    p->data = (const unsigned char *)call + b->pixels_at;
    const struct mr_image_opts image = mr_sandbox_image_of(ds);
    int rc = mr_picture_check(&image, mr_sandbox_name_of(w->ld, s), out->choose, out->choose_user,
                              p, b->pixels_bytes);
    if (rc == 0 && !out->choose && (p->height > spec->dim[0] || p->width > spec->dim[1]))
        rc = mr_error_set(MR_EFORMAT, "%s: the decoder returned too many pixels",
                          mr_sandbox_name_of(w->ld, s));
    out->field[ds->picture].data = p->data;
    out->field[ds->picture].dim[0] = p->height;
    out->field[ds->picture].dim[1] = p->width;
    b->large[w->id] |= p->height * p->stride > MR_SANDBOX_LARGE;
    return rc;
}

int mr_sandbox_take_answer(const struct mr_worker *w, const struct mr_run_sample *s,
                           const struct mr_sandbox_call *call, struct mr_sample *out)
{
    struct mr_sandbox *b = w->ld->sandbox;
    const struct mr_dataset *ds = w->ld->ds;
    uint64_t all = 0;
    bool has[MR_MAX_FIELDS] = {false};
    for (int e = 0; e < s->n_extents; e++)
        if (s->extent[e].at.field >= 0)
            has[s->extent[e].at.field] = true;
    for (int f = 0; f < ds->n_fields; f++) {
        uint64_t dim[MR_MAX_RANK], bytes;
        if (has[f] || f == ds->picture)
            continue;
        mr_sandbox_copy(dim, call->dim[f], sizeof dim);
        if (!dims_fit(&ds->field[f], dim, &bytes))
            return mr_error_set(MR_EFORMAT,
                                "%s: sample %llu: the decoder returned another shape "
                                "of '%s'",
                                mr_sandbox_name_of(w->ld, s), (unsigned long long)s->index,
                                ds->field[f].name);
        memcpy(out->field[f].dim, dim, sizeof dim);
        memcpy(out->field[f].room, (const unsigned char *)call + b->fields_at + b->field_at[f],
               bytes);
        out->field[f].data = out->field[f].room;
        all += bytes;
    }
    b->large[w->id] |= all > MR_SANDBOX_LARGE;
    return ds->picture < 0 ? 0 : take_picture(w, s, call, out);
}

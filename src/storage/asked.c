/* Reads for a process that may open no file. */
#include "storage/private.h"

#include <string.h>

void mr_files_ask(struct mr_files *files, mr_files_asked *ask, void *user)
{
    files->ask = ask;
    files->ask_user = user;
}

bool mr_files_asks(const struct mr_files *files)
{
    return files->ask != NULL;
}

int mr_files_answer(struct mr_files *files, const struct mr_file_request *request, void *out,
                    uint64_t most)
{
    uint64_t size = 0, end;
    if (request->file < 0 || request->file >= mr_files_length(files))
        return mr_error_set(MR_EFORMAT, "a read of file %d of %d", request->file,
                            mr_files_length(files));
    if (request->kind != MR_FILE_BYTES && request->kind != MR_FILE_SIZE)
        return mr_error_set(MR_EFORMAT, "%s: a request of kind %d",
                            mr_files_name(files, request->file), request->kind);
    int rc = mr_files_size(files, request->file, &size);
    if (rc < 0)
        return rc;
    if (request->kind == MR_FILE_SIZE) {
        if (most < sizeof size)
            return mr_error_set(MR_EMISUSE, "a size needs %zu bytes", sizeof size);
        memcpy(out, &size, sizeof size);
        return 0;
    }
    if (request->bytes > most || !mr_add(request->offset, request->bytes, &end) || end > size)
        return mr_error_set(MR_EFORMAT, "%s: a read of %llu bytes at %llu: it has %llu",
                            mr_files_name(files, request->file), (unsigned long long)request->bytes,
                            (unsigned long long)request->offset, (unsigned long long)size);
    return mr_files_read(files, request->file, request->offset, out, request->bytes);
}

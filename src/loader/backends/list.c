/* The row backends, best first. */
#include "loader/backends/backend.h"

const struct mr_row_backend *const mr_row_backends[] = {
    &mr_row_resident, &mr_row_jpeg, &mr_row_gds, &mr_row_host, NULL,
};

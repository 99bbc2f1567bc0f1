#include "recording/labels.h"

#include "base/base.h"

#include <string.h>

const char *mr_copy_label(int64_t kind)
{
    static const char *const labels[] = {"Unknown",
                                         "Host-to-Device",
                                         "Device-to-Host",
                                         "Host-to-Array",
                                         "Array-to-Host",
                                         "Array-to-Array",
                                         "Array-to-Device",
                                         "Device-to-Array",
                                         "Device-to-Device",
                                         "Host-to-Host",
                                         "Peer-to-Peer",
                                         "Unified Host-to-Device",
                                         "Unified Device-to-Host",
                                         "Unified Device-to-Device"};
    return labels[kind >= 0 && kind < (int64_t)MR_COUNT(labels) ? kind : 0];
}

const char *mr_memory_label(int64_t kind)
{
    static const char *const labels[] = {"Pageable", "Pinned",        "Device",        "Array",
                                         "Managed",  "Device Static", "Managed Static"};
    return kind >= 0 && kind < (int64_t)MR_COUNT(labels) ? labels[kind] : "Unknown";
}

const char *mr_copy_kind_text(uint8_t kind)
{
    static const char *const text[] = {"?",   "H2D", "D2H", "H2A", "A2H", "A2A",
                                       "A2D", "D2A", "D2D", "H2H", "P2P"};
    return kind < MR_COUNT(text) ? text[kind] : "?";
}

const char *mr_mem_kind_text(uint8_t kind)
{
    static const char *const text[] = {"?",     "pageable", "pinned",        "device",
                                       "array", "managed",  "device static", "managed static"};
    return kind < MR_COUNT(text) ? text[kind] : "?";
}

bool mr_name_simulated(const char *device)
{
    static const char begin[] = "simulated (";
    return strncmp(device, begin, sizeof begin - 1) == 0;
}

int mr_call_name_bytes(const char *name)
{
    size_t n = strlen(name), digits = n;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    bool version = digits < n && digits > 2 && name[digits - 1] == 'v' && name[digits - 2] == '_';
    return (int)(version ? digits - 2 : n);
}

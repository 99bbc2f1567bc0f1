/*
 * um_sum: unified memory by address: migrations between host and device, and page faults. The
 * driver moves these pages by itself, so no call and no range launched them.
 */
#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>

#define CPU_FAULTS "CUDA_UM_CPU_PAGE_FAULT_EVENTS"
#define GPU_FAULTS "CUDA_UM_GPU_PAGE_FAULT_EVENTS"
#define UVM_HTOD   11 /* kinds of copies */
#define UVM_DTOH   12

enum { HTOD, DTOH, CPU, GPU, N_KINDS };

struct page {
    uint64_t sum[N_KINDS], n[N_KINDS]; /* bytes or faults, records */
    uint64_t ns;                       /* of migrations */
};

struct pages {
    struct mr_keymap map;
    struct page *page;
    uint64_t capacity;
    struct mr_left_out left;
};

static struct page *page_at(struct pages *p, uint64_t address)
{
    uint32_t n = p->map.n, i = mr_keymap_put(&p->map, (struct mr_key){address, 0});
    if (i == MR_NONE)
        return NULL;
    if (mr_grow("pages", &p->page, &p->capacity, i + 1ull, sizeof *p->page) < 0)
        return NULL;
    if (i == n)
        p->page[i] = (struct page){0};
    return &p->page[i];
}

/* start, end, address, kind, bytes or faults */
static int add_rows(struct mr_recording *recording, const char *sql, const struct mr_filter *filter,
                    struct pages *pages)
{
    struct sqlite3_stmt *stmt = NULL;
    int rc = mr_sql_prepare(recording, &stmt, "%s", sql);
    while (rc == 0 && (rc = mr_sql_step(recording, stmt)) == 1) {
        int64_t start = sqlite3_column_int64(stmt, 0), end = sqlite3_column_int64(stmt, 1),
                more = sqlite3_column_int64(stmt, 4);
        int kind = sqlite3_column_int(stmt, 3);
        rc = 0;
        if (!mr_report_takes(filter, &pages->left, MR_NO_OP, 0, start, end))
            continue;
        struct page *page = page_at(pages, (uint64_t)sqlite3_column_int64(stmt, 2));
        if (!page) {
            rc = -ENOMEM;
            break;
        }
        page->sum[kind] += (uint64_t)MR_MAX(more, 0);
        page->n[kind]++;
        page->ns += kind < CPU ? (uint64_t)(end - start) : 0;
    }
    sqlite3_finalize(stmt);
    return rc;
}

static int read_pages(struct mr_recording *recording, const struct mr_filter *filter,
                      struct pages *pages)
{
    char sql[512];
    int rc = 0;
    if (mr_recording_has(recording, MR_TABLE_COPY, "virtualAddress")) {
        snprintf(sql, sizeof sql,
                 "SELECT start, end, virtualAddress, copyKind = %d, bytes FROM " MR_TABLE_COPY
                 " WHERE copyKind IN (%d, %d)",
                 UVM_DTOH, UVM_HTOD, UVM_DTOH);
        rc = add_rows(recording, sql, filter, pages);
    }
    if (rc == 0 && mr_recording_has(recording, CPU_FAULTS, "address")) {
        snprintf(sql, sizeof sql, "SELECT start, start, address, %d, 1 FROM " CPU_FAULTS, CPU);
        rc = add_rows(recording, sql, filter, pages);
    }
    if (rc == 0 && mr_recording_has(recording, GPU_FAULTS, "numberOfPageFaults")) {
        snprintf(sql, sizeof sql,
                 "SELECT start, start, address, %d, numberOfPageFaults FROM " GPU_FAULTS, GPU);
        rc = add_rows(recording, sql, filter, pages);
    }
    return rc;
}

static const struct mr_column columns[] = {
    {"Virtual Address", MR_UNIT_NONE, MR_CELL_TEXT},
    {"HtoD Migration Size", MR_UNIT_BYTES, MR_CELL_INT},
    {"DtoH Migration Size", MR_UNIT_BYTES, MR_CELL_INT},
    {"CPU Page Faults", MR_UNIT_COUNT, MR_CELL_INT},
    {"GPU Page Faults", MR_UNIT_COUNT, MR_CELL_INT},
    {"Migration Throughput", MR_UNIT_BYTES_PER_S, MR_CELL_REAL},
};

static void put_page(struct mr_table *table, uint64_t address, const struct page *page)
{
    char text[24];
    snprintf(text, sizeof text, "0x%" PRIX64, address);
    mr_table_row(table);
    mr_table_text(table, text);
    for (int kind = 0; kind < N_KINDS; kind++)
        if (page->n[kind])
            mr_table_int(table, (int64_t)page->sum[kind]);
        else
            mr_table_empty(table);
    if (page->ns)
        mr_table_real(table, (double)(page->sum[HTOD] + page->sum[DTOH]) * 1e9 / (double)page->ns);
    else
        mr_table_empty(table);
}

static void note(struct mr_table *table, struct mr_recording *recording, const struct pages *pages,
                 const struct mr_report_opts *opts)
{
    bool some = mr_table_rows(table) > 0;
    if (some)
        mr_report_note(table, &pages->left, "");
    else if (opts->range || opts->from_ns || opts->to_ns)
        mr_table_add_note(table, "no migration and no page fault of unified memory in this window");
    else if (recording->ours && !recording->source)
        mr_table_add_note(table, "nothing of unified memory is recorded: millrace profile records "
                                 "neither its migrations nor page faults; nsys profile does with "
                                 "--cuda-um-cpu-page-faults=true --cuda-um-gpu-page-faults=true");
    else
        mr_table_add_note(table, "this %s has no migration and no page fault of unified memory",
                          recording->source ? recording->source : "recording");
    if (some && opts->range)
        mr_table_add_note(table, "no call launches migrations: they are taken by their time");
}

static int make(struct mr_recording *recording, const struct mr_report_opts *opts,
                struct mr_table **out)
{
    struct mr_filter filter;
    struct pages pages = {0};
    int rc = mr_filter_open(&filter, recording, opts);
    if (rc)
        return rc;
    struct mr_table *table =
        mr_table_create("Unified memory by address (um_sum)", columns, MR_COUNT(columns));
    rc = table ? read_pages(recording, &filter, &pages) : mr_error_nomem("a table", 0);
    for (uint32_t i = 0; i < pages.map.n && rc == 0; i++)
        put_page(table, pages.map.keys[i].a, &pages.page[i]);
    if (rc == 0) {
        note(table, recording, &pages, opts);
        rc = mr_report_finish(table, opts, "HtoD Migration Size", out);
    } else {
        mr_table_destroy(table);
    }
    free(pages.page);
    mr_keymap_free(&pages.map);
    mr_filter_close(&filter);
    return rc;
}

const struct mr_report_kind mr_report_um_sum = {
    "um_sum", "Unified memory: migrations and page faults by address", make, MR_REPORT_CALLS};

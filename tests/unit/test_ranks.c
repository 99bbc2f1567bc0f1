/*
 * White-box. Ranks side by side: who the others wait for and why, on simulated jobs; recordings of
 * ranks joined into one, with clocks that differ; parts of recordings.
 */
#include "job_make.h"

#include "recording/ranks.h"
#include "recording/stacks.h"
#include "timeline/timeline.h"

#include <millrace/profile.h>
#include <sqlite3.h>
#include <unistd.h>
#include <zlib.h>

#define PATH "test_ranks.sqlite"
#define MS   1000000ull

static const char *const paths[JOB_RANKS] = {
    "test_ranks0.sqlite", "test_ranks1.sqlite", "test_ranks2.sqlite", "test_ranks3.sqlite",
    "test_ranks4.sqlite", "test_ranks5.sqlite", "test_ranks6.sqlite", "test_ranks7.sqlite"};

static void find(const struct mr_recording *rec, struct mr_ranks *out)
{
    if (mr_ranks_find(rec, NULL, out) < 0)
        fail_msg("%s", mr_last_error());
}

/* All ranks of a job in one recording. */
static struct mr_recording *record(struct job *job, struct mr_ranks *out)
{
    job_record(job, PATH);
    struct mr_recording *rec = make_load(PATH);
    find(rec, out);
    return rec;
}

static void done(struct mr_recording *rec, struct mr_ranks *ranks)
{
    mr_ranks_free(ranks);
    mr_recording_close(rec);
    unlink(PATH);
}

static struct mr_recording *open_job(uint32_t n, const struct mr_recording_opts *opts)
{
    struct mr_recording *rec = NULL;
    if (mr_recording_open_job(paths, n, opts, &rec) < 0)
        fail_msg("%s", mr_last_error());
    if (mr_recording_load(rec) < 0)
        fail_msg("%s", mr_last_error());
    return rec;
}

static void forget(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        unlink(paths[i]);
}

/* A job of chance in which one rank is slow for one reason. */
static struct job slow_job(uint32_t round, uint32_t *out_slow, int *out_cause)
{
    struct job job = job_plain(2 + (uint32_t)(test_u64(round * 5) % 5));
    uint32_t slow = (uint32_t)(test_u64(round * 5 + 1) % job.n_ranks);
    uint64_t more = 300000 + test_u64(round * 5 + 2) % 5000000;
    job.seed = round;
    job.mpi = round % 7 == 6;
    for (uint32_t r = 0; r < job.n_ranks; r++)
        job.n_lost[r] = (uint32_t)(test_u64(round * 50 + r) % 4);
    *out_slow = slow;
    if (round % 3 == 0) {
        job.load_ns[slow] += more;
        *out_cause = MR_IDLE_LOADER;
    } else if (round % 3 == 1) {
        job.compute_ns[slow] += more;
        *out_cause = MR_CAUSE_COMPUTE;
    } else {
        job.host_ns[slow] += more;
        *out_cause = MR_IDLE_HOST;
    }
    return job;
}

/* ---- who is slow ---- */

static void slow_rank_is_named(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 24; round++) {
        struct mr_ranks ranks;
        uint32_t slow;
        int cause;
        struct job job = slow_job(round, &slow, &cause);
        struct mr_recording *rec = record(&job, &ranks);
        assert_int_equal(ranks.n, job.n_ranks);
        assert_int_equal(ranks.n_matched, job.n_ranks);
        assert_int_equal(ranks.slow, slow);
        assert_int_equal(ranks.at[slow].rank, slow);
        assert_int_equal(ranks.cause, cause);
        assert_true(ranks.at[slow].n_last > ranks.n_steps / 2);
        assert_string_equal(ranks.why, "");
        done(rec, &ranks);
    }
}

/* Two ranks whose programs never wait for their devices, which have 0.4 ms of work a step; rank r's
 * takes host_ns[r] for a step. */
static void record_ahead(const uint64_t host_ns[2], uint32_t n_steps, bool ranges)
{
    struct make m = {.context = 1};
    uint64_t entry[2][JOB_STEPS], last[JOB_STEPS] = {0}, is_free[2] = {0};
    for (uint32_t s = 0; s < n_steps; s++) {
        for (uint32_t r = 0; r < 2; r++) {
            entry[r][s] = MR_MAX(MS + s * host_ns[r] + 20000, is_free[r]) + 400000;
            last[s] = MR_MAX(last[s], entry[r][s]);
        }
        is_free[0] = is_free[1] = last[s] + 50000;
    }
    if (mr_store_create(PATH, true, &m.store) < 0)
        fail_msg("%s", mr_last_error());
    for (uint32_t r = 0; r < 2; r++) {
        make_process(&m, 100 + r, "python3 train.py");
        m.device = r;
        make_device(&m, r, "Some GPU");
        for (uint32_t s = 0; s < n_steps; s++) {
            uint64_t at = MS + s * host_ns[r];
            if (ranges)
                make_range(&m, "step", at, at + host_ns[r]);
            make_kernel_of(&m, make_call(&m, "cudaLaunchKernel_v7000", at + 10000, at + 13000), 7,
                           "gemm", entry[r][s] - 400000, entry[r][s]);
            make_kernel_of(&m, make_call(&m, "cudaLaunchKernelExC_v11060", at + 14000, at + 17000),
                           17, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", entry[r][s],
                           last[s] + 50000);
        }
    }
    make_end(&m);
}

/* Devices starved of launches wait for whoever is a little behind, but the job loses no more than
 * that little. */
static void what_a_rank_costs_the_job(void **state)
{
    (void)state;
    for (uint64_t more = 0; more <= 1600000; more += 80000) {
        const uint64_t host_ns[] = {4 * MS, 4 * MS + more};
        struct mr_ranks ranks;
        record_ahead(host_ns, 30, more % 160000 == 0);
        struct mr_recording *rec = make_load(PATH);
        find(rec, &ranks);
        assert_true(ranks.n_steps > 20);
        for (uint64_t s = 0; s < ranks.n_steps; s++)
            assert_true(ranks.steps[s].cost_ns <= ranks.steps[s].end_ns - ranks.steps[s].start_ns);
        if (more * 20 < host_ns[1]) {
            assert_int_equal(ranks.slow, MR_NONE);
            assert_true(more == 0 || strstr(ranks.why, "rank 1 comes last, but"));
        } else if (more * 19 > host_ns[1]) {
            assert_int_equal(ranks.slow, 1);
            assert_float_equal(ranks.gain_ns, (double)more, 1000);
        }
        done(rec, &ranks);
    }
}

static void nobody_is_named_without_one(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 16; round++) {
        struct mr_ranks ranks;
        struct job job = job_plain(2 + round % 5);
        job.seed = round;
        job.jitter_ns = round % 2 ? 300000 : 5000;
        struct mr_recording *rec = record(&job, &ranks);
        assert_int_equal(ranks.slow, MR_NONE);
        assert_true(ranks.n_steps > 10 && ranks.n_matched == job.n_ranks);
        done(rec, &ranks);
    }
}

/* A rank that is late in one step of four only costs all others that time, and is named. */
static void slow_now_and_then(void **state)
{
    struct mr_ranks ranks;
    struct job job = job_plain(4);
    (void)state;
    job.n_steps = 48;
    job.every = 4;
    job.load_ns[3] = 8000000;
    struct mr_recording *rec = record(&job, &ranks);
    uint64_t n_other = 0;
    assert_int_equal(ranks.slow, 3);
    assert_int_equal(ranks.cause, MR_IDLE_LOADER);
    for (uint64_t s = 0; s < ranks.n_steps; s++)
        n_other += ranks.steps[s].last != 3;
    assert_true(n_other > ranks.n_steps / 2); /* most steps are not its fault */
    done(rec, &ranks);
}

/* What the simulation knows, to the nanosecond. */
static void sums(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 16; round++) {
        struct mr_ranks ranks;
        uint32_t slow;
        int cause;
        struct job job = slow_job(round, &slow, &cause);
        struct mr_recording *rec = record(&job, &ranks);
        for (uint32_t r = 0; r < ranks.n; r++) {
            assert_int_equal(ranks.at[r].wait_ns, job.waited_ns[r]);
            assert_int_equal(ranks.at[r].comm_ns, job.comm_ns[r]);
            assert_int_equal(ranks.at[r].exposed_ns, job.comm_ns[r]); /* nothing runs beside it */
            assert_int_equal(ranks.at[r].n_comms, job.n_steps - job.n_lost[r]);
        }
        done(rec, &ranks);
    }
}

static void hidden_communication(void **state)
{
    struct make m;
    struct mr_ranks ranks;
    (void)state;
    make_begin(&m, PATH);
    make_device(&m, 0, "Some GPU");
    make_kernel(&m, 7, "gemm", 100000, 200000);
    make_kernel(&m, 17, "ncclKernel_AllReduce_RING_LL_Sum_float", 150000, 300000);
    make_kernel(&m, 17, "ncclKernel_SendRecv", 400000, 450000);
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    find(rec, &ranks);
    assert_int_equal(ranks.at[0].n_comms, 2);
    assert_int_equal(ranks.at[0].comm_ns, 200000);
    assert_int_equal(ranks.at[0].exposed_ns, 150000);
    assert_false(ranks.at[0].matched);
    assert_non_null(strstr(ranks.why, "one rank"));
    done(rec, &ranks);
}

/* Ranges of steps that only some processes have are enough; ones that none has are an error. */
static void named_steps(void **state)
{
    struct mr_ranks ranks;
    struct job job = job_plain(2);
    (void)state;
    job.compute_ns[1] = 4000000;
    job_record(&job, PATH);
    struct mr_recording *rec = make_load(PATH);
    assert_int_equal(mr_ranks_find(rec, "step", &ranks), 0);
    assert_int_equal(ranks.slow, 1);
    mr_ranks_free(&ranks);
    assert_int_equal(mr_ranks_find(rec, "epok", &ranks), MR_EOPTION);
    mr_recording_close(rec);
    unlink(PATH);
}

static void names(void **state)
{
    (void)state;
    assert_true(mr_name_communicates("ncclDevKernel_SendRecv(x)"));
    assert_false(mr_name_is_collective("ncclDevKernel_SendRecv(x)"));
    assert_true(mr_name_is_collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
    assert_true(mr_name_is_collective("ncclDevKernel_Generic_1")); /* RCCL */
    assert_true(mr_name_is_collective("MPI_Bcast"));
    assert_false(mr_name_is_collective("MPI_Send"));
    assert_false(mr_name_is_collective("reduce_kernel"));
}

/* ---- joined ---- */

static void shifted_files_give_the_same(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 9; round++) {
        struct mr_ranks one, joined;
        uint32_t slow;
        int cause;
        struct job job = slow_job(round, &slow, &cause);
        struct mr_recording *rec = record(&job, &one);
        for (uint32_t r = 0; r < job.n_ranks; r++)
            job_record_rank(&job, r, paths[r], test_u64(round * 9 + r) % 40000000, round % 2);
        struct mr_recording *all = open_job(job.n_ranks, NULL);
        find(all, &joined);
        assert_int_equal(joined.n, one.n);
        assert_int_equal(joined.slow, one.slow);
        assert_int_equal(joined.cause, one.cause);
        assert_int_equal(joined.n_steps, one.n_steps);
        for (uint32_t r = 0; r < one.n; r++) {
            assert_int_equal(joined.at[r].n_last, one.at[r].n_last);
            assert_int_equal(joined.at[r].comm_ns, one.at[r].comm_ns);
            assert_int_equal(all->processes[joined.at[r].place.process].pid, 100 + r);
            /* ends of a collective lie up to 1 us a rank apart, and make the clocks' difference */
            int64_t off = (int64_t)joined.at[r].wait_ns - (int64_t)one.at[r].wait_ns;
            assert_true(off > -200000 && off < 200000);
        }
        done(rec, &one);
        mr_ranks_free(&joined);
        mr_recording_close(all);
        forget(job.n_ranks);
    }
}

/* Reports of a joined recording add up to those of its files. */
static uint64_t kernels(struct mr_recording *rec, int64_t *out_ns)
{
    struct mr_table *table = NULL;
    uint64_t n = 0;
    if (mr_report_make(rec, "cuda_gpu_kern_sum", NULL, &table) < 0)
        fail_msg("%s", mr_last_error());
    for (uint64_t r = 0; r < mr_table_rows(table); r++) {
        *out_ns += mr_table_cell(table, r, 1).integer;
        n += (uint64_t)mr_table_cell(table, r, 2).integer;
    }
    assert_int_equal(mr_table_rows(table), 2); /* names that are the same are one */
    mr_table_destroy(table);
    return n;
}

static void joined_reports_add_up(void **state)
{
    struct job job = job_plain(3);
    int64_t parts_ns = 0, all_ns = 0;
    uint64_t n = 0;
    (void)state;
    for (uint32_t r = 0; r < 3; r++) {
        job_record_rank(&job, r, paths[r], r * 1000000, true);
        struct mr_recording *rec = make_load(paths[r]);
        n += kernels(rec, &parts_ns);
        mr_recording_close(rec);
    }
    struct mr_recording *all = open_job(3, NULL);
    assert_int_equal(kernels(all, &all_ns), n);
    assert_int_equal(all_ns, parts_ns);
    mr_recording_close(all);
    forget(3);
}

/* Two hosts with the same pids and the same number of a device. */
static void hosts_alike(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct make m;
        make_begin(&m, paths[i]);
        for (uint64_t s = 0; s < 12; s++) {
            uint64_t at = 1000000 + s * 1000000 + s * s * 1000;
            make_range(&m, "step", at, at + 900000);
            make_kernel(&m, 7, "gemm", at + 100000, at + 200000 + i * 300000);
            make_kernel(&m, 17, "ncclDevKernel_AllReduce_Sum", at + 200000 + i * 300000,
                        at + 600000);
        }
        make_end(&m);
    }
    struct mr_ranks ranks;
    struct mr_recording *rec = open_job(2, NULL);
    find(rec, &ranks);
    assert_int_equal(rec->n_processes, 2);
    assert_int_equal(ranks.n, 2);
    assert_int_not_equal(ranks.at[0].place.device, ranks.at[1].place.device);
    assert_int_equal(ranks.slow, 1);
    assert_int_equal(ranks.cause, MR_CAUSE_COMPUTE);
    mr_ranks_free(&ranks);
    mr_recording_close(rec);
    forget(2);
}

/* ---- samples ---- */

static void execute(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static int64_t count(const struct mr_recording *rec, const char *sql)
{
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_prepare_v2(rec->db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return n;
}

/* A host whose process and stack have the same numbers on each, and other texts. */
static void make_sampled(uint32_t host)
{
    struct make m;
    char function[32];
    make_begin(&m, paths[host]);
    for (uint32_t i = 0; i <= host; i++) { /* texts have other numbers */
        snprintf(function, sizeof function, "unused%u", i);
        make_name(&m, function);
    }
    for (uint64_t s = 0; s < 12; s++) {
        uint64_t at = 1000000 + s * 1000000 + s * s * 1000;
        make_range(&m, "step", at, at + 900000);
        make_kernel(&m, 17, "ncclDevKernel_AllReduce_Sum", at + 200000 + host * 300000,
                    at + 600000);
    }
    snprintf(function, sizeof function, "fetch%u", host);
    for (uint32_t i = 1; i <= 2; i++)
        make_put(&m, MR_PART_STACK,
                 &(struct mr_part_stack){i, i - 1, make_name(&m, i == 2 ? function : "main"),
                                         make_name(&m, "/a/train.py"), 10 * i + host});
    for (uint64_t k = 0; k < 5 + host; k++)
        make_put(&m, MR_PART_SAMPLE,
                 &(struct mr_part_sample){.start_ns = MAKE_BASE + k * 1000,
                                          .end_ns = MAKE_BASE + (k + 1) * 1000,
                                          .tid = m.tid,
                                          .stack = 2,
                                          .n = 1});
    make_end(&m);
}

static uint64_t sampled_ns(const struct mr_stacks *s, const char *function, uint64_t *out_n)
{
    uint64_t ns = 0;
    *out_n = 0;
    for (uint64_t i = 0; i < s->n_samples; i++) {
        const struct mr_stack_node *node = &s->nodes[s->samples[i].node];
        if (strcmp(s->texts.text[s->places[node->place].function], function) != 0)
            continue;
        assert_int_not_equal(node->parent, MR_NONE);
        assert_string_equal(s->texts.text[s->places[s->nodes[node->parent].place].function],
                            "main");
        ns += s->samples[i].end_ns - s->samples[i].start_ns;
        *out_n += 1;
    }
    return ns;
}

static bool is_of(const void *state, uint64_t process)
{
    return process == *(const uint64_t *)state;
}

static void samples_of_hosts_stay_apart(void **state)
{
    struct mr_stacks stacks;
    (void)state;
    make_sampled(0);
    make_sampled(1);
    struct mr_recording *rec = open_job(2, NULL);
    assert_int_equal(mr_stacks_load(rec, &stacks), 0);
    assert_int_equal(stacks.n_threads, 2);
    for (uint32_t host = 0; host < 2; host++) {
        uint64_t n, process = rec->processes[host].number;
        struct mr_stack_hottest hot;
        assert_int_equal(sampled_ns(&stacks, host ? "fetch1" : "fetch0", &n), (5 + host) * 1000);
        assert_int_equal(n, 5 + host);
        assert_int_equal(mr_stacks_loader(&stacks, NULL, process << 24 | rec->processes[host].pid,
                                          is_of, &process, &hot),
                         0);
        assert_int_equal(hot.n, 5 + rec->processes[host].file - 1);
        assert_int_equal(hot.of_ns, hot.n * 1000);
    }
    assert_int_equal(count(rec, "SELECT count(DISTINCT id) FROM COMPOSITE_EVENTS"), 11);
    assert_int_equal(count(rec, "SELECT count(*) FROM MILLRACE_STACKS"), 4);
    assert_int_equal(count(rec, "SELECT count(*) FROM SAMPLING_CALLCHAINS"), 22); /* two frames */
    mr_stacks_free(&stacks);
    mr_recording_close(rec);
    forget(2);
}

static const struct mr_tl_counter *memory_of(const struct mr_timeline *tl, uint32_t device,
                                             const char *name)
{
    for (uint32_t i = 0; i < tl->n_counters; i++)
        if (strcmp(tl->counters[i].name, name) == 0 && tl->counters[i].device == device)
            return &tl->counters[i];
    fail_msg("device %u has no %s", device, name);
    return NULL;
}

/* The same addresses in both: each device's memory is that of its own process. */
static void memory_of_processes_stays_apart(void **state)
{
    struct job job = job_plain(2);
    struct mr_timeline_opts opts;
    struct mr_timeline tl;
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        struct make m;
        make_begin(&m, paths[r]);
        m.device = r;
        make_device(&m, r, "Some GPU");
        make_note(&m, "rank", r, "");
        make_note(&m, "world_size", 2, "");
        for (uint64_t s = 0; s < job.n_steps; s++)
            make_kernel(&m, 7, "ncclDevKernel_AllReduce_Sum", (s + 1) * MS + 10 * r,
                        (s + 1) * MS + 1000);
        make_memory(&m, 2, 0x1000, (r + 1) << 20, false, MS);
        make_memory(&m, 2, 0x2000, 1 << 20, false, 2 * MS);
        make_memory(&m, 2, 0x1000, 0, true, 3 * MS);
        make_end(&m);
    }
    struct mr_recording *rec = open_job(2, NULL);
    mr_timeline_opts_init(&opts);
    assert_int_equal(mr_timeline_make(rec, &opts, &tl), 0);
    for (uint32_t r = 0; r < 2; r++) {
        const struct mr_tl_counter *used = memory_of(&tl, r, "Memory in use");
        assert_true(used->most == (double)((r + 2) << 20));
        assert_true(used->points[used->n - 1].value == (double)(1 << 20));
    }
    mr_timeline_free(&tl);
    mr_recording_close(rec);
    forget(2);
}

/* Nsight Systems has samples and stacks in tables of these names, with columns of its own, and
 * NULL where our tables do not allow it. */
static void exports_join(void **state)
{
    (void)state;
    for (uint32_t host = 0; host < 2; host++) {
        make_sampled(host);
        execute(paths[host],
                "DROP VIEW SAMPLING_CALLCHAINS; DROP TABLE MILLRACE_STACKS;"
                "DROP TABLE COMPOSITE_EVENTS; DROP TABLE MILLRACE_META; DROP TABLE MILLRACE_NOTES;"
                "CREATE TABLE COMPOSITE_EVENTS (id INTEGER NOT NULL PRIMARY KEY, start INTEGER NOT "
                "NULL, cpu INTEGER, threadState INTEGER, globalTid INTEGER, cpuCycles INTEGER NOT "
                "NULL); INSERT INTO COMPOSITE_EVENTS VALUES (1, 5, 0, 0, 7, 1), (2, 6, 0, 0, 7, 1);"
                "CREATE TABLE N AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL;"
                "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;"
                "ALTER TABLE N RENAME TO CUPTI_ACTIVITY_KIND_KERNEL;"
                "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET localMemoryTotal = NULL, gridId = NULL;"
                "INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 0, 0, 3, 'events were lost', NULL);");
    }
    struct mr_recording *rec = open_job(2, NULL);
    uint32_t n_warnings = 0;
    assert_int_equal(rec->n_ops, 24);
    assert_int_equal(count(rec, "SELECT count(*) FROM COMPOSITE_EVENTS"), 0);
    assert_int_equal(count(rec, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE gridId = 0"),
                     24);
    for (uint32_t i = 0; i < rec->n_notes; i++)
        n_warnings += strcmp(mr_rec_text(rec, rec->notes[i].text), "events were lost") == 0;
    assert_int_equal(n_warnings, 2);
    mr_recording_close(rec);
    forget(2);
}

/* Only counters of the device that is asked for; payloads of ranges stay in a joined recording. */
static void counters_and_payloads(void **state)
{
    struct job job = job_plain(2);
    struct mr_recording_opts opts;
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        job_record_rank(&job, r, paths[r], 0, true);
        execute(paths[r], "UPDATE NVTX_EVENTS SET uint64Value = 77;");
    }
    struct mr_recording *rec = open_job(2, NULL);
    assert_int_equal(count(rec, "SELECT count(*) FROM NVTX_EVENTS WHERE uint64Value = 77") > 0, 1);
    mr_recording_close(rec);
    forget(2);
    job_record(&job, paths[0]);
    execute(paths[0], "INSERT INTO GPU_METRICS VALUES (0, 10, 0, 1, 50), (0, 10, 1, 1, 60),"
                      " (0, 10, 72057594037927937, 1, 61);");
    mr_recording_opts_init(&opts);
    opts.device = 1;
    rec = open_job(1, &opts);
    assert_int_equal(count(rec, "SELECT count(*) FROM GPU_METRICS"), 2);
    assert_int_equal(count(rec, "SELECT count(*) FROM GPU_METRICS WHERE typeId & 255 = 1"), 2);
    mr_recording_close(rec);
    forget(1);
}

/* ---- files that are not of one job ---- */

static void refuses(const char *says)
{
    struct mr_recording *rec = NULL;
    assert_int_equal(mr_recording_open_job(paths, 2, NULL, &rec), MR_EFORMAT);
    if (!strstr(mr_last_error(), says))
        fail_msg("%s", mr_last_error());
    forget(2);
}

static void other_runs_are_refused(void **state)
{
    struct job one = job_plain(2), other = job_plain(2), larger = job_plain(3);
    (void)state;
    other.seed = 9;
    other.jitter_ns = 3000000;
    one.jitter_ns = 3000000;
    job_record_rank(&one, 0, paths[0], 0, true);
    job_record_rank(&other, 1, paths[1], 0, true);
    refuses("do not end together");
    job_record_rank(&one, 1, paths[0], 0, true);
    job_record_rank(&one, 1, paths[1], 0, true);
    refuses("both of rank 1");
    job_record_rank(&one, 0, paths[0], 0, true);
    job_record_rank(&larger, 1, paths[1], 0, true);
    refuses("a job of 2 ranks");
}

/* The same file, by another name, too; a copy; too few collectives to be sure. */
static void one_file_twice_is_refused(void **state)
{
    struct mr_recording *rec = NULL;
    struct make m;
    (void)state;
    make_sampled(0);
    assert_int_equal(link(paths[0], paths[1]), 0);
    assert_int_equal(mr_recording_open_job(paths, 2, NULL, &rec), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "are one file"));
    unlink(paths[1]);
    make_sampled(0);
    assert_int_equal(rename(paths[0], paths[1]), 0);
    make_sampled(0);
    refuses("one recording twice");
    for (uint32_t i = 0; i < 2; i++) {
        make_begin(&m, paths[i]);
        for (uint64_t s = 0; s < 2; s++)
            make_kernel(&m, 17, "ncclDevKernel_AllReduce_Sum", 1000000 + s * 1000000 + i * 5000,
                        1600000 + s * 1000000);
        make_end(&m);
    }
    refuses("do not end together");
}

static void missing_ranks_are_told(void **state)
{
    struct mr_ranks ranks;
    struct job job = job_plain(3);
    (void)state;
    job_record_rank(&job, 0, paths[0], 0, true);
    job_record_rank(&job, 2, paths[1], 0, true);
    struct mr_recording *rec = open_job(2, NULL);
    find(rec, &ranks);
    assert_non_null(strstr(ranks.why, "3 ranks, and 2 are recorded"));
    assert_int_equal(ranks.at[1].rank, 2);
    mr_ranks_free(&ranks);
    mr_recording_close(rec);
    forget(2);
}

/* ---- real ranks ---- */

static void unpack(const char *from_path, const char *path)
{
    char buffer[65536];
    gzFile from = gzopen(from_path, "rb");
    FILE *to = fopen(path, "wb");
    assert_true(from && to);
    for (int n; (n = gzread(from, buffer, sizeof buffer)) > 0;)
        assert_int_equal(fwrite(buffer, 1, (size_t)n, to), n);
    gzclose(from);
    fclose(to);
}

static void check_real(struct mr_recording *rec, int cause, const char *says)
{
    struct mr_ranks ranks;
    struct mr_advice *advice = NULL;
    find(rec, &ranks);
    assert_int_equal(ranks.slow, 1);
    assert_int_equal(ranks.at[1].n_last, ranks.n_steps);
    assert_int_equal(ranks.cause, cause);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    assert_non_null(strstr(mr_advice_summary(advice), says));
    assert_ptr_equal(mr_advice_summary(advice), strstr(mr_advice_summary(advice), "rank 1 holds"));
    mr_advice_destroy(advice);
    mr_ranks_free(&ranks);
    mr_recording_close(rec);
}

/* Rank 1's loader sleeps 12 ms a batch, or its step computes longer: native, and Kineto's. */
static void real_ranks(void **state)
{
    static const struct {
        const char *name, *says;
        int cause;
    } jobs[] = {{"load", ". Rank 1 is looked at: data-bound", MR_IDLE_LOADER},
                {"compute", ". Rank 1 is looked at: not data-bound", MR_CAUSE_COMPUTE}};
    const char *data = getenv("MILLRACE_TEST_DATA");
    char path[2][512];
    (void)state;
    if (!data)
        skip();
    for (size_t i = 0; i < MR_COUNT(jobs); i++) {
        struct mr_recording *rec = NULL;
        const char *both[] = {path[1], path[0]};
        snprintf(path[0], sizeof path[0], "%s/ranks/%s.sqlite.gz", data, jobs[i].name);
        if (access(path[0], R_OK) != 0)
            skip();
        unpack(path[0], PATH);
        check_real(make_load(PATH), jobs[i].cause, jobs[i].says);
        for (int r = 0; r < 2; r++)
            snprintf(path[r], sizeof path[r], "%s/ranks/%s-rank%d.json.gz", data, jobs[i].name, r);
        if (mr_recording_open_job(both, 2, NULL, &rec) < 0 || mr_recording_load(rec) < 0)
            fail_msg("%s", mr_last_error());
        check_real(rec, jobs[i].cause, jobs[i].says);
    }
    unlink(PATH);
}

/* Of one rank of two: the figures of an independent reckoning. */
static void real_communication(void **state)
{
    const char *data = getenv("MILLRACE_TEST_DATA");
    char path[512];
    struct mr_recording *rec = NULL;
    struct mr_ranks ranks;
    (void)state;
    snprintf(path, sizeof path, "%s/kineto/nccl_parser_config-nccl_data.json.gz", data ? data : "");
    if (!data || access(path, R_OK) != 0)
        skip();
    if (mr_recording_open(path, &rec) < 0 || mr_recording_load(rec) < 0)
        fail_msg("%s", mr_last_error());
    find(rec, &ranks);
    assert_int_equal(ranks.at[0].n_comms, 21);
    assert_int_equal(ranks.at[0].comm_ns / 1000, 46876);
    assert_int_equal(ranks.at[0].exposed_ns / 1000, 39559);
    assert_non_null(strstr(ranks.why, "2 ranks, and 1 is recorded here"));
    mr_ranks_free(&ranks);
    mr_recording_close(rec);
}

/* A rank that spends its steps in collectives may wait there for one that lacks data: with its
 * recording alone nothing is said of the job, whether or not its number is known. */
static void waits_for_the_unseen(void **state)
{
    struct job job = job_plain(3);
    (void)state;
    job.load_ns[1] = 12000000;
    for (int named = 0; named < 2; named++)
        for (uint32_t r = 0; r < 2; r++) {
            struct mr_advice *advice = NULL;
            job_record_rank(&job, r, paths[r], 0, named);
            struct mr_recording *rec = make_load(paths[r]);
            assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
            const char *verdict = r == 0 ? "cannot tell: " : "data-bound: ";
            assert_ptr_equal(strstr(mr_advice_summary(advice), verdict), mr_advice_summary(advice));
            mr_advice_destroy(advice);
            mr_recording_close(rec);
        }
    forget(2);
}

/* ---- parts ---- */

/* A device that waits in a collective does not compute. */
static void pictures_show_communication(void **state)
{
    (void)state;
    struct mr_ranks ranks;
    struct mr_timeline tl;
    struct mr_tl_story story;
    struct mr_timeline_opts opts;
    struct job job = job_plain(3);
    double sum = 0;
    job.compute_ns[1] = 9 * MS;
    struct mr_recording *rec = record(&job, &ranks);
    mr_timeline_opts_init(&opts);
    assert_int_equal(mr_timeline_make(rec, &opts, &tl), 0);
    for (uint32_t r = 0; r < ranks.n; r++) {
        uint16_t device = ranks.at[r].place.device;
        const struct mr_lane *all = mr_timeline_engine(&tl, device, MR_ENGINE_ALL),
                             *comm = mr_timeline_engine(&tl, device, MR_ENGINE_COMM),
                             *compute = mr_timeline_engine(&tl, device, MR_ENGINE_COMPUTE);
        assert_true(all && comm && compute);
        assert_int_equal(comm->busy_ns, ranks.at[r].comm_ns);
        assert_int_equal(compute->busy_ns, all->busy_ns - comm->busy_ns);
        assert_int_equal(comm->n, job.n_steps);
    }
    assert_int_equal(mr_timeline_story(rec, &story), 0);
    for (int i = 0; i < MR_N_SHARES; i++)
        sum += story.part[i];
    assert_float_equal(sum, 1, 1e-9);
    assert_true(story.part[MR_SHARE_COMM] > 0 && story.part[MR_SHARE_COMM] < 0.01); /* rank 1's */
    mr_timeline_story_free(&story);
    mr_timeline_free(&tl);
    done(rec, &ranks);
}

static void parts(void **state)
{
    struct job job = job_plain(3);
    struct mr_recording_opts opts;
    struct mr_recording *rec = NULL;
    (void)state;
    job_record(&job, paths[0]);
    for (uint32_t r = 0; r < 9; r++) {
        struct mr_ranks ranks;
        mr_recording_opts_init(&opts);
        *(r < 3 ? &opts.rank : r < 6 ? &opts.pid : &opts.device) = r < 6 && r >= 3 ? 97 + r : r % 3;
        rec = open_job(1, &opts);
        find(rec, &ranks);
        assert_int_equal(ranks.n, 1);
        assert_int_equal(ranks.at[0].rank, r % 3); /* as the whole numbers it */
        assert_int_equal(rec->processes[ranks.at[0].place.process].pid, 100 + r % 3);
        assert_int_equal(mr_place_device_id(rec, &ranks.at[0].place), r % 3);
        assert_int_equal(rec->n_ops, 2 * job.n_steps);
        mr_ranks_free(&ranks);
        mr_recording_close(rec);
    }
    mr_recording_opts_init(&opts);
    opts.rank = 1;
    opts.device = 2;
    assert_int_equal(mr_recording_open_job(paths, 1, &opts, &rec), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "device 1 of process 101 (rank 1)"));
    assert_int_equal(mr_recording_open_job(paths, 0, NULL, &rec), MR_EMISUSE);
    forget(1);
}

/* ---- ranks that do not communicate ---- */

/* Three ranks of a loader in one recording; rank 1's batches take more_ns longer, or only every
 * tenth of them. Returns the headline, which stays until the next call. */
static const char *loaders(uint64_t more_ns, uint32_t every, bool named)
{
    static char said[2048];
    struct make m;
    struct mr_advice *advice = NULL;
    for (uint32_t r = 0; r < 3; r++) {
        if (r == 0)
            make_begin(&m, PATH);
        else
            make_process(&m, 100 + r, "millrace feed");
        m.device = r;
        make_device(&m, r, "Some GPU");
        if (named)
            make_note(&m, "rank", r, NULL);
        uint64_t at = 1000000;
        for (uint32_t i = 0; i < 40; i++) {
            uint64_t load =
                100000 + test_u64(i * 3 + r) % 20000 + (r == 1 && i % every == 0 ? more_ns : 0);
            make_range(&m, "step", at, at + load + 1010000);
            make_range(&m, "load", at, at + load);
            make_kernel_of(
                &m, make_call(&m, "cudaLaunchKernel_v7000", at + load + 1000, at + load + 4000), 7,
                "gemm", at + load + 5000, at + load + 1005000);
            at += load + 1010000;
        }
    }
    make_end(&m);
    struct mr_recording *rec = make_load(PATH);
    assert_int_equal(mr_analyze(rec, NULL, &advice), 0);
    snprintf(said, sizeof said, "%s", mr_advice_summary(advice));
    mr_advice_destroy(advice);
    mr_recording_close(rec);
    unlink(PATH);
    return said;
}

static void slowest_of_loaders(void **state)
{
    (void)state;
    const char *said = loaders(5000000, 1, true);
    assert_true(strstr(said, "rank 1 is the slowest of ranks") == said);
    assert_non_null(strstr(said, "its steps take 6.1"));
    assert_non_null(strstr(said, "cause: waiting for the loader (5.0"));
    assert_non_null(strstr(said, "Rank 1 is looked at: data-bound"));
    assert_non_null(strstr(loaders(0, 1, true), "no rank is slower than the others"));
    assert_non_null(strstr(loaders(50000, 1, true), "no rank is slower than the others"));
    /* one long batch in forty may be of any rank */
    assert_non_null(strstr(loaders(20000000, 30, true), "no rank is slower than the others"));
    assert_null(strstr(loaders(5000000, 1, false), "rank 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slowest_of_loaders),
        cmocka_unit_test(slow_rank_is_named),
        cmocka_unit_test(nobody_is_named_without_one),
        cmocka_unit_test(what_a_rank_costs_the_job),
        cmocka_unit_test(slow_now_and_then),
        cmocka_unit_test(sums),
        cmocka_unit_test(hidden_communication),
        cmocka_unit_test(named_steps),
        cmocka_unit_test(names),
        cmocka_unit_test(shifted_files_give_the_same),
        cmocka_unit_test(joined_reports_add_up),
        cmocka_unit_test(hosts_alike),
        cmocka_unit_test(samples_of_hosts_stay_apart),
        cmocka_unit_test(exports_join),
        cmocka_unit_test(memory_of_processes_stays_apart),
        cmocka_unit_test(counters_and_payloads),
        cmocka_unit_test(other_runs_are_refused),
        cmocka_unit_test(one_file_twice_is_refused),
        cmocka_unit_test(missing_ranks_are_told),
        cmocka_unit_test(real_ranks),
        cmocka_unit_test(real_communication),
        cmocka_unit_test(waits_for_the_unseen),
        cmocka_unit_test(pictures_show_communication),
        cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

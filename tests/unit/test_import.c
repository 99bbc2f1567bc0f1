/* White-box. Files of other tools that are opened by their programs: reports of Nsight Systems, by
 * a nsys on PATH, which is a script here. */
#include "recording_make.h"

#include "recording/recording.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], report[128], program[128], database[128], old_path[4096];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/millrace-import-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(report, sizeof report, "%s/a.nsys-rep", folder);
    snprintf(program, sizeof program, "%s/nsys", folder);
    snprintf(database, sizeof database, "%s/made.sqlite", folder);
    const char *path = getenv("PATH");
    char changed[4200];
    snprintf(old_path, sizeof old_path, "%s", path ? path : "");
    snprintf(changed, sizeof changed, "%s:%s", folder, old_path);
    setenv("PATH", changed, 1);
    setenv("TMPDIR", folder, 1);
    FILE *file = fopen(report, "w");
    return !file || fputs("a report", file) < 0 || fclose(file) != 0 ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    setenv("PATH", old_path, 1);
    unlink(report);
    unlink(program);
    unlink(database);
    return rmdir(folder); /* also tells whether a temporary file was left */
}

static void make_program(const char *script)
{
    FILE *file = fopen(program, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "#!/bin/sh\n%s\n", script) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(program, 0755), 0);
}

static void test_exported(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, database);
    make_device(&m, 0, "Test GPU");
    make_kernel(&m, 7, "gemm", 300000, 900000);
    make_end(&m);
    make_program("echo exporting; test \"$1 $2 $3 $4 $5 $6\" = "
                 "'export --type sqlite --force-overwrite true --output' || exit 9\n"
                 "cp \"${0%/*}/made.sqlite\" \"$7\" && test -f \"$8\"");
    struct mr_recording *r;
    struct mr_table *table;
    assert_int_equal(mr_recording_open(report, &r), 0);
    assert_int_equal(mr_recording_load(r), 0);
    assert_int_equal(r->n_ops, 1);
    assert_null(r->source);
    assert_int_equal(mr_report_make(r, "cuda_gpu_kern_sum", NULL, &table), 0);
    assert_int_equal(mr_table_rows(table), 1);
    mr_table_destroy(table);
    mr_recording_close(r);
}

static void test_no_program(void **state)
{
    (void)state;
    struct mr_recording *r;
    setenv("PATH", folder, 1);
    assert_int_equal(mr_recording_open(report, &r), MR_EUNSUPPORTED);
    assert_non_null(strstr(mr_last_error(), report));
    assert_non_null(strstr(mr_last_error(), "not on PATH: run `nsys export --type sqlite`"));
}

static void test_program_fails(void **state)
{
    (void)state;
    struct mr_recording *r;
    make_program("echo 'Importer error: the file is of a newer version' >&2; exit 3");
    assert_int_equal(mr_recording_open(report, &r), MR_EFORMAT);
    assert_non_null(strstr(mr_last_error(), "(exit status 3): Importer error: the file is of a "
                                            "newer version"));
    make_program("exit 0");
    assert_int_equal(mr_recording_open(report, &r), MR_EFORMAT);
    assert_non_null(strstr(mr_last_error(), "it said nothing"));
    make_program("echo no database >\"$7\"");
    assert_int_equal(mr_recording_open(report, &r), MR_EFORMAT);
    assert_non_null(strstr(mr_last_error(), report));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exported, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_no_program, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_program_fails, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

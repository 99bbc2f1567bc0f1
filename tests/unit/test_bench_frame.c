/* The frame of the experiments: the order of measuring, medians, what is left out, what an
 * interrupt does. */
#include "../../cli/bench/frame.c"
#include "../../cli/bench/stats.c"
#include "unit.h"

enum { ROWS = 3, REPEATS = 5 };
enum { NAME, VALUE, SPREAD, SOMETIMES, NEVER, GIVEN, N_COLUMNS };

static const struct bench_column columns[N_COLUMNS] = {[NAME] = {"", "name", BENCH_TEXT}};
static const struct cli_command command = {.name = "bench nothing"};
static const char *const names[ROWS] = {"a", "b", "c"};

static int calls[ROWS * REPEATS], n_calls, fail_at, fail_with, interrupt_at, n_shown, n_closed;
static struct bench_row shown[ROWS];

/* What the program gives the frame otherwise. */
bool cli_interrupted(void)
{
    return interrupt_at >= 0 && n_calls > interrupt_at;
}
void cli_progress_begin(struct cli_progress *p, const char *label, uint64_t total, const char *unit)
{
    (void)label, (void)unit;
    p->total = total;
}
void cli_progress_update(struct cli_progress *p, uint64_t done)
{
    assert_true(done <= p->total);
}
void cli_progress_end(struct cli_progress *p)
{
    (void)p;
}
int cli_error(int rc)
{
    (void)rc;
    return CLI_FAILED;
}
int plot_check(const char *path)
{
    (void)path;
    return CLI_OK;
}
int bench_open(const char *uri, bool copies, struct mr_device **out, struct mr_device_info *info)
{
    (void)uri, (void)copies, (void)out, (void)info;
    return CLI_FAILED;
}
static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
double bench_median(double *v, uint64_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return v[n / 2];
}
int bench_show(const struct bench *b)
{
    assert_int_equal(b->n_rows, ROWS);
    memcpy(shown, b->rows, sizeof shown);
    n_shown++;
    return CLI_OK;
}

static int measure(struct bench *b, struct bench_row *row, double *v)
{
    static const double values[REPEATS] = {5, 1, 9, 3, 7};
    int at = n_calls++, repeat = at / ROWS;
    calls[at] = (int)(row - b->rows);
    if (at == fail_at)
        return mr_error_set(fail_with, "no such thing here");
    v[VALUE] = values[repeat] + 100 * calls[at];
    if (repeat >= 3)
        v[SOMETIMES] = 10 * repeat;
    return 0;
}

static void close_all(struct bench *b)
{
    (void)b;
    n_closed++;
}

static int run_all(void)
{
    n_calls = n_shown = n_closed = 0;
    return bench_run(&(struct bench){.command = &command,
                                     .columns = columns,
                                     .n_columns = N_COLUMNS,
                                     .n_rows = ROWS,
                                     .names = names,
                                     .repeats = REPEATS,
                                     .varies = VALUE,
                                     .variation = SPREAD,
                                     .measure = measure,
                                     .close = close_all});
}

static void rows_are_measured_in_turn(void **state)
{
    (void)state;
    fail_at = interrupt_at = -1;
    assert_int_equal(run_all(), CLI_OK);
    assert_int_equal(n_calls, ROWS * REPEATS);
    for (int i = 0; i < n_calls; i++)
        assert_int_equal(calls[i], i % ROWS);
    for (int i = 0; i < ROWS; i++) {
        assert_string_equal(shown[i].text[NAME], names[i]);
        assert_true(shown[i].v[VALUE] == 5 + 100 * i);
        assert_true(shown[i].v[SPREAD] > 0);
        assert_true(shown[i].v[SOMETIMES] == 40); /* of the two that are known */
        assert_true(isnan(shown[i].v[NEVER]) && isnan(shown[i].v[GIVEN]));
    }
    assert_true(shown[0].v[SPREAD] > shown[2].v[SPREAD]); /* it is relative */
}

static void what_a_device_lacks_is_left_out(void **state)
{
    (void)state;
    static const int codes[] = {MR_EUNSUPPORTED, MR_ELIMIT};
    interrupt_at = -1;
    for (int i = 0; i < 2; i++) {
        fail_at = ROWS + 1; /* row 1, second repeat */
        fail_with = codes[i];
        assert_int_equal(run_all(), CLI_OK);
        assert_string_equal(shown[1].left_out, "no such thing here");
        assert_true(isnan(shown[1].v[VALUE]) && shown[2].v[VALUE] >= 201);
        assert_int_equal(n_calls, ROWS * REPEATS - (REPEATS - 2));
    }
}

/* An interrupt shows what was measured until then. */
static void assert_measured(int n)
{
    assert_int_equal(n_shown, n > 0);
    for (int i = 0; n > 0 && i < ROWS; i++)
        assert_int_equal(shown[i].left_out[0] != 0, i >= n);
}

static void failures_show_nothing_and_interrupts_a_part(void **state)
{
    (void)state;
    fail_with = MR_EDEVICE;
    for (int at = 0; at < ROWS * REPEATS; at++) {
        fail_at = at;
        interrupt_at = -1;
        assert_int_equal(run_all(), CLI_FAILED);
        assert_int_equal(n_shown, 0);
        assert_int_equal(n_closed, 1);
        fail_at = -1;
        interrupt_at = at; /* also in the very last row: it was cut short */
        assert_int_equal(run_all(), CLI_FAILED);
        assert_measured(at);
        assert_int_equal(n_calls, at + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_measured_in_turn),
        cmocka_unit_test(what_a_device_lacks_is_left_out),
        cmocka_unit_test(failures_show_nothing_and_interrupts_a_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

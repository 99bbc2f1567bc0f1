/* White-box. CSV files of pictures: cells, columns, numbers; what is wrong is named with its
 * line. */
#include "pictures.h"

#include "dataset/pictures/csv.h"

#include <errno.h>
#include <math.h>

static struct mr_dataset *open_text(const char *text, const char *options)
{
    char uri[1000];
    snprintf(uri, sizeof uri, "csv:%s%s", test_write("t.csv", text, strlen(text)), options);
    return test_open(uri);
}

static int fails(const char *text, const char *options)
{
    char uri[1000];
    snprintf(uri, sizeof uri, "csv:%s%s", test_write("t.csv", text, strlen(text)), options);
    return test_open_fails(uri);
}

static void points_labels_and_paths(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_text(
        "name,eye_x,eye_y,age,nose_x,nose_y\na.jpg,1,2.5,30,-3,4e2\nb/b.png,5,6,31,7,8\n", "");
    static const float want[2][4] = {{1, 2.5F, -3, 400}, {5, 6, 7, 8}};
    assert_string_equal(mr_dataset_format(ds), "csv");
    assert_int_equal(mr_dataset_fields(ds), 3);
    test_field_is(ds, 1, "points f32[2,2]");
    test_field_is(ds, 2, "label i64");
    for (uint64_t i = 0; i < 2; i++) {
        assert_memory_equal(test_row(ds, "points", i), want[i], sizeof want[i]);
        assert_int_equal(test_label(ds, i), 30 + i);
    }
    assert_string_equal(test_name_of(ds, 0), "a.jpg");
    assert_string_equal(test_name_of(ds, 1), "b/b.png");
    assert_string_equal(mr_dataset_text(ds), "csv: t.csv: 2 pictures, 2 points each");
    mr_dataset_close(ds);
}

static void text_is(const char *text, const char *options, const char *want)
{
    struct mr_dataset *ds = open_text(text, options);
    assert_string_equal(mr_dataset_text(ds), want);
    mr_dataset_close(ds);
}

/* Cells as they are: quotes undone, empty ones, numbers that are wanted as text. */
static void columns_of_text_are_strings(void **state)
{
    (void)state;
    static const char text[] = "file,caption,age,lang\na.jpg,\"a \"\"red\"\" car, parked\",30,de\n"
                               "b.jpg,,7,\nc.jpg,\"two\nlines\",8,en\n";
    static const char *const captions[] = {"a \"red\" car, parked", "", "two\nlines"};
    static const char *const langs[] = {"de", "", "en"};
    struct mr_dataset *ds = open_text(text, ",text=[lang,caption]");
    assert_int_equal(mr_dataset_fields(ds), 4);
    test_field_is(ds, 1, "label i64");
    test_field_is(ds, 2, "lang string[<=2]");
    test_field_is(ds, 3, "caption string[<=19]");
    for (uint64_t i = 0; i < 3; i++) {
        char got[32] = "";
        uint64_t dim[MR_MAX_RANK];
        assert_int_equal(mr_dataset_read_field(ds, i, 3, got, dim), 0);
        assert_int_equal(dim[0], strlen(captions[i]));
        assert_string_equal(got, captions[i]);
        memset(got, 0, sizeof got);
        assert_int_equal(mr_dataset_read_field(ds, i, 2, got, dim), 0);
        assert_string_equal(got, langs[i]);
    }
    uint64_t fingerprint = mr_dataset_fingerprint(ds);
    mr_dataset_close(ds);
    ds = open_text("file,caption,age,lang\na.jpg,x,30,d\nb.jpg,,7,e\nc.jpg,y,8,en\n", ",text=lang");
    struct mr_dataset *moved =
        open_text("file,caption,age,lang\na.jpg,x,30,de\nb.jpg,,7,\nc.jpg,y,8,en\n", ",text=lang");
    assert_true(mr_dataset_fingerprint(ds) != mr_dataset_fingerprint(moved));
    assert_true(mr_dataset_fingerprint(ds) != fingerprint);
    mr_dataset_close(ds);
    mr_dataset_close(moved);
    ds = open_text("a.jpg;x;12\nb.jpg;y;13\n", ",text=2:3");
    test_field_is(ds, 1, "text2 string[<=1]");
    test_field_is(ds, 2, "text3 string[<=2]");
    mr_dataset_close(ds);
    test_fails(fails(text, ",text=file"), MR_EOPTION, "text: column 'file' is the column of paths");
    test_fails(fails(text, ",text=age,labels=age"), MR_EOPTION, "text: column 'age' appears twice");
    test_fails(fails(text, ",text=nothing"), MR_EOPTION, "no column 'nothing'");
    test_fails(fails("file,image\na.jpg,x\n", ",text=image"), MR_EFORMAT,
               "text: column 'image': expected a name of 1 to");
}

/* A number that cannot be read makes a column text: that is told, unless columns were chosen. */
static void columns_left_out_are_told(void **state)
{
    (void)state;
    static const char text[] = "file,age,kind,w\na.jpg,12years,cat,2\nb.jpg,13,dog,3\n";
    text_is(text, "",
            "csv: t.csv: 2 pictures (left out: text in 2 columns, the first is column 'age')");
    text_is(text, ",labels=w", "csv: t.csv: 2 pictures");
    text_is(text, ",labels=none", "csv: t.csv: 2 pictures");
    text_is("a.jpg;1,5;2\n", "", "csv: t.csv: 1 picture (left out: text in column 2)");
    text_is("file,p_x,p_y\na.jpg,1.5?,2\n", "",
            "csv: t.csv: 1 picture (left out: text in column 'p_x')");
}

/* Each way to choose columns, over one text. */
static void columns_are_chosen(void **state)
{
    (void)state;
    static const char text[] = "id,file,kind,p_x,p_y,w\n1,a.jpg,cat,2,3,0.5\n2,b.jpg,dog,4,5,1\n";
    static const struct {
        const char *options, *fields[3];
    } cases[] = {
        {"", {"points f32[1,2]", "label f32[2]"}},
        {",labels=none", {"points f32[1,2]"}},
        {",labels=none,points=no", {NULL}},
        {",labels=id", {"points f32[1,2]", "label i64"}},
        {",labels=1", {"points f32[1,2]", "label i64"}},
        {",labels=w", {"points f32[1,2]", "label f32"}},
        {",labels=w:id", {"points f32[1,2]", "label f32[2]"}},
        {",labels=[w,id]", {"points f32[1,2]", "label f32[2]"}},
        {",labels=kind", {"points f32[1,2]", "label i64"}},
        {",points=no", {"label f32[4]"}},
        {",labels=p_x", {"label i64"}},
        {",labels=p_y:p_x", {"label f32[2]"}},
        {",path=file,labels=none,points=no", {NULL}},
        {",path=2,labels=none,points=yes", {"points f32[1,2]"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mr_dataset *ds = open_text(text, cases[i].options);
        int n = 0;
        for (; cases[i].fields[n]; n++)
            test_field_is(ds, n + 1, cases[i].fields[n]);
        assert_int_equal(mr_dataset_fields(ds), n + 1);
        assert_string_equal(test_name_of(ds, 1), "b.jpg");
        mr_dataset_close(ds);
    }
    struct mr_dataset *ds = open_text(text, ",labels=kind");
    assert_int_equal(mr_dataset_classes(ds), 2);
    assert_string_equal(mr_dataset_class_name(ds, 1), "dog");
    assert_int_equal(test_label(ds, 1), 1);
    mr_dataset_close(ds);
    ds = open_text(text, ",labels=w:id");
    assert_memory_equal(test_row(ds, "label", 1), ((float[]){1, 2}), 8);
    mr_dataset_close(ds);
    ds = open_text(text, ",path=kind,labels=none");
    assert_string_equal(test_name_of(ds, 0), "cat");
    mr_dataset_close(ds);
}

static void headers_and_delimiters_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options;
        uint64_t n;
    } cases[] = {
        {"a.jpg,1\nb.jpg,2\n", "", 2},
        {"path,label\na.jpg,1\nb.jpg,2\n", "", 2},
        {"a,1\nb,2\n", "", 2},
        {"a,b\nc,1\n", "", 1},
        {"a,b\nc,1\n", ",header=yes", 1},
        {"a.jpg\nb.jpg\n", "", 2},
        {"a.jpg\nb.jpg\n", ",header=yes", 1},
        {"path\na.jpg", "", 1},
        {"a;1,5\nb;2\n", ",delimiter=semicolon,labels=none,header=no", 2},
        {"path;x\nb;2\n", "", 1},
        {"path\tx\nb\t2\n", "", 1},
        {"path|x\nb|2\n", "", 1},
        {"\"p;q;r\",x\nb,2\n", "", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mr_dataset *ds = open_text(cases[i].text, cases[i].options);
        assert_int_equal(mr_dataset_length(ds), cases[i].n);
        mr_dataset_close(ds);
    }
    struct mr_dataset *ds = open_text("a.jpg,1,2,3,4\n", ",points=yes");
    test_field_is(ds, 1, "points f32[2,2]");
    mr_dataset_close(ds);
}

/* Random cells, written with quotes where needed or not, read back: any line end, blank lines, a
 * byte order mark. */
static void what_is_written_is_read(void **state)
{
    (void)state;
    static const char alphabet[] = "ab,;\"\n\r \t|.\xc3\xa9";
    for (uint32_t seed = 0; seed < 300; seed++) {
        char cells[24][16], text[4096], *to = text;
        uint64_t r = test_random(seed * 64);
        size_t columns = 1 + r % 4, n = columns * (1 + (r >> 8) % 6), lengths[24];
        char delimiter = ",;\t|"[r >> 16 & 3];
        const char *end = ((const char *[]){"\n", "\r\n", "\r"})[(r >> 18) % 3];
        for (size_t i = 0; i < n; i++) {
            uint64_t s = test_random(seed * 64 + 1 + (uint32_t)i);
            bool quote = true;
            lengths[i] = s % 8;
            for (size_t k = 0; k < lengths[i]; k++)
                cells[i][k] = alphabet[(s >> (8 + 4 * k)) % (sizeof alphabet - 1)];
            cells[i][lengths[i]] = 0;
            /* A record of one blank cell is a blank line. */
            quote = s >> 63 || strpbrk(cells[i], ",;\"\n\r\t|") ||
                    (columns == 1 && strspn(cells[i], " ") == lengths[i]);
            if (quote)
                *to++ = '"';
            for (size_t k = 0; k < lengths[i]; k++) {
                if (cells[i][k] == '"')
                    *to++ = '"';
                *to++ = cells[i][k];
            }
            if (quote)
                *to++ = '"';
            bool last = i % columns == columns - 1;
            if (!last)
                *to++ = delimiter;
            else
                to = stpcpy(to, i == n - 1 && s >> 62 & 1 ? "" : end);
            if (last && s >> 61 & 1)
                to = stpcpy(to, i == n - 1 ? "" : end);
        }
        *to = 0;
        struct mr_csv csv = {
            .path = "text", .at = text, .end = to, .delimiter = delimiter, .line = 1};
        size_t i = 0;
        while (i < n) {
            assert_int_equal(mr_csv_next(&csv), 1);
            assert_int_equal(csv.n, columns);
            for (size_t c = 0; c < columns; c++, i++) {
                assert_int_equal(csv.cell[c].length, lengths[i]);
                assert_memory_equal(csv.cell[c].text, cells[i], lengths[i]);
            }
        }
        assert_int_equal(mr_csv_next(&csv), 0);
        mr_csv_free(&csv);
    }
}

/* Rounded as strtod rounds, whichever way a number is written. */
static void numbers_are_exact(void **state)
{
    (void)state;
    static const char *const formats[] = {"%.17g", "%.3f", "%.15g", "%.0f", "%g", "%.25e"};
    for (uint32_t i = 0; i < 60000; i++) {
        char text[400];
        uint64_t r = test_random(i);
        double scale = i & 1 ? 1 : pow(10, (double)(r >> 40 & 31) - 16), got = 0;
        snprintf(text, sizeof text, formats[i % 6], (double)(int64_t)r / 0x1p43 * scale);
        struct mr_slice cell = {text, strlen(text)};
        assert_int_equal(mr_csv_number(cell, &got), MR_CSV_FINITE);
        double want = strtod(text, NULL);
        assert_memory_equal(&got, &want, sizeof got);
    }
    static const struct {
        const char *text;
        enum mr_csv_number kind;
    } odd[] = {{"", MR_CSV_EMPTY},
               {"  ", MR_CSV_EMPTY},
               {"nan", MR_CSV_NOT_FINITE},
               {"-INF", MR_CSV_NOT_FINITE},
               {"Infinity", MR_CSV_NOT_FINITE},
               {"1e999", MR_CSV_NOT_FINITE},
               {"0x10", MR_CSV_TEXT},
               {"1,5", MR_CSV_TEXT},
               {"1 2", MR_CSV_TEXT},
               {".", MR_CSV_TEXT},
               {"-", MR_CSV_TEXT},
               {"e5", MR_CSV_TEXT},
               {"1e", MR_CSV_TEXT},
               {"nanx", MR_CSV_TEXT},
               {" 7\t", MR_CSV_FINITE},
               {"+7", MR_CSV_FINITE},
               {"-.5", MR_CSV_FINITE},
               {"5.", MR_CSV_FINITE},
               {"1.2.3", MR_CSV_TEXT},
               {"--1", MR_CSV_TEXT},
               {"1e-999", MR_CSV_FINITE},
               {"18446744073709551616", MR_CSV_FINITE}};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        double value = 0;
        assert_int_equal(mr_csv_number((struct mr_slice){odd[i].text, strlen(odd[i].text)}, &value),
                         odd[i].kind);
    }
}

static void whole_numbers_are_i64_and_others_f32(void **state)
{
    (void)state;
    static const struct {
        const char *values[3], *field;
    } cases[] = {
        {{"1", "-2", "3.0"}, "label i64"},
        {{"1", "2", "2.5"}, "label f32"},
        {{"9007199254740992", "0", "1e3"}, "label i64"},
        {{"9007199254740994", "0", "1"}, "label f32"},
        {{"16777216", "0", "2.5"}, "label f32"},
        {{"16777217", "0", "2.5"}, "label f64"},
        {{"2.5", "1", "-20000001"}, "label f64"},
        {{"nan", "1", "2"}, "label f32"},
        {{"1", "", "3"}, "label f32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "a.jpg,%s\nb.jpg,%s\nc.jpg,%s\n", cases[i].values[0],
                 cases[i].values[1], cases[i].values[2]);
        struct mr_dataset *ds = open_text(text, ",allow-nan");
        test_field_is(ds, 1, cases[i].field);
        for (uint64_t k = 0; k < 3; k++) {
            const void *row = test_row(ds, "label", k);
            double want = cases[i].values[k][0] ? strtod(cases[i].values[k], NULL) : (double)NAN;
            int64_t whole;
            float narrow;
            memcpy(&narrow, row, 4);
            if (ds->field[1].dtype == MR_I64) {
                memcpy(&whole, row, 8);
                assert_true((double)whole == want);
            } else if (ds->field[1].dtype == MR_F64) {
                double wide;
                memcpy(&wide, row, 8);
                assert_true(wide == want);
            } else {
                assert_true(narrow == (float)want || (isnan(narrow) && isnan(want)));
            }
        }
        mr_dataset_close(ds);
    }
}

/* Of several columns, too, no whole number comes out as another. */
static void large_whole_numbers_stay(void **state)
{
    (void)state;
    struct mr_dataset *ds = open_text("a.jpg,1,16777217\nb.jpg,-16777219,2\n", "");
    test_field_is(ds, 1, "label i64[2]");
    static const int64_t want[2][2] = {{1, 16777217}, {-16777219, 2}};
    for (uint64_t k = 0; k < 2; k++)
        assert_memory_equal(test_row(ds, "label", k), want[k], sizeof want[k]);
    mr_dataset_close(ds);
    ds = open_text("a.jpg,0.5,16777217\nb.jpg,1,2\n", "");
    test_field_is(ds, 1, "label f64[2]");
    assert_memory_equal(test_row(ds, "label", 0), ((const double[]){0.5, 16777217}), 16);
    mr_dataset_close(ds);
    ds = open_text("a.jpg,1,16777216\nb.jpg,1,2\n", "");
    test_field_is(ds, 1, "label f32[2]");
    mr_dataset_close(ds);
    test_fails(fails("a.jpg,9007199254740993\n", ""), MR_EFORMAT, "t.csv:1", "9007199254740993",
               "2^53", "labels=");
}

static void faults_are_named_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options;
        int code;
        const char *error;
    } bad[] = {
        {"", "", MR_EFORMAT, "t.csv: empty"},
        {"\n \r\n\t\n", "", MR_EFORMAT, "t.csv: empty"},
        {"path,label\n", "", MR_EFORMAT, "t.csv: one line, taken for the columns' names"},
        {"path,v\na.jpg,1\n\nb.jpg\n", "", MR_EFORMAT, "t.csv:4: 1 cells: expected 2"},
        {"path,v\na.jpg,1,2\n", "", MR_EFORMAT, "t.csv:2: 3 cells: expected 2"},
        {"path,v\n\"a\nb.jpg\",1\nc.jpg,x\n", "", MR_EFORMAT,
         "t.csv:4: column 'v': 'x': expected a number"},
        {"a.jpg,1\nb.jpg,x\n", "", MR_EFORMAT, "t.csv:2: column 2: 'x': expected a number"},
        {"path,v\na.jpg,nan\n", "", MR_EFORMAT,
         "t.csv:2: column 'v': 'nan': expected a finite number"},
        {"path,v\na.jpg,1\nb.jpg,-inf\n", "", MR_EFORMAT,
         "t.csv:3: column 'v': '-inf': expected a finite"},
        {"path,v\na.jpg,1\nb.jpg,\n", "", MR_EFORMAT, "t.csv:3: column 'v': '': expected a finite"},
        {"path,v,w\na.jpg,1,1e39\n", "", MR_EFORMAT,
         "t.csv:2: column 'w': '1e39': too large for f32"},
        {"path,v\n\"a.jpg,1\nb.jpg,2\n", "", MR_EFORMAT, "t.csv:2: a quote opens here"},
        {"path,v\n\"a\"b.jpg,1\n", "", MR_EFORMAT, "t.csv:2: text after a closing quote"},
        {"path,v\n../a.jpg,1\n", "", MR_EFORMAT, "t.csv:2: '../a.jpg' is outside the root folder"},
        {"path,v\na.jpg,1\n/etc/x.jpg,1\n", "", MR_EFORMAT, "t.csv:3: '/etc/x.jpg' is outside"},
        {"path,v\na.jpg,1\n,1\n", "", MR_EFORMAT, "t.csv:3: no path"},
        {"x,y\n1,2\n", "", MR_EFORMAT,
         "t.csv:2: no cell that could be a picture's path: set path=COLUMN"},
        {"path,v\na.jpg,1\n", ",path=image", MR_EOPTION,
         "t.csv: no column 'image': expected a name"},
        {"path,v\na.jpg,1\n", ",labels=v:u", MR_EOPTION, "no column 'u'"},
        {"path,v\na.jpg,1\n", ",labels=3", MR_EOPTION, "no column '3'"},
        {"path,v\na.jpg,1\n", ",labels=0", MR_EOPTION, "no column '0'"},
        {"path,v\na.jpg,1\n", ",labels=v:v", MR_EOPTION, "column 'v' appears twice"},
        {"path,v\na.jpg,1\n", ",labels=path", MR_EOPTION, "column 'path' is the column of paths"},
        {"path,v,u\na.jpg,1,x\n", ",labels=v:u", MR_EFORMAT,
         "t.csv:2: column 'u': 'x': expected a number"},
        {"path,v\na.jpg,1\n", ",points=yes", MR_EFORMAT, "points=yes: 1 columns of numbers"},
        {"path,v\na.jpg,1\n", ",points=maybe", MR_EOPTION, "points"},
        {"\xfe\xff"
         "path",
         "", MR_EFORMAT, "UTF-16"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        test_fails(fails(bad[i].text, bad[i].options), bad[i].code, bad[i].error);
    test_fails(test_open_fails("csv:/nowhere.csv"), -ENOENT, "/nowhere.csv");
}

static void many_columns_are_refused(void **state)
{
    (void)state;
    char *text = malloc(MR_CSV_MAX_COLUMNS + 2);
    assert_non_null(text);
    memset(text, ',', MR_CSV_MAX_COLUMNS);
    strcpy(text + MR_CSV_MAX_COLUMNS, "\n");
    test_fails(fails(text, ""), MR_ELIMIT, "t.csv:1: more than 65536 cells");
    free(text);
}

/* The numbers are the fingerprint's, too. */
static void fingerprints_tell_sets_apart(void **state)
{
    (void)state;
    static const char *const texts[] = {"p,a_x,a_y,v\na,1,2,3\n", "p,a_x,a_y,v\na,1,2,4\n",
                                        "p,a_x,a_y,v\na,1,3,3\n", "p,a_x,a_y,v\nb,1,2,3\n"};
    uint64_t print[4];
    for (size_t i = 0; i < 4; i++) {
        struct mr_dataset *ds = open_text(texts[i], "");
        print[i] = mr_dataset_fingerprint(ds);
        mr_dataset_close(ds);
        for (size_t k = 0; k < i; k++)
            assert_true(print[i] != print[k]);
    }
    struct mr_dataset *ds = open_text("p;b_x;b_y;w\r\n\"a\";1.0;2;3\r\n", "");
    assert_true(mr_dataset_fingerprint(ds) == print[0]);
    mr_dataset_close(ds);
}

/* The face landmarks: 69 faces, 68 points each, those of the text. */
static void real_landmarks(void **state)
{
    (void)state;
    const char *path = test_data("faces/face_landmarks.csv");
    if (!path)
        skip();
    struct mr_dataset *ds = test_open(path);
    assert_string_equal(mr_dataset_format(ds), "csv");
    assert_int_equal(mr_dataset_length(ds), 69);
    test_field_is(ds, 1, "points f32[68,2]");
    assert_int_equal(mr_dataset_fields(ds), 2);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char line[4096];
    assert_non_null(fgets(line, sizeof line, f));
    for (uint64_t i = 0; fgets(line, sizeof line, f); i++) {
        char *p = strchr(line, ',');
        const float *points = test_row(ds, "points", i);
        for (int k = 0; k < 136; k++) {
            assert_int_equal(*p, ',');
            assert_true(points[k] == (float)strtod(p + 1, &p));
        }
    }
    fclose(f);
    mr_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_labels_and_paths),
        cmocka_unit_test(columns_of_text_are_strings),
        cmocka_unit_test(columns_left_out_are_told),
        cmocka_unit_test(columns_are_chosen),
        cmocka_unit_test(headers_and_delimiters_are_found),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(whole_numbers_are_i64_and_others_f32),
        cmocka_unit_test(large_whole_numbers_stay),
        cmocka_unit_test(faults_are_named_with_their_line),
        cmocka_unit_test(many_columns_are_refused),
        cmocka_unit_test(fingerprints_tell_sets_apart),
        cmocka_unit_test(real_landmarks),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}

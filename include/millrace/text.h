/*
 * Texts from outside (file names, URLs, command lines) made fit to be shown or stored; numbers and
 * tables for people.
 *
 *     char shown[256];
 *     mr_text_hide("curl --token abc", shown, sizeof shown); // curl --token ***
 *     puts(mr_text_printable(shown));
 *
 * Threads: every function may be called from any thread, also in a forked child. All but
 * mr_text_table_write() allocate nothing.
 */
#ifndef MILLRACE_TEXT_H
#define MILLRACE_TEXT_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Replaces what a terminal would obey or show wrongly by question marks: control characters (C0
 * except tab, DEL, C1), characters that change the direction of text (U+061C, U+200E, U+200F,
 * U+202A to U+202E, U+2066 to U+2069), and bytes that are not UTF-8.
 * text: changed in place; it never gets longer. Returns text.
 */
MR_API char *mr_text_printable(char *text);

/*
 * Copies a text without its credentials. User and password of an http, https or s3 URL become
 * "***", query and fragment of an http or https URL "?...". The value in NAME=VALUE, "NAME: VALUE"
 * and "--NAME VALUE" becomes "***" if NAME is that of a secret: its last word is token, password,
 * secret, auth or similar. Paths that are not URLs do not change.
 * text: a URI, a message or a command line of any length.
 * [out] buf: cap bytes, cut to fit, NUL-terminated. cap: at least 1. Returns buf.
 */
MR_API const char *mr_text_hide(const char *text, char *buf, size_t cap);

/* Writes a text as mr_text_printable() would change it, with tabs shown as '?', too. Look at
 * ferror(to) for errors. */
MR_API void mr_text_write(const char *text, FILE *to);

/*
 * Writes a text into XML, SVG or HTML, between tags or as an attribute's value: & < > and " become
 * entities; control characters and bytes that are not UTF-8, for which XML has no form, become '?'.
 * Look at ferror(to) for errors.
 */
MR_API void mr_text_write_xml(const char *text, FILE *to);

/* ---- numbers ---- */

/* Units that grow with the number. */
enum mr_text_unit {
    MR_TEXT_BYTES,       /* B, KiB, ... EiB: steps of 1,024 */
    MR_TEXT_BYTES_1000,  /* B, kB, ... PB */
    MR_TEXT_BYTES_PER_S, /* B/s, kB/s, ... TB/s */
    MR_TEXT_NS,          /* ns, us, ms, s */
    MR_TEXT_NS_MICRO,    /* the same, with the micro sign */
    MR_TEXT_COUNT,       /* no unit, k, M, G, T */
    MR_TEXT_MILLIONS     /* M, G, T, P, E: of a number that counts millions */
};

/*
 * Picks the unit in which a number has one to three digits before the point.
 * unit: the unit of *value at the call. figures: significant digits, 1 to 15; rounding never shows
 * a whole step ("1000 kB").
 * [in, out] value: replaced by the value in the unit; negative ones are allowed.
 * [out] digits: how many behind the point, 0 to figures - 1; 0 for an integer in the smallest unit.
 * Returns the unit: constant, "" for none.
 */
MR_API const char *mr_text_scale(enum mr_text_unit unit, int figures, double *value, int *digits);

#define MR_TEXT_NUMBER 32

/*
 * Writes a number with three significant digits: "2.35 ms", "1.50 GiB", "512 B".
 * value: in the smallest unit of `unit`. [out] buf: always written; "-" if value is negative, not a
 * number or at least 1e60. Returns buf.
 */
MR_API const char *mr_text_number(double value, enum mr_text_unit unit, char buf[MR_TEXT_NUMBER]);

/* ---- tables ---- */

#define MR_TEXT_CELL 64
#define MR_TEXT_LINE 120

struct mr_text_column {
    const char *head; /* NULL: none; a table without any head has no line of heads */
    int right;        /* 1: aligned to the right, as numbers are */
    uint32_t least;   /* a long text may be cut to this many characters; 0: never cut */
};

struct mr_text_table {
    size_t size; /* of this struct, set by mr_text_table_init() */
    const struct mr_text_column *columns;
    uint32_t n_columns;
    uint64_t n_rows;
    /* Gives the text of a cell, "" for an empty one. buf: memory that it may use. The result is
     * read before the next call. Called at least twice per cell. */
    const char *(*cell)(const void *arg, uint64_t row, uint32_t column, char buf[MR_TEXT_CELL]);
    const void *arg; /* given to cell() */
    uint32_t indent; /* blanks before each line */
    uint32_t width;  /* characters of a line, to which columns are cut; UINT32_MAX (default): no
                      * limit; 0: the terminal's, or MR_TEXT_LINE if `to` is no terminal */
    int ruled;       /* 1: a line of dashes below the heads */
};

/* Sets table to the defaults. C and C++ call mr_text_table_init(); see millrace.h. */
MR_API void mr_text_table_fill(struct mr_text_table *table, size_t size);
static inline void mr_text_table_init(struct mr_text_table *table)
{
    mr_text_table_fill(table, sizeof *table);
}

/*
 * Writes aligned columns with two blanks between them. Widths count characters. Long texts lose
 * their middle ("...") where a line must fit. What a terminal would obey is shown as '?'.
 * Returns 0, MR_EMISUSE for a wrong size, or -ENOMEM, with nothing written; look at ferror(to) for
 * errors of the stream.
 */
MR_API int mr_text_table_write(const struct mr_text_table *table, FILE *to);

#ifdef __cplusplus
}
#endif
#endif

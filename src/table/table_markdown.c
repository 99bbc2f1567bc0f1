/* Tables in Markdown, as GitHub and pandoc read them: for issues and reports. */
#include "table/table.h"

#include <errno.h>
#include <string.h>

/* Nothing in a text may be read as markup: kernels' names have < > * _ and |. */
static void put_text(const char *text, FILE *to)
{
    for (const char *c = text; *c; c++) {
        if (strchr("\\`*_{}[]<>#|~&!", *c))
            putc('\\', to);
        putc((unsigned char)*c < ' ' || *c == 0x7f ? ' ' : *c, to);
    }
}

int mr_table_write_markdown(const struct mr_table *table, FILE *to)
{
    char buf[MR_TEXT_CELL];
    errno = 0;
    if (*table->title) {
        fputs("### ", to);
        put_text(table->title, to);
        fputs("\n\n", to);
    }
    for (uint32_t c = 0; c < table->n_columns && table->n_shown; c++) {
        fputs(c ? " | " : "| ", to);
        put_text(table->columns[c].head.name, to);
    }
    for (uint32_t c = 0; c < table->n_columns && table->n_shown; c++)
        fputs(table->columns[c].head.type == MR_CELL_TEXT ? (c ? " --- |" : " |\n| --- |")
                                                          : (c ? " ---: |" : " |\n| ---: |"),
              to);
    for (uint64_t r = 0; r < table->n_shown && !ferror(to); r++) {
        fputs("\n|", to);
        for (uint32_t c = 0; c < table->n_columns; c++) {
            putc(' ', to);
            put_text(mr_table_cell_text(table, r, c, buf), to);
            fputs(" |", to);
        }
    }
    fputs(table->n_shown ? "\n" : "", to);
    if (table->note) {
        fputs(table->n_shown ? "\n" : "", to);
        put_text(table->note, to);
        putc('\n', to);
    } else if (!table->n_shown)
        fputs("nothing\n", to);
    fflush(to);
    return ferror(to) ? -(errno ? errno : EIO) : 0;
}

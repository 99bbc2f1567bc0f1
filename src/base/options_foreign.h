/* Advice for options that other programs have. */
#ifndef MR_BASE_OPTIONS_FOREIGN_H
#define MR_BASE_OPTIONS_FOREIGN_H

/* An option of PyTorch's DataLoader or of nsys profile without an option of the same name here. */
struct mr_option_foreign {
    const char *name; /* without dashes; one letter: its short form */
    const char *ours; /* the row applies to tables that have this option */
    const char *text; /* what to do instead; follows "no such option; " */
};

/* The rows, ended by one whose name is NULL. If several have the same name, the first that applies
 * to the table is used. */
extern const struct mr_option_foreign mr_options_foreign[];

#endif

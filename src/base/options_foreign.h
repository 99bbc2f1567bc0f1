/* What to say of options that other programs have. */
#ifndef MR_BASE_OPTIONS_FOREIGN_H
#define MR_BASE_OPTIONS_FOREIGN_H

/* An option of PyTorch's DataLoader or of nsys profile that has no option of the same name here. */
struct mr_option_foreign {
    const char *name; /* without dashes; one letter: its short form */
    const char *ours; /* the entry is for tables that have this option */
    const char *text; /* what to do instead, behind "no such option; " */
};

/* The entries, ended by one whose name is NULL. Of several with the same name the first that fits
 * the table counts. */
extern const struct mr_option_foreign mr_options_foreign[];

#endif

/* Which of a file's named arrays are a sample's fields: the option fields=[a,b]. */
#ifndef MR_DATASET_ARRAYS_CHOSEN_H
#define MR_DATASET_ARRAYS_CHOSEN_H

#include "dataset/dataset.h"

struct mr_chosen {
    char *names; /* "a,b"; NULL: all */
    int n;
    bool have[MR_MAX_FIELDS]; /* by place */
    uint64_t n_seen;
    char seen[512]; /* the first dozen names that there are, for errors */
};

/* fields: "[a,b]", "a", NULL or "". path: for errors. What stands in out is freed with mr_chosen_free(), also after an error.
 * Returns 0, MR_ELIMIT (more than MR_MAX_FIELDS), -ENOMEM. */
int mr_chosen_parse(const char *path, const char *fields, struct mr_chosen *out);
void mr_chosen_free(struct mr_chosen *c);

/* Notes a name that there is: errors show the first dozen. All are noted before the first is taken. */
void mr_chosen_see(struct mr_chosen *c, const char *name);
/* Nothing chosen, and more there than a sample may have fields? 0, or MR_ELIMIT with the names. */
int mr_chosen_check_count(const struct mr_chosen *c, const char *path, const char *what);

/* Is a name wanted? */
bool mr_chosen_wants(const struct mr_chosen *c, const char *name);

/* The field that the array of this name becomes: its place among the chosen names, or else the next. what: "tensor".
 * Returns it, MR_ELIMIT (no room), MR_EFORMAT (twice). */
int mr_chosen_take(struct mr_chosen *c, const char *path, const char *what, const char *name);

/* Are all there? 0, MR_EFORMAT (nothing), MR_EOPTION (a name that was not found). */
int mr_chosen_check(const struct mr_chosen *c, const char *path, const char *what);

/* A field's name is the array's; of a longer one, its end, which tells more than its front. */
void mr_chosen_name(struct mr_spec *spec, const char *name);

#endif

/* Which of a file's named arrays are a sample's fields: the option fields=[a,b]. */
#ifndef MR_DATASET_ARRAYS_CHOSEN_H
#define MR_DATASET_ARRAYS_CHOSEN_H

#include "dataset/dataset.h"

struct mr_chosen {
    char *names; /* "a,b"; NULL: all */
    int n;
    bool have[MR_MAX_FIELDS]; /* one flag per field */
    uint64_t n_seen;
    char seen[512]; /* the first dozen names in the file, for errors */
};

/* fields: "[a,b]", "a", NULL or "". path: for errors. Free out with mr_chosen_free(), even after an
 * error. Returns 0, MR_ELIMIT (more than MR_MAX_FIELDS) or -ENOMEM. */
int mr_chosen_parse(const char *path, const char *fields, struct mr_chosen *out);
void mr_chosen_free(struct mr_chosen *c);

/* Records that the file has an array of this name; errors list the first dozen. Call it for all
 * arrays before the first mr_chosen_take(). */
void mr_chosen_see(struct mr_chosen *c, const char *name);
/* If no names were chosen, checks that the file has no more arrays than a sample may have fields.
 * Returns 0, or MR_ELIMIT with the names. */
int mr_chosen_check_count(const struct mr_chosen *c, const char *path, const char *what);

/* Returns whether the array of this name becomes a field. */
bool mr_chosen_wants(const struct mr_chosen *c, const char *name);

/* Returns the field of the array of this name: its index in the list of chosen names, or else the
 * next free one. what: "tensor". Errors: MR_ELIMIT (too many fields), MR_EFORMAT (seen twice). */
int mr_chosen_take(struct mr_chosen *c, const char *path, const char *what, const char *name);

/* Checks that all chosen arrays were found. Returns 0, MR_EFORMAT (no arrays) or MR_EOPTION (a name
 * that was not found). */
int mr_chosen_check(const struct mr_chosen *c, const char *path, const char *what);

/* Names a field after its array. A name that is too long is cut at the front: the end is more
 * specific. */
void mr_chosen_name(struct mr_spec *spec, const char *name);

#endif

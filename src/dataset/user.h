/*
 * What data sets made of a user's callbacks have in common: callback sets and located sets.
 *
 * Nothing that a callback returns is trusted. Its errors keep their text, with the data set's name
 * and the sample in front; what it may not return is MR_ECALLBACK.
 */
#ifndef MR_DATASET_USER_H
#define MR_DATASET_USER_H

#include "dataset/dataset.h"

/* The states of these data sets begin with it. */
struct mr_user {
    char *name;
    void *user;
    int (*init)(void *user, uint32_t worker, void **state);
    void (*exit)(void *user, uint32_t worker, void *state);
    void (*close)(void *user);
    bool opened; /* a failed open leaves the user's object to the user */
};

/* Takes what the caller gave: from has the callbacks and their argument, name may be NULL. ds has
 * its length and fields; they are checked. Returns 0, MR_EMISUSE, MR_ELIMIT, -ENOMEM. */
int mr_user_open(struct mr_dataset *ds, const struct mr_user *from, const char *name,
                 uint64_t version);
/* Opens by ops: from success on, closing the data set calls the user's close. */
int mr_user_make(const struct mr_dataset_ops *ops, const void *opts, struct mr_dataset **out);

/* The ops' functions. */
void mr_user_close(struct mr_dataset *ds);
int mr_user_enter(const struct mr_dataset *ds, uint32_t worker, void **state);
void mr_user_leave(const struct mr_dataset *ds, uint32_t worker, void *state);

/*
 * What a callback's return means. call: its name. rc: what it returned; most: the largest value
 * that it may return. errors: mr_error_count() before the call. Returns rc, or a negative error
 * whose text is set.
 */
int mr_user_result(const struct mr_dataset *ds, uint64_t index, const char *call, int rc, int most,
                   uint64_t errors);
/* Are the dimensions that a callback left within the specs? Returns 0 or MR_ECALLBACK. */
int mr_user_check_dims(const struct mr_dataset *ds, uint64_t index,
                       uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK]);

/* What a callback that makes one sample gets: the rows' memory, and the fields' dimensions, which
 * it may lower where they vary. */
void mr_user_rows(const struct mr_dataset *ds, const struct mr_sample *sample,
                  void *row[MR_MAX_FIELDS], uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK]);
/* Checks the dimensions that it left and gives them to the sample. Returns 0 or MR_ECALLBACK. */
int mr_user_take_dims(const struct mr_dataset *ds, uint64_t index,
                      uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], struct mr_sample *sample);

static inline struct mr_sample_context mr_user_context(const struct mr_sample *sample,
                                                       uint64_t index)
{
    return (struct mr_sample_context){.size = sizeof(struct mr_sample_context),
                                      .index = index,
                                      .epoch = sample->epoch,
                                      .seed = sample->seed,
                                      .position = sample->position,
                                      .worker = sample->worker,
                                      .worker_state = sample->worker_state};
}

#endif

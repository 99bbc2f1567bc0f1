/*
 * tf.train.Example and SequenceExample: the protobuf messages that records usually are. Only these
 * are read, by hand: seven nested messages of one kind of content each are less code than what a
 * protobuf library would need to be told, and no program has to link one.
 *
 *     Example          { Features features = 1; }
 *     SequenceExample  { Features context = 1; FeatureLists feature_lists = 2; }
 *     Features         { map<string, Feature> feature = 1; }
 *     FeatureLists     { map<string, FeatureList> feature_list = 1; }
 *     FeatureList      { repeated Feature feature = 1; }
 *     Feature          { oneof: BytesList = 1; FloatList = 2; Int64List = 3; }
 *     BytesList        { repeated bytes value = 1; }
 *     FloatList        { repeated float value = 1; }    packed or not
 *     Int64List        { repeated int64 value = 1; }    packed or not
 *
 * No function allocates, reads beyond the bytes it is given, or takes more time than their number.
 * Fields that are not in the table are skipped, as protobuf does.
 */
#ifndef MR_DATASET_RECORDS_EXAMPLE_H
#define MR_DATASET_RECORDS_EXAMPLE_H

#include <millrace/tensor.h>
#include <stdbool.h>
#include <stdint.h>

/* A part of a record that is still to be read. */
struct mr_wire {
    const uint8_t *p, *end;
};

/* A feature: its name, and the bytes of its Feature or, in a sequence, of its FeatureList. */
struct mr_feature {
    const uint8_t *name;
    uint64_t name_bytes;
    struct mr_wire content;
    bool sequence;
};

/* Which of the three lists a feature has. NONE: it has no value. */
enum mr_feature_list { MR_FEATURE_NONE, MR_FEATURE_BYTES, MR_FEATURE_FLOATS, MR_FEATURE_INTS };

/* What a feature has. A feature that is no sequence has one step. */
struct mr_feature_look {
    enum mr_feature_list list;
    uint64_t n; /* values, of all steps together */
    uint64_t steps;
    bool even;         /* each step has as many as the first */
    struct mr_wire at; /* of BYTES: the first value */
};

/* Calls see() for each feature of a record until it returns nonzero, and returns that; 0; or -1,
 * with [out] why: what is wrong. A name may come twice: the last one counts. */
int mr_example_each(const void *record, uint64_t bytes,
                    int (*see)(void *user, const struct mr_feature *feature), void *user,
                    const char **why);

/* [out] out, or -1 with [out] why. */
int mr_feature_look(const struct mr_feature *feature, struct mr_feature_look *out,
                    const char **why);

/* Writes the values of a feature that mr_feature_look() found right: look.n of them. */
void mr_feature_ints(const struct mr_feature *feature, int64_t *to);
/* The same as another integer type or bool. Returns whether all values fit. */
bool mr_feature_narrow(const struct mr_feature *feature, enum mr_dtype dtype, void *to);
void mr_feature_floats(const struct mr_feature *feature, float *to);
/* Of texts, all of which must have `each` bytes: end to end. Returns whether they have. */
bool mr_feature_bytes(const struct mr_feature *feature, uint64_t each, uint8_t *to);

#endif

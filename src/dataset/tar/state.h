/* Shared by the parts of tar data sets: opening (tar.c, shard.c) and samples (sample.c). */
#ifndef MR_DATASET_TAR_STATE_H
#define MR_DATASET_TAR_STATE_H

#include "dataset/arrays/npy.h"
#include "dataset/dataset.h"
#include "dataset/tar/tar.h"

struct mr_tar_shard {
    const char *name;
    int file;            /* id in ds->files */
    bool local, spooled; /* on this machine; unpacked to a temporary file */
    /* of local ones known at once, of remote ones when they are read */
    enum mr_tar_packing packing;
    struct mr_tar_index index;
    struct mr_tar_inflated inflated;
};

/* The layout of an npy member, after its header was parsed. */
struct mr_tar_array {
    const unsigned char *text; /* the whole header with preamble, in an index */
    uint32_t text_bytes;
    uint64_t bytes; /* of the elements, which follow the header */
    struct mr_npy_head head;
};

struct mr_tar_stream;
struct mr_tar_table;
struct mr_tar_held;
struct mr_tar_held_shard;

struct mr_tar_state {
    struct mr_tar_names names;
    struct mr_tar_shard *shard;
    uint64_t n_shards;
    bool plain; /* packed archives are refused */
    struct mr_tar_samples samples;
    struct mr_tar_field field[MR_MAX_FIELDS];
    struct mr_tar_array array[MR_MAX_FIELDS]; /* of npy fields: the first sample's layout */
    struct mr_class *class;                   /* NULL: labels have no names */
    struct cJSON *class_names;
    struct mr_tar_stream *stream;                /* NULL: the archives were indexed */
    struct mr_tar_table *table;                  /* NULL: shards were named one by one */
    struct mr_tar_held *held;                    /* the table's shards in use */
    const struct mr_tar_held_shard *first_shard; /* the first of them, which stays in use */
    int nothing; /* id of a one-byte file in memory, for samples that need no bytes */
};

/* A sample's members. */
struct mr_tar_one {
    const char *archive;
    int file; /* of the archive, in the table of files; of streams: not set */
    const struct mr_tar_index *index;
    uint32_t first;         /* member, which has its key */
    const uint32_t *member; /* of each field; MR_TAR_NONE: missing */
};
struct mr_tar_one mr_tar_one_of(const struct mr_dataset *ds, uint64_t sample);
/* Its member for field f; NULL if it has none. */
static inline const struct mr_tar_member *mr_tar_one_member(const struct mr_tar_one *one, int f)
{
    return one->member[f] == MR_TAR_NONE ? NULL : &one->index->member[one->member[f]];
}

/* Adds the shards to ds->files and finds the members of each. */
int mr_tar_shards_open(struct mr_dataset *ds, const struct mr_tar_opts *o);
/* Finds the members of one shard, whose name, file and local are set; not if it is packed. */
int mr_tar_shard_load(struct mr_dataset *ds, const struct mr_tar_opts *o, struct mr_tar_shard *s);
/* A remote archive may have changed without changing its size: is its last member still where its
 * index has it? Reads that member's header. */
bool mr_tar_shard_still_there(struct mr_files *files, const struct mr_tar_shard *s);
/* The members of a shard's samples by field. member: n_fields of each sample, MR_TAR_NONE; [out]:
 * those that there are. */
void mr_tar_assign(const struct mr_dataset *ds, const struct mr_tar_index *index,
                   const uint32_t *sample_of, uint32_t *member);
/* Opens a table of shards in place of the shards themselves, and closes it. */
int mr_tar_open_table(struct mr_dataset *ds, const struct mr_tar_opts *o);
void mr_tar_close_table(struct mr_dataset *ds);

/* Parses fields=, or chooses them by the extensions of the
 * first sample. Returns how many there are, or an error. */
int mr_tar_fields_open(struct mr_dataset *ds, const struct mr_tar_opts *o, const char *archive,
                       const char *const *ext, uint64_t n);
/* The spec of field f, as the first sample that has it says. Fields of bytes are left to the
 * caller. */
int mr_tar_spec_open(struct mr_dataset *ds, const struct mr_tar_opts *o, int f,
                     const struct mr_tar_one *one);

/* Reads the header of an npy member. who: for errors. */
int mr_tar_array_parse(const char *who, const struct mr_tar_index *index,
                       const struct mr_tar_member *m, struct mr_tar_array *out);

/* The shard of a sample, and the sample's member for field f (NULL if it has none). */
const struct mr_tar_shard *mr_tar_shard_of(const struct mr_tar_state *st, uint64_t sample);
const struct mr_tar_member *mr_tar_member_of(const struct mr_dataset *ds, uint64_t sample, int f);

/* Reads class names from the list beside the first shard (MR_TAR_CLASSES: a JSON array of strings),
 * if the shards are local. If there is no list or it does not fit the labels (a warning), there are
 * no names. Returns 0 or -ENOMEM. */
#define MR_TAR_CLASSES "classes.json"
int mr_tar_classes_open(struct mr_dataset *ds);

/* Parses the text of a sample's member as an integer. */
int mr_tar_label(const struct mr_tar_one *one, const struct mr_tar_member *m, int64_t *out);

#define MR_TAR_WHO_BYTES 512
/* "shard.tar: x/000017.jpg", for errors. Returns buf. */
const char *mr_tar_who(const struct mr_tar_one *one, const struct mr_tar_member *m,
                       char buf[MR_TAR_WHO_BYTES]);

int mr_tar_locate(const struct mr_dataset *ds, uint64_t index,
                  struct mr_extent out[MR_MAX_EXTENTS]);
/* The same of a sample whose members are known. */
int mr_tar_locate_one(const struct mr_dataset *ds, const struct mr_tar_one *one,
                      struct mr_extent out[MR_MAX_EXTENTS]);
int mr_tar_decode_one(const struct mr_dataset *ds, const struct mr_tar_one *one,
                      const struct mr_bytes in[], struct mr_sample *out);
int mr_tar_get_field_one(const struct mr_dataset *ds, const struct mr_tar_one *one, int f,
                         struct mr_sample *out, void **owned);
int mr_tar_decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out);
/* Makes a sample whose members are in memory: at base + their offsets. */
int mr_tar_decode_memory(const struct mr_dataset *ds, const struct mr_tar_one *one,
                         const unsigned char *base, struct mr_sample *out);
int mr_tar_get_field(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                     void **owned);

#endif

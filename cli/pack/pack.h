/* What the files of millrace pack share. */
#ifndef CLI_PACK_PACK_H
#define CLI_PACK_PACK_H

#include "cli.h"

struct pack_format;

struct pack_options {
    struct cli_common common;
    const struct pack_format *format;
    int format_number; /* of --format */
    uint64_t shard_bytes, shard_count, resize, quality, workers;
    int force, bad;
    char *rank_text, *world_text; /* cli_place() makes rank and world of them */
    uint32_t rank, world;
};
enum { PACK_BAD_FAIL, PACK_BAD_SKIP };

/* ---- a sample (sample.c) ---- */

/* A member of an archive, or a record. */
struct pack_member {
    char ext[40];
    void *data; /* malloc'd */
    uint64_t bytes;
};
struct pack_sample {
    int n, rc; /* rc: negative: it is bad, and text says why */
    char text[1024];
    struct pack_member member[MR_MAX_FIELDS];
};

/* A whole number, named label? */
bool pack_is_label(const struct mr_spec *spec);
/* Can all fields be written? Prints why not; returns an exit code. */
int pack_check_fields(const struct mr_dataset *ds, const struct pack_options *o);
/* Reads sample `index`. Any thread. */
void pack_sample_make(const struct mr_dataset *ds, const struct pack_options *o, uint64_t index,
                      struct pack_sample *out);
void pack_sample_free(struct pack_sample *s);

/* ---- pictures that are encoded again (jpeg.c) ---- */

/* NULL when this build can; else why not. */
const char *pack_jpeg_why_not(void);
/* Replaces the member's bytes where the options ask for another size or quality. Returns 0 or a
 * negative error, with mr_last_error() set. */
int pack_jpeg(const struct pack_options *o, const char *name, struct pack_member *m);

/* ---- a shard (shard.c) ---- */

struct pack_shard {
    const struct pack_format *format;
    struct cli_output out;
    void *hash; /* XXH64_state_t */
    bool alone; /* a file, not one of a folder's shards */
    uint64_t number, first, n, skipped, bytes, sum;
};
/* Exit codes, as all here. number and first: for the caller to set. */
int pack_shard_open(struct pack_shard *s, const struct pack_format *format, const char *path,
                    int force);
/* Writes bytes. Returns whether that worked; else errno says why not. */
bool pack_put(struct pack_shard *s, const void *bytes, size_t n);
int pack_shard_add(struct pack_shard *s, const char *key, const struct pack_sample *sample);
int pack_shard_finish(
    struct pack_shard *s); /* whole, on the disk, and under its name, with an index beside it */
void pack_shard_abort(struct pack_shard *s); /* removes what is not finished; always safe */

/* ---- formats: tar.c, record.c ---- */

#define PACK_URI 8192

struct pack_format {
    const char *name, *end; /* "tar", ".tar" */
    const char *all;        /* behind a folder's name: what opens the shards of all ranks */
    uint64_t end_bytes;     /* that finish() writes */
    int (*check)(const struct mr_dataset *ds); /* as pack_check_fields() */
    /* Makes members of what is stored, which it may take. picture: "jpg" and so on. Any thread. */
    int (*make)(const struct mr_dataset *ds, const char *picture, struct mr_stored stored[],
                struct pack_sample *out);
    uint64_t (*bytes)(const struct pack_sample *s); /* that it takes in a file */
    bool (*add)(struct pack_shard *s, const char *key, const struct pack_sample *sample);
    bool (*finish)(struct pack_shard *s);                   /* or NULL */
    int (*open)(const char *path, struct mr_dataset **out); /* with the index beside */
    void (*add_options)(const struct mr_dataset *ds, char *uri, size_t cap); /* or NULL */
};
extern const struct pack_format pack_tar, pack_tfrecord;

/* ---- what is done already (state.c) ---- */

struct pack_done {
    uint64_t number, first, n, skipped, bytes, sum;
};
#define PACK_PART 40
struct pack_state {
    const char *dir;
    const struct pack_format *format;
    char part[PACK_PART]; /* "-002-of-004": of this rank's names; "": one process packs all */
    uint32_t rank;
    uint64_t first, end;  /* the samples of this rank */
    int lock;             /* a descriptor of the folder, locked: by ranks together */
    struct cli_lock mine; /* a rank's own */
    char what[512];       /* source and options: a state of others does not fit */
    struct pack_done *shard;
    uint64_t n, room;
    bool done; /* a run before has finished */
};
/* Locks the folder, made when it is not there, and reads what is done of this rank's part. */
int pack_state_open(struct pack_state *st, const char *dir, const char *uri,
                    const struct mr_dataset *ds, const struct pack_options *o);
int pack_state_add(struct pack_state *st, const struct pack_shard *s); /* and writes it */
/* Writes the sums, and the names of classes where the data set has them; the state says then that
 * all is done. */
int pack_state_finish(struct pack_state *st, const struct mr_dataset *ds);
void pack_state_close(struct pack_state *st);

/* ---- a run (cmd_pack.c), and what it prints (report.c) ---- */

struct pack {
    const struct pack_options *o;
    struct mr_dataset *ds;
    const char *path; /* the folder, or the file */
    bool alone;       /* a file */
    struct pack_state state;
    struct pack_shard shard;
    bool open; /* the shard is */
    struct pack_sample *sample;
    uint64_t n_workers, first, n; /* samples first .. first + n - 1 are being made */
    _Atomic uint64_t next;
    uint64_t skipped, bytes, kept; /* kept: shards of a run before */
    int digits;
};
int pack_report(const struct pack *p, const struct mr_option *options, uint64_t ns);

#endif

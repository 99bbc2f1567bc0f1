/*
 * Data sets whose samples are a picture file each: folder, list, csv. The files stand in the table of files, lazily, in the
 * samples' order; labels and points stand in memory.
 */
#ifndef MR_DATASET_PICTURES_PHOTOS_H
#define MR_DATASET_PICTURES_PHOTOS_H

#include "dataset/dataset.h"

/* Text within a buffer; no NUL behind it. */
struct mr_slice {
    const char *text;
    size_t length;
};

/* What these data sets' states begin with; zeroed memory is an empty one. */
struct mr_photos {
    int first; /* file of sample 0; the others follow */
    struct {
        void *rows; /* malloc'd: of each sample `bytes`; NULL for the picture */
        uint64_t bytes;
    } field[MR_MAX_FIELDS];
    struct mr_class *class;
    char *class_text; /* the classes' names */
};

/* Declares field 0, the picture. */
void mr_photos_declare(struct mr_dataset *ds, const struct mr_picture_opts *opts);

/* Adds a field of n rows; takes `rows`, malloc'd, also on failure. Returns 0 or MR_EMISUSE (too many fields). */
int mr_photos_add_field(struct mr_dataset *ds, const struct mr_spec *spec, void *rows);

/* Says that pictures which are added from now on, up to mr_files_no_root(), may not leave the root by links; links: enum mr_links.
 * Of stores it says nothing: they have no links. Returns 0 or -ENOMEM. */
int mr_photos_root(struct mr_dataset *ds, const char *root, int links);
extern const char *const mr_photos_links[]; /* the choices of the option */

/* Adds the next sample's file, and its name to the fingerprint: root/name, or name where that begins with the root.
 * file, line: for errors; line 0: none. Returns 0; MR_EFORMAT for a name that leads out of the root or is none, MR_ELIMIT,
 * -ENOMEM. */
int mr_photos_add(struct mr_dataset *ds, const char *root, struct mr_slice name, const char *file,
                  uint64_t line);

/* Labels by name: names[i], of sample i, becomes labels[i], numbered in the order of the names; fills ds's classes.
 * Returns 0, MR_ELIMIT, -ENOMEM. */
int mr_photos_classes(struct mr_dataset *ds, const struct mr_slice *names, uint64_t n,
                      int64_t *labels);

/* Hashes all rows into the fingerprint, when all are there. */
void mr_photos_hash(struct mr_dataset *ds);

/* Reads a text file whole. [out] text: malloc'd, n bytes and a NUL; skip: of a byte order mark. Returns 0, MR_EFORMAT (NUL
 * bytes, UTF-16), MR_ELIMIT (more than memory holds), -errno, -ENOMEM. */
int mr_photos_read_text(const char *path, char **text, uint64_t *n, uint64_t *skip);

/* The folder of a path: malloc'd, "." for none; NULL without memory (the error is set). */
char *mr_photos_folder(const char *path);

/* Does a name end as pictures' do: .jpg, .jpeg, .png, .webp, in any case? */
bool mr_photos_named(const char *name, size_t length);

/* "12 pictures of 3 classes". Returns buf. */
const char *mr_photos_text(const struct mr_dataset *ds, char *buf, size_t cap);

/* The ops' functions. */
int mr_photos_locate(const struct mr_dataset *ds, uint64_t index,
                     struct mr_extent out[MR_MAX_EXTENTS]);
int mr_photos_decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                     struct mr_sample *out);
int mr_photos_get_field(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                        void **owned);
void mr_photos_close(struct mr_dataset *ds);

#endif

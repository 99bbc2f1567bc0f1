/*
 * Data sets with one picture file per sample: folder, list, csv. The pictures are lazy files in the
 * file table, in sample order; labels and points are in memory.
 */
#ifndef MR_DATASET_PICTURES_PHOTOS_H
#define MR_DATASET_PICTURES_PHOTOS_H

#include "dataset/dataset.h"

/* Text within a buffer, not terminated by NUL. */
struct mr_slice {
    const char *text;
    size_t length;
};

/* The first member of these data sets' states; all zeros is an empty one. */
struct mr_photos {
    int first; /* file id of sample 0; the others follow */
    struct {
        void *rows; /* malloc'd, `bytes` per sample; NULL for the picture */
        uint64_t bytes;
        uint64_t
            *at; /* text: malloc'd, where in `rows` sample i's begins, and i + 1's; else NULL */
    } field[MR_MAX_FIELDS];
    struct mr_class *class;
    char *class_text; /* class names */
};

/* Declares field 0, the picture. */
void mr_photos_declare(struct mr_dataset *ds, const struct mr_picture_opts *opts);

/* Adds a field of n rows. Takes ownership of `rows`, malloc'd, even on failure. Returns 0 or
 * MR_EMISUSE (too many fields). */
int mr_photos_add_field(struct mr_dataset *ds, const struct mr_spec *spec, void *rows);

/* The same for a field of text; at: n + 1 places in `text`. */
int mr_photos_add_text(struct mr_dataset *ds, const struct mr_spec *spec, char *text, uint64_t *at);

/* Forbids links that lead outside root for pictures added from now on, until mr_files_no_root();
 * links: enum mr_links. Has no effect for remote stores, which have no links. Returns 0 or
 * -ENOMEM. */
int mr_photos_root(struct mr_dataset *ds, const char *root, int links);
extern const char *const mr_photos_links[]; /* the choices of the option */

/* Adds the next sample's file, root/name (or name if it begins with root), and hashes the name into
 * the fingerprint. file, line: for errors; line 0 if there is none. Returns 0, MR_EFORMAT (an
 * invalid name, or one outside the root), MR_ELIMIT or -ENOMEM. */
int mr_photos_add(struct mr_dataset *ds, const char *root, struct mr_slice name, const char *file,
                  uint64_t line);

/* Numbers class names alphabetically and sets labels[i] for names[i], the class name of sample i;
 * fills ds's classes. Returns 0, MR_ELIMIT or -ENOMEM. */
int mr_photos_classes(struct mr_dataset *ds, const struct mr_slice *names, uint64_t n,
                      int64_t *labels);

/* Hashes all rows into the fingerprint, once they are complete. */
void mr_photos_hash(struct mr_dataset *ds);

/* Reads a whole text file. [out] text: malloc'd, n bytes and a NUL; skip: bytes of a byte order
 * mark. Returns 0, MR_EFORMAT (NUL bytes, UTF-16), MR_ELIMIT (too large for memory), -errno or
 * -ENOMEM. */
int mr_photos_read_text(const char *path, char **text, uint64_t *n, uint64_t *skip);

/* The folder part of a path, malloc'd; "." if there is none; NULL if out of memory (error set). */
char *mr_photos_folder(const char *path);

/* Returns whether a name ends in .jpg, .jpeg, .png or .webp, in upper or lower case. */
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

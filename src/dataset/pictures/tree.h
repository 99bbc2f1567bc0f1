/*
 * Folders of files with one sub-folder per class, numbered and ordered as torchvision's ImageFolder
 * does: classes by name; within a class, folders by path as text, and the files of each by name.
 * Names that begin with a dot are skipped.
 */
#ifndef MR_DATASET_PICTURES_TREE_H
#define MR_DATASET_PICTURES_TREE_H

#include "dataset/dataset.h"

/* The caller sets the upper part, zeroes the rest, and frees class and class_text, even after an
 * error. */
struct mr_tree {
    const char *root; /* a folder, or a remote place that can be listed */
    const char *what; /* the wanted files, for errors: "pictures (.jpg, .png)" */
    /* advice if there are only files of other kinds: "videos? video: opens those" */
    const char *hint;
    bool (*wanted)(const char *name, size_t length);
    int (*add)(void *user,
               /* adds the next file; path: relative to the root. Returns 0 or an error */
               const char *path);
    void *user;
    int labels;       /* enum mr_folder_labels */
    bool allow_empty; /* classes without files are no error */
    /* result */
    uint64_t n;         /* files added */
    uint64_t n_beside;  /* wanted files beside the class folders: ignored */
    uint64_t n_others;  /* files of other kinds in the folders visited: ignored */
    uint64_t n_classes; /* 0: no labels */
    struct mr_class *class;
    char *class_text; /* class names */
};

/* Returns 0, MR_EFORMAT (no files, an empty class, a link loop), MR_ELIMIT, -ENOMEM or a storage
 * error. */
int mr_tree_walk(struct mr_tree *tree);

/* " (left out: 1 beside the classes, 2 other files)", or "". Returns buf. */
const char *mr_tree_left_out(uint64_t beside, uint64_t others, char *buf, size_t cap);

/* The label of each file, malloc'd; NULL if out of memory (error set). */
int64_t *mr_tree_labels(const struct mr_tree *tree);

/* Returns whether this local folder, or one of its first few sub-folders, has a wanted file. */
bool mr_tree_sniff(const char *path, bool (*wanted)(const char *name, size_t length));

#endif

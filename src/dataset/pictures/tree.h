/*
 * Folders of files with a class a sub-folder, as torchvision's ImageFolder numbers and orders them: classes by name; within a
 * class, folders by path as text, and in each its files by name. Names that begin with a dot are skipped.
 */
#ifndef MR_DATASET_PICTURES_TREE_H
#define MR_DATASET_PICTURES_TREE_H

#include "dataset/dataset.h"

/* The caller fills the upper part, zeroes the rest, and frees class and class_text, also after an error. */
struct mr_tree {
    const char *root; /* a folder, or a place that can be listed */
    const char *what; /* files that are wanted, for errors: "pictures (.jpg, .png)" */
    const char *
        hint; /* on other files where there are none that are wanted: "videos? video: opens those" */
    bool (*wanted)(const char *name, size_t length);
    int (*add)(void *user,
               const char *path); /* the next file; path: below the root. Returns 0 or an error */
    void *user;
    int labels;       /* enum mr_folder_labels */
    bool allow_empty; /* classes without files are no error */
    /* result */
    uint64_t n;         /* files added */
    uint64_t n_beside;  /* wanted files that stand beside the classes' folders: left out */
    uint64_t n_others;  /* files of other kinds in the folders that were gone through: left out */
    uint64_t n_classes; /* 0: no labels */
    struct mr_class *class;
    char *class_text; /* their names */
};

/* Returns 0; MR_EFORMAT (no files, an empty class, a folder within itself), MR_ELIMIT, -ENOMEM, an error of the store. */
int mr_tree_walk(struct mr_tree *tree);

/* " (left out: 1 beside the classes, 2 other files)"; "" when nothing is. Returns buf. */
const char *mr_tree_left_out(uint64_t beside, uint64_t others, char *buf, size_t cap);

/* The label of each file: malloc'd; NULL without memory (the error is set). */
int64_t *mr_tree_labels(const struct mr_tree *tree);

/* Is there such a file in this local folder, or in one of the first few in it? */
bool mr_tree_sniff(const char *path, bool (*wanted)(const char *name, size_t length));

#endif

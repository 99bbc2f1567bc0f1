/* Walks class folders: classes by name; within a class, folders by path as text, and the files of
 * each by name. */
#include "dataset/pictures/tree.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH  100 /* nesting of folders */
#define SNIFF_DIRS 8   /* number of sub-folders searched for a file */

/* ---- lists of names ---- */

/* Names one after the other, each ended by NUL, and their offsets. */
struct names {
    char *text;
    size_t used, *at, n;
    uint64_t room, n_room; /* capacity of text and of at */
};

static int names_add(struct names *names, const char *name)
{
    static const char list[] = "names of files";
    size_t length = strlen(name) + 1;
    if (mr_grow(list, &names->text, &names->room, names->used + length, 1) < 0)
        return -ENOMEM;
    if (mr_grow(list, &names->at, &names->n_room, names->n + 1, sizeof *names->at) < 0)
        return -ENOMEM;
    memcpy(names->text + names->used, name, length);
    names->at[names->n++] = names->used;
    names->used += length;
    return 0;
}

static const char *name_at(const struct names *names, uint64_t i)
{
    return names->text + names->at[i];
}

static int by_name(const void *a, const void *b, void *text)
{
    return strcmp((const char *)text + *(const size_t *)a, (const char *)text + *(const size_t *)b);
}

static void names_sort(struct names *names)
{
    if (names->n > 1)
        qsort_r(names->at, names->n, sizeof *names->at, by_name, names->text);
}

static void names_clear(struct names *names)
{
    names->used = 0;
    names->n = 0;
}

static void names_free(struct names *names)
{
    free(names->text);
    free(names->at);
}

/* ---- one folder ---- */

struct listing {
    const struct mr_tree *tree;
    struct names files, folders;
    uint64_t others; /* files of other kinds in all listed folders */
};

static int on_entry(void *user, const char *name, bool folder, uint64_t bytes)
{
    struct listing *l = user;
    (void)bytes;
    if (name[0] == '.')
        return 0;
    if (folder)
        return names_add(&l->folders, name);
    if (l->tree->wanted(name, strlen(name)))
        return names_add(&l->files, name);
    l->others++;
    return 0;
}

static int list(const char *place, struct listing *l)
{
    names_clear(&l->files);
    names_clear(&l->folders);
    int rc = mr_store_list(place, on_entry, l);
    names_sort(&l->files);
    names_sort(&l->folders);
    return MR_MIN(rc, 0);
}

/* ---- all folders of a class ---- */

struct dir {
    size_t path;   /* offset in walk.paths of the path below the root, "" for the root */
    int64_t above; /* index of its parent, -1: none */
    int depth;
    dev_t device; /* both 0 for stores without inodes */
    ino_t inode;
};

struct walk {
    struct mr_tree *tree;
    struct listing listing;
    struct names paths;
    struct dir *dirs;
    size_t n_dirs;
    size_t *order; /* indices of dirs */
    uint64_t room, order_room;
};

static int join(char path[PATH_MAX], const char *front, const char *name)
{
    size_t n = strlen(front);
    const char *slash = n > 0 && name[0] && front[n - 1] != '/' ? "/" : "";
    int length = snprintf(path, PATH_MAX, "%s%s%s", front, slash, name);
    return length < PATH_MAX
               ? 0
               : mr_error_set(MR_ELIMIT, "%s: a path of %d bytes: expected at most %d", front,
                              length, PATH_MAX - 1);
}

/* A link to a folder above would make the walk endless. */
static int check_loop(const struct walk *w, const struct dir *d, const char *place)
{
    for (int64_t i = d->above; i >= 0 && d->inode; i = w->dirs[i].above)
        if (w->dirs[i].device == d->device && w->dirs[i].inode == d->inode)
            return mr_error_set(MR_EFORMAT,
                                "%s: leads back to a folder that contains it: remove "
                                "the link",
                                place);
    if (d->depth > MAX_DEPTH)
        return mr_error_set(MR_ELIMIT, "%s: more than %d folders within each other", place,
                            MAX_DEPTH);
    return 0;
}

/* path: below the root. */
static int add_dir(struct walk *w, const char *path, int64_t above)
{
    char place[PATH_MAX];
    struct stat st;
    struct dir d = {
        .path = w->paths.used, .above = above, .depth = above < 0 ? 0 : w->dirs[above].depth + 1};
    int rc = join(place, w->tree->root, path);
    if (rc < 0)
        return rc;
    rc = names_add(&w->paths, path);
    if (rc < 0)
        return rc;
    rc = mr_grow("list of folders", &w->dirs, &w->room, w->n_dirs + 1, sizeof *w->dirs);
    if (rc < 0)
        return rc;
    if (stat(place, &st) == 0) {
        d.device = st.st_dev;
        d.inode = st.st_ino;
    }
    w->dirs[w->n_dirs++] = d;
    return check_loop(w, &d, place);
}

static const char *dir_path(const struct walk *w, size_t i)
{
    return w->paths.text + w->dirs[i].path;
}

static int list_dir(struct walk *w, size_t i)
{
    char place[PATH_MAX];
    int rc = join(place, w->tree->root, dir_path(w, i));
    return rc < 0 ? rc : list(place, &w->listing);
}

/* Finds the folders below folder 0, breadth first. */
static int find_dirs(struct walk *w)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < w->n_dirs; i++) {
        int rc = list_dir(w, i);
        if (rc < 0)
            return rc;
        for (uint64_t k = 0; k < w->listing.folders.n; k++) {
            rc = join(path, dir_path(w, i), name_at(&w->listing.folders, k));
            if (rc < 0)
                return rc;
            rc = add_dir(w, path, (int64_t)i);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int by_path(const void *a, const void *b, void *user)
{
    const struct walk *w = user;
    return strcmp(dir_path(w, *(const size_t *)a), dir_path(w, *(const size_t *)b));
}

static int add_files(struct walk *w, size_t i)
{
    char path[PATH_MAX];
    for (uint64_t k = 0; k < w->listing.files.n; k++) {
        int rc = join(path, dir_path(w, i), name_at(&w->listing.files, k));
        if (rc < 0)
            return rc;
        rc = w->tree->add(w->tree->user, path);
        if (rc < 0)
            return rc;
        w->tree->n++;
    }
    return 0;
}

/* Adds all wanted files in a folder (relative to the root) and below. A folder without sub-folders,
 * the common case, is listed only once. */
static int add_tree(struct walk *w, const char *folder)
{
    names_clear(&w->paths);
    w->n_dirs = 0;
    int rc = add_dir(w, folder, -1);
    if (rc < 0)
        return rc;
    rc = find_dirs(w);
    if (rc < 0)
        return rc;
    const uint64_t others = w->listing.others; /* of this folder, counted once */
    rc = mr_grow("list of folders", &w->order, &w->order_room, w->n_dirs, sizeof *w->order);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < w->n_dirs; i++)
        w->order[i] = i;
    qsort_r(w->order, w->n_dirs, sizeof *w->order, by_path, w);
    for (size_t i = 0; i < w->n_dirs; i++) {
        rc = w->n_dirs > 1 ? list_dir(w, w->order[i]) : 0;
        if (rc < 0)
            return rc;
        rc = add_files(w, w->order[i]);
        if (rc < 0)
            return rc;
    }
    w->listing.others = others;
    return 0;
}

/* ---- classes ---- */

/* The error suggests removing an empty class only if its folder has no other files. */
static int empty_class(const struct mr_tree *t, uint64_t k, uint64_t others)
{
    if (others == 0)
        return mr_error_set(MR_EFORMAT,
                            "%s: class '%s' has no %s: remove the folder, or set allow-empty",
                            t->root, t->class[k].name, t->what);
    return mr_error_set(
        MR_EFORMAT, "%s: class '%s' has no %s, %llu other file%s: %s; or set allow-empty", t->root,
        t->class[k].name, t->what, (unsigned long long)others, others == 1 ? "" : "s", t->hint);
}

static int add_class(struct walk *w, uint64_t k)
{
    struct mr_tree *t = w->tree;
    uint64_t before = t->n, others = w->listing.others;
    int rc = add_tree(w, t->class[k].name);
    if (rc < 0)
        return rc;
    t->class[k].n = t->n - before;
    return t->n == before && !t->allow_empty ? empty_class(t, k, w->listing.others - others) : 0;
}

/* folders: sorted class names; takes ownership. */
static int take_classes(struct mr_tree *t, struct names *folders)
{
    t->class = calloc(folders->n, sizeof *t->class);
    if (!t->class)
        return mr_error_nomem(t->root, folders->n * sizeof *t->class);
    for (uint64_t k = 0; k < folders->n; k++)
        t->class[k].name = name_at(folders, k);
    t->class_text = folders->text;
    t->n_classes = folders->n;
    folders->text = NULL;
    folders->used = folders->room = 0;
    return 0;
}

/* top: listing of the root. */
static int add_all(struct walk *w, struct listing *top)
{
    struct mr_tree *t = w->tree;
    if (t->labels == MR_FOLDER_CLASSES && top->folders.n == 0)
        return mr_error_set(MR_EFORMAT, "%s: no sub-folders: expected one a class, or labels=none",
                            t->root);
    bool classes = t->labels != MR_FOLDER_PLAIN && top->folders.n > 0;
    int rc = classes ? take_classes(t, &top->folders) : add_tree(w, "");
    for (uint64_t k = 0; rc == 0 && k < t->n_classes; k++)
        rc = add_class(w, k);
    if (rc < 0)
        return rc;
    unsigned long long others = w->listing.others + (classes ? top->others : 0);
    if (t->n == 0)
        return mr_error_set(MR_EFORMAT, "%s: no %s, %llu other files%s%s", t->root, t->what, others,
                            others ? ": " : "", others ? t->hint : "");
    t->n_beside = classes ? top->files.n : 0;
    t->n_others = w->listing.others;
    return 0;
}

int mr_tree_walk(struct mr_tree *tree)
{
    struct walk w = {.tree = tree, .listing.tree = tree};
    struct listing top = {.tree = tree};
    int rc = list(tree->root, &top);
    if (rc < 0)
        goto free_names;
    rc = add_all(&w, &top);
free_names:
    names_free(&top.files);
    names_free(&top.folders);
    names_free(&w.listing.files);
    names_free(&w.listing.folders);
    names_free(&w.paths);
    free(w.dirs);
    free(w.order);
    return rc;
}

const char *mr_tree_left_out(uint64_t beside, uint64_t others, char *buf, size_t cap)
{
    char one[48] = "", two[48] = "";
    if (beside > 0)
        snprintf(one, sizeof one, "%llu beside the classes", (unsigned long long)beside);
    if (others > 0)
        snprintf(two, sizeof two, "%llu other file%s", (unsigned long long)others,
                 others == 1 ? "" : "s");
    snprintf(buf, cap, "%s%s%s%s%s", beside + others ? " (left out: " : "", one,
             beside && others ? ", " : "", two, beside + others ? ")" : "");
    return buf;
}

int64_t *mr_tree_labels(const struct mr_tree *tree)
{
    int64_t *labels =
        tree->n < SIZE_MAX / sizeof *labels ? malloc(MR_MAX(tree->n, 1) * sizeof *labels) : NULL;
    if (!labels) {
        mr_error_nomem(tree->root, tree->n * sizeof *labels);
        return NULL;
    }
    for (uint64_t k = 0, i = 0; k < tree->n_classes; k++)
        for (uint64_t j = 0; j < tree->class[k].n; j++)
            labels[i++] = (int64_t)k;
    return labels;
}

/* ---- sniffing ---- */

struct look {
    bool (*wanted)(const char *name, size_t length);
    bool found;
    int n_folders;
    char folder[SNIFF_DIRS][NAME_MAX + 1];
};

/* Stops at the first wanted file. */
static int look_at(void *user, const char *name, bool folder, uint64_t bytes)
{
    struct look *k = user;
    (void)bytes;
    if (name[0] == '.')
        return 0;
    k->found = !folder && k->wanted(name, strlen(name));
    if (folder && k->n_folders < SNIFF_DIRS && strlen(name) <= NAME_MAX)
        strcpy(k->folder[k->n_folders++], name);
    return k->found;
}

bool mr_tree_sniff(const char *path, bool (*wanted)(const char *name, size_t length))
{
    char place[PATH_MAX];
    struct stat st;
    struct look k = {.wanted = wanted}, below = {.wanted = wanted, .n_folders = SNIFF_DIRS};
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return false;
    mr_store_list(path, look_at, &k);
    for (int i = 0; i < k.n_folders && !k.found; i++)
        if (join(place, path, k.folder[i]) == 0 && mr_store_list(place, look_at, &below) > 0)
            return true;
    return k.found;
}

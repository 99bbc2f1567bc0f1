/*
 * Folders of pictures, a class a sub-folder: labels and order as torchvision's ImageFolder has them. That is: classes by
 * name; within a class, folders by path as text, and in each its files by name.
 */
#include "dataset/photos.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH  100 /* folders within each other */
#define SNIFF_DIRS 8   /* sub-folders that are looked into for a picture */

struct state {
    struct mr_photos photos; /* first */
};

/* ---- lists of names ---- */

/* Names one after the other, each with a NUL, and where each begins. */
struct names {
    char *text;
    size_t used, room;
    size_t *at, n, n_room;
};

/* data, or what it was moved to, with room for `want` units; NULL without memory: data stays. */
static void *grow(void *data, size_t *room, size_t want, size_t unit)
{
    if (want <= *room)
        return data;
    size_t more = MR_MAX(want, *room * 2 + 64);
    void *grown = more < SIZE_MAX / 2 / unit ? realloc(data, more * unit) : NULL;
    if (grown)
        *room = more;
    else
        mr_error_nomem("folder", more * unit);
    return grown;
}

static int names_add(struct names *names, const char *name)
{
    size_t length = strlen(name) + 1;
    char *text = grow(names->text, &names->room, names->used + length, 1);
    if (!text)
        return -ENOMEM;
    names->text = text;
    size_t *at = grow(names->at, &names->n_room, names->n + 1, sizeof *at);
    if (!at)
        return -ENOMEM;
    names->at = at;
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
    struct names files, folders;
    uint64_t others; /* files that are no pictures */
};

static int on_entry(void *user, const char *name, bool folder, uint64_t bytes)
{
    struct listing *l = user;
    (void)bytes;
    if (name[0] == '.')
        return 0;
    if (folder)
        return names_add(&l->folders, name);
    if (mr_photos_named(name, strlen(name)))
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
    size_t path;   /* in walk.paths: below the root, "" for the root */
    int64_t above; /* its folder, -1: none */
    int depth;
    dev_t device; /* both 0 where the store has no such things */
    ino_t inode;
};

struct walk {
    struct mr_dataset *ds;
    const char *root;
    struct listing listing;
    struct names paths;
    struct dir *dirs;
    size_t n_dirs, room;
    size_t *order; /* of dirs */
    size_t order_room;
};

static int join(char path[PATH_MAX], const char *front, const char *name)
{
    size_t n = strlen(front);
    const char *slash = n > 0 && name[0] && front[n - 1] != '/' ? "/" : "";
    int length = snprintf(path, PATH_MAX, "%s%s%s", front, slash, name);
    return length < PATH_MAX
               ? 0
               : mr_error_set(MR_ELIMIT, "%s: a path of %d bytes: want at most %d", front, length, PATH_MAX - 1);
}

/* A link to a folder above would be walked for ever. */
static int check_loop(const struct walk *w, const struct dir *d, const char *place)
{
    for (int64_t i = d->above; i >= 0 && d->inode; i = w->dirs[i].above)
        if (w->dirs[i].device == d->device && w->dirs[i].inode == d->inode)
            return mr_error_set(MR_EFORMAT, "%s: leads back to a folder that it lies in: remove the link", place);
    if (d->depth > MAX_DEPTH)
        return mr_error_set(MR_ELIMIT, "%s: more than %d folders within each other", place, MAX_DEPTH);
    return 0;
}

/* path: below the root. */
static int add_dir(struct walk *w, const char *path, int64_t above)
{
    char place[PATH_MAX];
    struct stat st;
    struct dir d = {.path = w->paths.used, .above = above, .depth = above < 0 ? 0 : w->dirs[above].depth + 1};
    int rc = join(place, w->root, path);
    if (rc == 0)
        rc = names_add(&w->paths, path);
    struct dir *dirs = rc == 0 ? grow(w->dirs, &w->room, w->n_dirs + 1, sizeof *dirs) : NULL;
    if (!dirs)
        return rc < 0 ? rc : -ENOMEM;
    w->dirs = dirs;
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
    int rc = join(place, w->root, dir_path(w, i));
    return rc < 0 ? rc : list(place, &w->listing);
}

/* Finds the folders below folder 0, breadth first. */
static int find_dirs(struct walk *w)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < w->n_dirs; i++) {
        int rc = list_dir(w, i);
        for (uint64_t k = 0; rc == 0 && k < w->listing.folders.n; k++) {
            rc = join(path, dir_path(w, i), name_at(&w->listing.folders, k));
            if (rc == 0)
                rc = add_dir(w, path, (int64_t)i);
        }
        if (rc < 0)
            return rc;
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
        if (rc == 0)
            rc = mr_photos_add(w->ds, w->root, (struct mr_slice){path, strlen(path)}, w->root, 0);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Adds all pictures in a folder (below the root) and in those below it. A folder alone, the common case, is listed once. */
static int add_tree(struct walk *w, const char *folder)
{
    names_clear(&w->paths);
    w->n_dirs = 0;
    int rc = add_dir(w, folder, -1);
    if (rc == 0)
        rc = find_dirs(w);
    size_t *order = rc == 0 ? grow(w->order, &w->order_room, w->n_dirs, sizeof *order) : NULL;
    if (!order)
        return rc < 0 ? rc : -ENOMEM;
    w->order = order;
    for (size_t i = 0; i < w->n_dirs; i++)
        w->order[i] = i;
    qsort_r(w->order, w->n_dirs, sizeof *w->order, by_path, w);
    for (size_t i = 0; rc == 0 && i < w->n_dirs; i++) {
        if (w->n_dirs > 1)
            rc = list_dir(w, w->order[i]);
        if (rc == 0)
            rc = add_files(w, w->order[i]);
    }
    return rc;
}

/* ---- classes ---- */

static int add_class(struct walk *w, const struct mr_folder_opts *o, uint64_t k)
{
    struct mr_photos *p = w->ds->state;
    uint64_t before = w->ds->n;
    int rc = add_tree(w, p->class[k].name);
    if (rc < 0)
        return rc;
    p->class[k].n = w->ds->n - before;
    if (w->ds->n == before && !o->allow_empty)
        return mr_error_set(MR_EFORMAT,
                            "%s: class '%s' has no pictures (.jpg, .jpeg, .png, .webp): remove the folder, or set "
                            "allow-empty",
                            w->root, p->class[k].name);
    return 0;
}

/* folders: the classes' names, sorted; taken over. */
static int take_classes(struct mr_dataset *ds, struct names *folders)
{
    struct mr_photos *p = ds->state;
    p->class = calloc(folders->n, sizeof *p->class);
    if (!p->class)
        return mr_error_nomem(ds->ops->name, folders->n * sizeof *p->class);
    for (uint64_t k = 0; k < folders->n; k++)
        p->class[k].name = name_at(folders, k);
    p->class_text = folders->text;
    folders->text = NULL;
    folders->used = folders->room = 0;
    ds->class = p->class;
    ds->n_classes = folders->n;
    return 0;
}

static int add_labels(struct mr_dataset *ds)
{
    struct mr_spec spec = {.name = "label", .dtype = MR_I64};
    int64_t *labels = malloc(ds->n * sizeof *labels);
    if (!labels)
        return mr_error_nomem(ds->ops->name, ds->n * sizeof *labels);
    for (uint64_t k = 0, i = 0; k < ds->n_classes; k++)
        for (uint64_t j = 0; j < ds->class[k].n; j++)
            labels[i++] = (int64_t)k;
    return mr_photos_add_field(ds, &spec, labels);
}

/* top: what stands in the root. */
static int add_classes(struct walk *w, const struct mr_folder_opts *o, struct listing *top)
{
    int rc = take_classes(w->ds, &top->folders);
    for (uint64_t k = 0; rc == 0 && k < w->ds->n_classes; k++)
        rc = add_class(w, o, k);
    return rc == 0 && w->ds->n > 0 ? add_labels(w->ds) : rc;
}

static int fill(struct walk *w, const struct mr_folder_opts *o, struct listing *top)
{
    if (o->labels == MR_FOLDER_CLASSES && top->folders.n == 0)
        return mr_error_set(MR_EFORMAT, "%s: no sub-folders: want one a class, or labels=none", o->path);
    bool classes = o->labels != MR_FOLDER_PLAIN && top->folders.n > 0;
    int rc = classes ? add_classes(w, o, top) : add_tree(w, "");
    if (rc < 0)
        return rc;
    if (w->ds->n == 0)
        return mr_error_set(MR_EFORMAT, "%s: no pictures (.jpg, .jpeg, .png, .webp), %llu other files", o->path,
                            (unsigned long long)(w->listing.others + (classes ? top->others : 0)));
    char text[80];
    uint64_t left = classes ? top->files.n : 0;
    int n = snprintf(w->ds->text, sizeof w->ds->text, "folder: %.60s: %s", mr_base_name(o->path),
                     mr_photos_text(w->ds, text, sizeof text));
    if (left > 0 && n > 0 && (size_t)n < sizeof w->ds->text)
        snprintf(w->ds->text + n, sizeof w->ds->text - (size_t)n, " (left out: %llu beside the classes)",
                 (unsigned long long)left);
    return 0;
}

static int open_folder(struct mr_dataset *ds, const void *options)
{
    const struct mr_folder_opts *o = options;
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "folder: no path: want folder:DIR");
    struct walk w = {.ds = ds, .root = o->path};
    struct listing top = {{0}};
    mr_photos_declare(ds, &o->picture);
    int rc = list(o->path, &top);
    if (rc == 0)
        rc = fill(&w, o, &top);
    if (rc == 0)
        mr_photos_hash(ds);
    names_free(&top.files);
    names_free(&top.folders);
    names_free(&w.listing.files);
    names_free(&w.listing.folders);
    names_free(&w.paths);
    free(w.dirs);
    free(w.order);
    return rc;
}

/* ---- sniffing ---- */

struct look {
    bool picture;
    int n_folders;
    char folder[SNIFF_DIRS][NAME_MAX + 1];
};

/* Stops at the first picture. */
static int look_at(void *user, const char *name, bool folder, uint64_t bytes)
{
    struct look *k = user;
    (void)bytes;
    if (name[0] == '.')
        return 0;
    k->picture = !folder && mr_photos_named(name, strlen(name));
    if (folder && k->n_folders < SNIFF_DIRS && strlen(name) <= NAME_MAX)
        strcpy(k->folder[k->n_folders++], name);
    return k->picture;
}

static bool sniff(const char *path)
{
    char place[PATH_MAX];
    struct stat st;
    struct look k = {0}, below = {.n_folders = SNIFF_DIRS};
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return false;
    mr_store_list(path, look_at, &k);
    for (int i = 0; i < k.n_folders && !k.picture; i++)
        if (join(place, path, k.folder[i]) == 0 && mr_store_list(place, look_at, &below) > 0)
            return true;
    return k.picture;
}

#define AT(member) offsetof(struct mr_folder_opts, member)
static const char *const label_kinds[] = {"auto", "folders", "none", NULL};
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "DIR", .help = "A folder with a sub-folder a class, or with pictures"},
    {"labels", 0, MR_OPT_ENUM, AT(labels), .initial = "auto", .choices = label_kinds,
     .help =
         "Sub-folders are classes, or all pictures in and below the folder are taken, without labels; auto: classes "
         "where there are sub-folders"},
    {"allow-empty", 0, MR_OPT_FLAG, AT(allow_empty), .help = "Classes without pictures are no error"},
    MR_PICTURE_OPTIONS(struct mr_folder_opts, picture),
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_folder = {
    .name = "folder",
    .summary = "pictures in folders, a class each",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_folder_opts),
    .state_size = sizeof(struct state),
    .sniff = sniff,
    .open = open_folder,
    .close = mr_photos_close,
    .locate = mr_photos_locate,
    .decode = mr_photos_decode,
};

void mr_folder_opts_init(struct mr_folder_opts *opts)
{
    mr_dataset_opts_init(&mr_dataset_folder, opts);
}

int mr_dataset_open_folder(const struct mr_folder_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_folder, opts, out);
}

/*
 * Folders of pictures with one sub-folder per class; labels and order match torchvision's
 * ImageFolder.
 */
#include "codec/image.h"
#include "dataset/pictures/photos.h"
#include "dataset/pictures/tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct state {
    struct mr_photos photos; /* must be first */
};

struct adding {
    struct mr_dataset *ds;
    const char *root;
};

static int add_picture(void *user, const char *path)
{
    const struct adding *a = user;
    return mr_photos_add(a->ds, a->root, (struct mr_slice){path, strlen(path)}, a->root, 0);
}

static int add_labels(struct mr_dataset *ds, const struct mr_tree *tree)
{
    struct mr_spec spec = {.name = "label", .dtype = MR_I64};
    int64_t *labels = mr_tree_labels(tree);
    return labels ? mr_photos_add_field(ds, &spec, labels) : -ENOMEM;
}

static void describe(struct mr_dataset *ds, const char *path, const struct mr_tree *tree)
{
    char text[80], left[120];
    snprintf(ds->text, sizeof ds->text, "folder: %.60s: %s%s", mr_base_name(path),
             mr_photos_text(ds, text, sizeof text),
             mr_tree_left_out(tree->n_beside, tree->n_others, left, sizeof left));
}

static int open_folder(struct mr_dataset *ds, const void *options)
{
    const struct mr_folder_opts *o = options;
    struct mr_photos *p = ds->state;
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "folder: no path: expected folder:DIR");
    struct adding adding = {ds, o->path};
    struct mr_tree tree = {.root = o->path,
                           .what = "pictures (.jpg, .jpeg, .png, .webp)",
                           .hint = "videos? video: opens those",
                           .wanted = mr_photos_named,
                           .add = add_picture,
                           .user = &adding,
                           .labels = o->labels,
                           .allow_empty = o->allow_empty};
    mr_photos_declare(ds, &o->picture);
    int rc = mr_tree_walk(&tree);
    ds->class = p->class = tree.class;
    p->class_text = tree.class_text;
    ds->n_classes = tree.n_classes;
    if (rc < 0)
        return rc;
    rc = tree.n_classes > 0 ? add_labels(ds, &tree) : 0;
    if (rc < 0)
        return rc;
    mr_photos_hash(ds);
    describe(ds, o->path, &tree);
    return 0;
}

static bool sniff(const char *path)
{
    return mr_tree_sniff(path, mr_photos_named);
}

#define AT(member) offsetof(struct mr_folder_opts, member)
static const char *const label_kinds[] = {"auto", "folders", "none", NULL};
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "DIR",
     .help = "A folder with one sub-folder per class, or with pictures"},
    {"labels", 0, MR_OPT_ENUM, AT(labels), .initial = "auto", .choices = label_kinds,
     .help =
         "folders: sub-folders are classes; none: all pictures in and below the folder, without "
         "labels; auto: classes if there are sub-folders"},
    {"allow-empty", 0, MR_OPT_FLAG, AT(allow_empty), .help = "Accept classes without pictures"},
    MR_PICTURE_OPTIONS(struct mr_folder_opts, picture),
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_folder = {
    .name = "folder",
    .isolates = true,
    .summary = "pictures in folders, one per class",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_folder_opts),
    .state_size = sizeof(struct state),
    .lacks = mr_image_lacks,
    .sniff = sniff,
    .open = open_folder,
    .close = mr_photos_close,
    .locate = mr_photos_locate,
    .decode = mr_photos_decode,
    .get_field = mr_photos_get_field,
};

void mr_folder_opts_fill(struct mr_folder_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_folder, opts, size);
}

int mr_dataset_open_folder(const struct mr_folder_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_folder, opts, out);
}

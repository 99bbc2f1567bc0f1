/* The lists of formats and transforms. */
#include "inspect.h"

#include <stdlib.h>

/* As they are written in a URI: name=value. */
static int format_text(void *user, const char *name, const char *summary, const struct mr_option *options)
{
    int *n = user;
    printf("%s%s: %s\n", (*n)++ ? "\n" : "", name, summary);
    struct cli_table *t = cli_table_create(NULL);
    for (; options->name; options++) {
        bool initial = options->initial && options->initial[0];
        cli_table_row(t, "%s%s%s\t%s", options->name, options->type == MR_OPT_FLAG ? "" : "=",
                      initial ? options->initial : "", options->help ? options->help : "");
    }
    return cli_table_print(t, stdout, 2);
}

static int format_json(void *user, const char *name, const char *summary, const struct mr_option *options)
{
    struct mr_json *json = user;
    mr_json_object(json, NULL);
    mr_json_string(json, "name", name);
    mr_json_string(json, "summary", summary);
    mr_json_array(json, "options");
    for (; options->name; options++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "name", options->name);
        mr_json_string(json, "default", options->initial);
        mr_json_string(json, "help", options->help);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_object_end(json);
    return 0;
}

static int transform_text(void *user, const char *name, const char *arguments, const char *summary)
{
    cli_table_row(user, "%s%s%s%s\t%s", name, arguments && arguments[0] ? "(" : "", arguments ? arguments : "",
                  arguments && arguments[0] ? ")" : "", summary);
    return 0;
}

static int transform_json(void *user, const char *name, const char *arguments, const char *summary)
{
    struct mr_json *json = user;
    mr_json_object(json, NULL);
    mr_json_string(json, "name", name);
    mr_json_string(json, "arguments", arguments);
    mr_json_string(json, "summary", summary);
    mr_json_object_end(json);
    return 0;
}

int inspect_list(bool formats, bool transforms)
{
    if (!cli.json) {
        int n = 0;
        if (formats && mr_dataset_each(format_text, &n) != 0)
            return CLI_FAILED;
        if (!transforms)
            return CLI_OK;
        if (formats)
            putchar('\n');
        struct cli_table *t = cli_table_create(NULL);
        if (t)
            mr_transform_each(transform_text, t);
        int code = cli_table_print(t, stdout, 0);
        if (code == CLI_OK)
            printf("\nOps are of the first field; FIELD.op(...) is of another: label.one_hot(10)\n");
        return code;
    }
    struct mr_json *json = cli_json_begin("inspect");
    if (!json)
        return CLI_FAILED;
    mr_json_array(json, formats ? "formats" : "transforms");
    if (formats)
        mr_dataset_each(format_json, json);
    else
        mr_transform_each(transform_json, json);
    mr_json_array_end(json);
    if (formats && transforms) {
        mr_json_array(json, "transforms");
        mr_transform_each(transform_json, json);
        mr_json_array_end(json);
    }
    return cli_json_end(json);
}

/* The lists of formats and transforms. */
#include "inspect/inspect.h"

#include <stdlib.h>

/* " (rgb|rgba)", where there is a choice; " (a bare number is ms)" of a time. */
static void write_choices(const struct mr_option *option, char *out, size_t cap)
{
    size_t at = 0;
    out[0] = 0;
    if (option->type == MR_OPT_DURATION)
        at = (size_t)snprintf(out, cap, " (a bare number is %s)",
                              option->unit ? option->unit : "ms");
    for (int i = 0; option->choices && option->choices[i] && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%s%s", i ? "|" : " (", option->choices[i],
                               option->choices[i + 1] ? "" : ")");
}

/* As they are written in a URI: name=value. */
static int format_text(void *user, const char *name, const char *summary,
                       const struct mr_option *options)
{
    int *n = user;
    const char *lacks = mr_dataset_lacks(name);
    printf("%s%s: %s\n", (*n)++ ? "\n" : "", name, summary);
    if (lacks)
        printf("  not here: %s\n", lacks);
    struct cli_table *t = cli_table_create(NULL);
    for (; options->name; options++) {
        bool initial = options->initial && options->initial[0];
        char choices[256];
        write_choices(options, choices, sizeof choices);
        cli_table_row(t, "%s%s%s\t%s%s", options->name, options->type == MR_OPT_FLAG ? "" : "=",
                      initial ? options->initial : "", options->help ? options->help : "", choices);
    }
    return cli_table_print(t, stdout, 2);
}

static int format_json(void *user, const char *name, const char *summary,
                       const struct mr_option *options)
{
    struct mr_json *json = user;
    mr_json_object(json, NULL);
    mr_json_string(json, "name", name);
    mr_json_string(json, "summary", summary);
    mr_json_string(json, "lacks", mr_dataset_lacks(name));
    mr_json_array(json, "options");
    for (; options->name; options++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "name", options->name);
        mr_json_string(json, "default", options->initial);
        mr_json_string(json, "help", options->help);
        if (options->type == MR_OPT_DURATION)
            mr_json_string(json, "unit", options->unit ? options->unit : "ms");
        if (options->choices) {
            mr_json_array(json, "choices");
            for (int i = 0; options->choices[i]; i++)
                mr_json_string(json, NULL, options->choices[i]);
            mr_json_array_end(json);
        }
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_object_end(json);
    return 0;
}

static int transform_text(void *user, const char *name, const char *arguments, const char *summary)
{
    cli_table_row(user, "%s%s%s%s\t%s", name, arguments && arguments[0] ? "(" : "",
                  arguments ? arguments : "", arguments && arguments[0] ? ")" : "", summary);
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
            printf(
                "\nOps are of the first field; FIELD.op(...) is of another: label.one_hot(10)\n");
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

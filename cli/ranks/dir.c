/* millrace report --ranks DIR: the files of all ranks as one report. */
#include "ranks/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MOST (1 << 20)

static int is_rank(const struct dirent *entry)
{
    const char *name = entry->d_name;
    return strncmp(name, "rank-", 5) == 0 && strspn(name + 5, "0123456789") >= 5 &&
           cli_ends_in(name, ".json");
}

static int read_file(const char *path, char **out)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return mr_error_set(-errno, "%s: %s", path, strerror(errno));
    char *text = malloc(FILE_MOST + 1);
    size_t n = text ? fread(text, 1, FILE_MOST + 1, file) : 0;
    bool failed = !text || ferror(file);
    fclose(file);
    if (failed || n > FILE_MOST) {
        free(text);
        return mr_error_set(failed ? -EIO : MR_EFORMAT, "%s: %s", path,
                            failed ? "could not be read" : "more than 1 MiB: no rank's report");
    }
    text[n] = 0;
    *out = strdup(text);
    free(text);
    return *out ? 0 : mr_error_set(-ENOMEM, "%s: no memory", path);
}

static int load(struct ranks_all *all, const char *dir, struct dirent **entries, int n)
{
    const size_t room = n > 0 ? (size_t)n : 1;
    char **texts = calloc(room, sizeof *texts), **names = calloc(room, sizeof *names);
    int rc = texts && names ? 0 : mr_error_set(-ENOMEM, "%s: no memory", dir);
    for (int i = 0; i < n && rc == 0; i++) {
        if (asprintf(&names[i], "%s/%s", dir, entries[i]->d_name) < 0) {
            names[i] = NULL;
            rc = mr_error_set(-ENOMEM, "%s: no memory", dir);
        } else
            rc = read_file(names[i], &texts[i]);
    }
    if (rc == 0)
        rc = ranks_all_add(all, texts, names, (uint32_t)n);
    for (int i = 0; texts && names && i < n; i++) {
        free(texts[i]);
        free(names[i]);
    }
    free(texts);
    free(names);
    return rc;
}

static int print(const struct ranks_all *all)
{
    char clean[CLI_CLEAN];
    if (!cli.json) {
        printf("%s, %u rank%s\n\n", cli_clean(all->command, clean), all->world, cli_s(all->world));
        ranks_all_print(all, stdout);
        return CLI_OK;
    }
    struct mr_json *json = cli_json_begin("report");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "of", all->command);
    mr_json_uint(json, "world", all->world);
    ranks_all_json(all, json);
    return cli_json_end(json);
}

int ranks_report(const char *dir, const char *metrics, int force)
{
    struct ranks_all all = {0};
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, is_rank, alphasort);
    if (n < 0)
        return cli_fail("%s: %s", dir, strerror(errno));
    int code = n ? cli_output_claim(metrics, CLI_METRICS, force)
                 : cli_fail("%s: has no rank-00000.json and others: expected the folder of "
                            "--report-dir",
                            dir);
    int rc = code == CLI_OK ? load(&all, dir, entries, n) : 0;
    if (rc == 0 && code == CLI_OK && metrics)
        rc = ranks_metrics_write(&all, metrics);
    if (rc < 0)
        code = cli_error(rc);
    if (code == CLI_OK)
        code = print(&all);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    ranks_all_free(&all);
    return code;
}

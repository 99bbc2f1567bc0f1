/* Keys, region and endpoint: from the environment, then from ~/.aws/credentials and
 * ~/.aws/config. */
#include "storage/s3/account.h"
#include "storage/http/http.h"

#include <stdio.h>
#include <string.h>

#define LINE_BYTES 8192

static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        text[--n] = 0;
    return text;
}

/* "[name]" -> name, in place; NULL: not a section's head. */
static char *section_of(char *line)
{
    char *end = line[0] == '[' ? strchr(line, ']') : NULL;
    if (!end)
        return NULL;
    *end = 0;
    return trim(line + 1);
}

void mr_s3_ini(const char *path, const char *section,
               void (*fn)(void *user, const char *name, const char *value), void *user)
{
    char buf[LINE_BYTES];
    bool inside = false;
    FILE *file = fopen(path, "re");
    while (file && fgets(buf, sizeof buf, file)) {
        bool nested =
            buf[0] == ' ' || buf[0] == '\t'; /* "s3 =" may have settings of its own below it */
        char *line = trim(buf), *head = section_of(line), *equals;
        if (head) {
            inside = strcmp(head, section) == 0;
        } else if (inside && !nested && line[0] != '#' && line[0] != ';' &&
                   (equals = strchr(line, '='))) {
            *equals = 0;
            fn(user, trim(line), trim(equals + 1));
        }
    }
    explicit_bzero(buf, sizeof buf);
    if (file)
        fclose(file);
}

/* Values become part of request headers, where a line end would begin another header. */
static bool fit(struct mr_s3_account *a, const char *value, const char *from)
{
    bool fine = true;
    for (const unsigned char *c = (const unsigned char *)value; *c; c++)
        fine = fine && *c > ' ' && *c < 0x7f;
    if (!fine && !a->bad)
        a->bad = from;
    return fine;
}

/* from: the variable's name, for errors. A value that is too long is ignored. */
static void set(struct mr_s3_account *a, char *to, size_t cap, const char *value, const char *from)
{
    if (value && value[0] && strlen(value) < cap && fit(a, value, from))
        strcpy(to, value);
}

static void set_if_empty(struct mr_s3_account *a, char *to, size_t cap, const char *value,
                         const char *from)
{
    if (!to[0])
        set(a, to, cap, value, from);
}

static void set_env(struct mr_s3_account *a, char *to, size_t cap, const char *variable)
{
    set_if_empty(a, to, cap, getenv(variable), variable);
}

static void set_token(struct mr_s3_account *a, const char *value, const char *from)
{
    if (!a->token && value && value[0] && fit(a, value, from))
        a->token = strdup(value);
}

static void on_key(void *user, const char *name, const char *value)
{
    struct mr_s3_account *a = user;
    if (strcmp(name, "aws_access_key_id") == 0)
        set_if_empty(a, a->access, sizeof a->access, value, "aws_access_key_id");
    else if (strcmp(name, "aws_secret_access_key") == 0)
        set_if_empty(a, a->secret, sizeof a->secret, value, "aws_secret_access_key");
    else if (strcmp(name, "aws_session_token") == 0)
        set_token(a, value, "aws_session_token");
}

static void on_place(void *user, const char *name, const char *value)
{
    struct mr_s3_account *a = user;
    if (strcmp(name, "region") == 0)
        set_if_empty(a, a->region, sizeof a->region, value, "region");
    else if (strcmp(name, "endpoint_url") == 0)
        set_if_empty(a, a->endpoint, sizeof a->endpoint, value, "endpoint_url");
}

static const char *file_path(const char *variable, const char *name, char *buf, size_t cap)
{
    const char *path = getenv(variable), *home = getenv("HOME");
    if (path && path[0])
        return path;
    snprintf(buf, cap, "%s/.aws/%s", home ? home : "", name);
    return buf;
}

static void read_files(struct mr_s3_account *a)
{
    const char *profile = getenv("AWS_PROFILE");
    char section[128], buf[4096];
    profile = profile && profile[0] ? profile : "default";
    const char *credentials =
        file_path("AWS_SHARED_CREDENTIALS_FILE", "credentials", buf, sizeof buf);
    if (!a->access[0])
        mr_s3_ini(credentials, profile, on_key, a);
    bool keys = a->access[0];
    const char *config = file_path("AWS_CONFIG_FILE", "config", buf, sizeof buf);
    snprintf(section, sizeof section, "%s%.100s", strcmp(profile, "default") ? "profile " : "",
             profile);
    if (!keys)
        mr_s3_ini(config, section, on_key, a);
    mr_s3_ini(config, section, on_place, a);
}

struct mr_s3_account *mr_s3_account_create(void)
{
    struct mr_s3_account *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    set_env(a, a->access, sizeof a->access, "AWS_ACCESS_KEY_ID");
    if (a->access[0]) { /* a key's parts belong together */
        set_env(a, a->secret, sizeof a->secret, "AWS_SECRET_ACCESS_KEY");
        set_token(a, getenv("AWS_SESSION_TOKEN"), "AWS_SESSION_TOKEN");
    }
    set_env(a, a->region, sizeof a->region, "AWS_REGION");
    set_env(a, a->region, sizeof a->region, "AWS_DEFAULT_REGION");
    set_env(a, a->endpoint, sizeof a->endpoint, "AWS_ENDPOINT_URL_S3");
    set_env(a, a->endpoint, sizeof a->endpoint, "AWS_ENDPOINT_URL");
    read_files(a);
    if (!a->region[0])
        strcpy(a->region, "us-east-1");
    if (!a->access[0] || !a->secret[0])
        a->access[0] = a->secret[0] = 0;
    size_t n = strlen(a->endpoint);
    while (n > 0 && a->endpoint[n - 1] == '/')
        a->endpoint[--n] = 0;
    return a;
}

void mr_s3_account_destroy(struct mr_s3_account *a)
{
    if (!a)
        return;
    if (a->token)
        explicit_bzero(a->token, strlen(a->token));
    free(a->token);
    explicit_bzero(a, sizeof *a);
    free(a);
}

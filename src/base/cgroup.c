/*
 * Control-group limits. /proc/self/cgroup names this process's group in each hierarchy;
 * /proc/self/mountinfo has the hierarchy's mount point and the group that is its root. Limits of
 * all groups up to the mount's root apply.
 */
#include "base/base.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct walk {
    const char *root;
    struct mr_cgroup *out;
};

static bool read_text(const char *dir, const char *name, char *out, size_t cap)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "re");
    bool ok = file && fgets(out, (int)cap, file);
    if (file)
        fclose(file);
    return ok;
}

static uint64_t read_number(const char *dir, const char *name, uint64_t otherwise)
{
    char text[64];
    if (!read_text(dir, name, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return otherwise; /* "max", "-1", or a missing file */
    return strtoull(text, NULL, 10);
}

/* The value of a line "key number" in memory.stat. */
static uint64_t read_stat(const char *dir, const char *key)
{
    char path[PATH_MAX + 64], line[256];
    uint64_t value = 0;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ' ')
            value = strtoull(line + strlen(key), NULL, 10);
    if (file)
        fclose(file);
    return value;
}

static void take_cpus(struct mr_cgroup *out, double quota, double period)
{
    if (quota > 0 && period > 0 && (out->cpus == 0 || quota / period < out->cpus))
        out->cpus = quota / period;
}

static void take_memory(struct mr_cgroup *out, uint64_t limit, uint64_t used, uint64_t reclaimable)
{
    if (limit >= (uint64_t)1 << 62) /* v1 writes "none" as the largest multiple of a page */
        return;
    used -= MR_MIN(reclaimable, used);
    out->memory_bytes = MR_MIN(out->memory_bytes, limit);
    out->room_bytes = MR_MIN(out->room_bytes, limit - MR_MIN(used, limit));
}

static void look_v2(const char *dir, struct mr_cgroup *out)
{
    char text[128];
    double quota, period;
    if (read_text(dir, "cpu.max", text, sizeof text) &&
        sscanf(text, "%lf %lf", &quota, &period) == 2)
        take_cpus(out, quota, period);
    take_memory(out, read_number(dir, "memory.max", UINT64_MAX),
                read_number(dir, "memory.current", 0), read_stat(dir, "inactive_file"));
}

static void look_v1_cpu(const char *dir, struct mr_cgroup *out)
{
    take_cpus(out, (double)read_number(dir, "cpu.cfs_quota_us", 0),
              (double)read_number(dir, "cpu.cfs_period_us", 0));
}

static void look_v1_memory(const char *dir, struct mr_cgroup *out)
{
    take_memory(out, read_number(dir, "memory.limit_in_bytes", UINT64_MAX),
                read_number(dir, "memory.usage_in_bytes", 0),
                read_stat(dir, "total_inactive_file"));
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == 0))
            return true;
    }
    return false;
}

/* This process's group in the hierarchy with the given v1 controller, or in the v2 one (controller
 * ""). */
static bool find_group(const char *root, const char *controller, char *out, size_t cap)
{
    char path[PATH_MAX], line[PATH_MAX + 256];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        names++;
        found = controller[0] ? has_word(names, controller) : names[0] == 0;
        if (found)
            snprintf(out, cap, "%s", group);
    }
    if (file)
        fclose(file);
    return found;
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *p = text; *p; to++) {
        if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' &&
            p[3] >= '0' && p[3] <= '7') {
            *to = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
            p += 4;
        } else {
            *to = *p++;
        }
    }
    *to = 0;
}

/* Calls look() for the group's folder and each one above it, up to the mount point. A group outside
 * the mounted part (namespaces) is not visible: then only the mount point counts. */
static void walk_up(const struct walk *w, const char *mount_root, const char *mount_point,
                    const char *group, void (*look)(const char *, struct mr_cgroup *))
{
    char dir[PATH_MAX];
    size_t skip = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    bool inside = strncmp(group, mount_root, skip) == 0 &&
                  (group[skip] == '/' || group[skip] == 0) && !strstr(group, "/..");
    int n = snprintf(dir, sizeof dir, "%s%s%s", w->root, mount_point, inside ? group + skip : "");
    if (n < 0 || (size_t)n >= sizeof dir)
        return;
    size_t top = strlen(w->root) + strlen(mount_point);
    for (;;) {
        look(dir, w->out);
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < top)
            return;
        *slash = 0;
    }
}

/* One line: id parent major:minor root mountpoint options [optional...] - type source
 * superoptions */
static void take_mount(const struct walk *w, char *line)
{
    char *field[5], *save = NULL, *tail = strstr(line, " - ");
    char type[32], super[512] = "", group[PATH_MAX];
    if (!tail || sscanf(tail, " - %31s %*s %511s", type, super) < 1 ||
        strncmp(type, "cgroup", 6) != 0)
        return;
    *tail = 0;
    for (int i = 0; i < 5; i++) {
        field[i] = strtok_r(i ? NULL : line, " ", &save);
        if (!field[i])
            return;
    }
    unescape(field[3]);
    unescape(field[4]);
    if (strcmp(type, "cgroup2") == 0 && find_group(w->root, "", group, sizeof group))
        walk_up(w, field[3], field[4], group, look_v2);
    if (strcmp(type, "cgroup") == 0 && has_word(super, "cpu") &&
        find_group(w->root, "cpu", group, sizeof group))
        walk_up(w, field[3], field[4], group, look_v1_cpu);
    if (strcmp(type, "cgroup") == 0 && has_word(super, "memory") &&
        find_group(w->root, "memory", group, sizeof group))
        walk_up(w, field[3], field[4], group, look_v1_memory);
}

void mr_cgroup_get(const char *root, struct mr_cgroup *out)
{
    char path[PATH_MAX], line[2 * PATH_MAX];
    *out = (struct mr_cgroup){.memory_bytes = UINT64_MAX, .room_bytes = UINT64_MAX};
    struct walk w = {root, out};
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        take_mount(&w, line);
    }
    if (file)
        fclose(file);
}

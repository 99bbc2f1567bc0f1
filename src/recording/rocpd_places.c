/* rocpd: nodes, processes, threads and agents. */
#include "recording/rocpd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

/* ---- ranks ---- */

/* -1: not set, or no number. */
static int64_t number_of(const cJSON *environment, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(environment, name);
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    if (!*text || text[strspn(text, "0123456789")] || strlen(text) > 9)
        return -1;
    return strtol(text, NULL, 10);
}

/* The environment that rocprofv3 kept, read as the recorder reads its own: src/recorder/rank.c. */
static void read_rank(struct mr_rocpd_host *host, const char *text)
{
    static const struct {
        const char *mark, *rank, *world[2];
    } launchers[] = {
        {"TORCHELASTIC_RUN_ID", "RANK", {"WORLD_SIZE", "WORLD_SIZE"}},
        {NULL, "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}},
        {NULL, "PMI_RANK", {"PMI_SIZE", "PMI_SIZE"}},
        {"SLURM_STEP_ID", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
        {NULL, "RANK", {"WORLD_SIZE", "WORLD_SIZE"}},
    };
    cJSON *environment = text ? cJSON_Parse(text) : NULL;
    for (size_t i = 0; i < MR_COUNT(launchers) && host->rank < 0; i++) {
        int64_t rank = number_of(environment, launchers[i].rank),
                world = number_of(environment, launchers[i].world[0]);
        if (world < 0)
            world = number_of(environment, launchers[i].world[1]);
        if ((launchers[i].mark && !cJSON_HasObjectItem(environment, launchers[i].mark)) ||
            rank < 0 || world <= rank)
            continue;
        host->rank = rank;
        host->world = world;
    }
    cJSON_Delete(environment);
}

/* ---- processes ---- */

static struct mr_rocpd_host *host_add(struct mr_rocpd *k, uint32_t set, int64_t id)
{
    if (mr_grow(k->path, &k->hosts, &k->hosts_capacity, k->n_hosts + 1, sizeof *k->hosts) < 0)
        return NULL;
    struct mr_rocpd_host *host = &k->hosts[k->n_hosts++];
    *host = (struct mr_rocpd_host){.set = set, .rank = -1, .world = -1};
    host->pid = id > 0 && id < 0x1000000 ? (uint32_t)id : 1;
    return host;
}

static uint64_t column_hash(sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return text ? mr_hash(MR_HASH_START, text, strlen(text)) : 0;
}

static int add_process(struct mr_rocpd *k, uint32_t set, sqlite3_stmt *stmt)
{
    bool is_new;
    int64_t id = sqlite3_column_int64(stmt, 0), pid = sqlite3_column_int64(stmt, 1),
            ppid = sqlite3_column_int64(stmt, 2);
    const char *command = (const char *)sqlite3_column_text(stmt, 5),
               *name = (const char *)sqlite3_column_text(stmt, 7);
    if (!mr_map_at(&k->host_of, mr_rocpd_key(set, id), (uint32_t)k->n_hosts, &is_new))
        return -ENOMEM;
    struct mr_rocpd_host *host = is_new ? host_add(k, set, pid) : NULL;
    if (!host)
        return is_new ? -ENOMEM : 0;
    host->ppid = ppid > 0 && ppid < 0x1000000 ? (uint32_t)ppid : 0;
    host->start_ns = sqlite3_column_int64(stmt, 3);
    host->end_ns = sqlite3_column_int64(stmt, 4);
    host->command = strdup(command ? command : "");
    host->node = column_hash(stmt, 6);
    snprintf(host->node_name, sizeof host->node_name, "%s", name ? name : "");
    read_rank(host, (const char *)sqlite3_column_text(stmt, 8));
    return host->command ? 0 : mr_error_nomem(k->path, 0);
}

uint32_t mr_rocpd_host(struct mr_rocpd *k, uint32_t set, int64_t id)
{
    bool is_new;
    uint32_t *at = mr_map_at(&k->host_of, mr_rocpd_key(set, id), (uint32_t)k->n_hosts, &is_new);
    if (!at || !is_new)
        return at ? *at : MR_NONE;
    /* a process without a row: of the node of the set's others */
    uint64_t node = 0;
    for (uint64_t i = k->n_hosts; i-- > 0;)
        node = k->hosts[i].set == set ? k->hosts[i].node : node;
    struct mr_rocpd_host *host = host_add(k, set, id);
    if (!host || !(host->command = strdup("")))
        return MR_NONE;
    host->node = node;
    return (uint32_t)k->n_hosts - 1;
}

/* ---- threads and agents ---- */

static int add_thread(struct mr_rocpd *k, uint32_t set, sqlite3_stmt *stmt)
{
    uint32_t tid = (uint32_t)(sqlite3_column_int64(stmt, 1) & 0xffffff);
    return mr_map_at(&k->tid_of, mr_rocpd_key(set, sqlite3_column_int64(stmt, 0)), tid, NULL)
               ? 0
               : -ENOMEM;
}

/* type_index counts the GPUs of the machine; else they are counted here. */
static int add_agent(struct mr_rocpd *k, uint32_t set, sqlite3_stmt *stmt)
{
    const char *type = (const char *)sqlite3_column_text(stmt, 1);
    struct mr_rocpd_agent agent = {.gpu = type && strcmp(type, "GPU") == 0};
    int64_t index = sqlite3_column_int64(stmt, 2);
    bool given = sqlite3_column_type(stmt, 2) != SQLITE_NULL && index >= 0 && index < 65536;
    if (given)
        agent.device = (uint32_t)index;
    else if (agent.gpu)
        agent.device = (uint32_t)(sqlite3_column_int64(stmt, 3) & 0xffff);
    if (!mr_map_at(&k->agent_of, mr_rocpd_key(set, sqlite3_column_int64(stmt, 0)),
                   (uint32_t)k->n_agents, NULL) ||
        mr_grow(k->path, &k->agents, &k->agents_capacity, k->n_agents + 1, sizeof *k->agents) < 0)
        return -ENOMEM;
    k->agents[k->n_agents++] = agent;
    return 0;
}

static int each(struct mr_rocpd *k, uint32_t set, const char *sql,
                int (*take)(struct mr_rocpd *, uint32_t, sqlite3_stmt *))
{
    sqlite3_stmt *stmt;
    int rc = mr_rocpd_prepare(k, &k->sets[set], sql, &stmt);
    if (rc < 0)
        return rc;
    while ((rc = mr_rocpd_step(k, stmt)) == 1) {
        rc = take(k, set, stmt);
        if (rc < 0)
            break;
    }
    sqlite3_finalize(stmt);
    return rc;
}

int mr_rocpd_read_places(struct mr_rocpd *k)
{
    int rc = 0;
    for (uint32_t i = 0; i < k->n_sets && rc == 0; i++) {
        rc = each(k, i,
                  "SELECT P.id, P.pid, P.ppid, coalesce(P.init, P.start), coalesce(P.fini, "
                  "P.\"end\"), P.command, coalesce(N.machine_id, P.nid), N.hostname, P.environment "
                  "FROM \"rocpd_info_process{s}\" P LEFT JOIN \"rocpd_info_node{s}\" N "
                  "ON N.id = P.nid",
                  add_process);
        rc = rc ? rc : each(k, i, "SELECT id, tid FROM \"rocpd_info_thread{s}\"", add_thread);
        rc = rc ? rc
                : each(k, i,
                       "SELECT id, \"type\", type_index, (SELECT count(*) FROM "
                       "\"rocpd_info_agent{s}\" B WHERE B.\"type\" = 'GPU' AND B.id < A.id) "
                       "FROM \"rocpd_info_agent{s}\" A",
                       add_agent);
    }
    return rc;
}

/* ---- written ---- */

static int text_of(struct mr_rocpd *k, sqlite3_stmt *stmt, int column, uint32_t *out)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return mr_store_text(k->store, text ? text : "",
                         text ? (size_t)sqlite3_column_bytes(stmt, column) : 0, out);
}

/* Selects the process of a row. Returns 1; 0: it is of another node; or an error. */
static int select_host(struct mr_rocpd *k, uint32_t set, int64_t id)
{
    uint32_t host = mr_rocpd_host(k, set, id);
    if (host == MR_NONE)
        return -ENOMEM;
    if (k->hosts[host].node != k->node || !k->hosts[host].process)
        return 0;
    mr_store_select(k->store, k->hosts[host].process);
    return 1;
}

/* The number of compute units is in what rocprofv3 kept of the agent. No uuid is: the machine and
 * the agent's number stand for it, so that processes on one GPU share it. */
static int put_agent(struct mr_rocpd *k, uint32_t set, sqlite3_stmt *stmt)
{
    const uint32_t *agent =
        mr_map_find(&k->agent_of, mr_rocpd_key(set, sqlite3_column_int64(stmt, 0)));
    int rc = select_host(k, set, sqlite3_column_int64(stmt, 1));
    if (rc != 1 || !agent || !k->agents[*agent].gpu)
        return rc < 0 ? rc : 0;
    struct mr_part_device device = {.device = k->agents[*agent].device};
    const char *extra = (const char *)sqlite3_column_text(stmt, 4);
    cJSON *json = extra ? cJSON_Parse(extra) : NULL;
    const cJSON *units = cJSON_GetObjectItemCaseSensitive(json, "cu_count");
    if (cJSON_IsNumber(units) && units->valuedouble > 0 && units->valuedouble < 1e6)
        device.n_sms = (uint32_t)units->valuedouble;
    cJSON_Delete(json);
    uint64_t same[2] = {k->node, mr_mix64(k->node ^ (uint64_t)sqlite3_column_int64(stmt, 3)) | 1};
    memcpy(device.uuid, same, sizeof device.uuid);
    rc = text_of(k, stmt, 2, &device.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_DEVICE, &device);
}

static int put_thread(struct mr_rocpd *k, uint32_t set, sqlite3_stmt *stmt)
{
    struct mr_part_thread thread = {.tid = (uint32_t)(sqlite3_column_int64(stmt, 0) & 0xffffff)};
    int rc = select_host(k, set, sqlite3_column_int64(stmt, 1));
    if (rc != 1 || sqlite3_column_bytes(stmt, 2) == 0)
        return rc < 0 ? rc : 0;
    rc = text_of(k, stmt, 2, &thread.name);
    return rc < 0 ? rc : mr_store_put(k->store, MR_PART_THREAD, &thread);
}

int mr_rocpd_put_places(struct mr_rocpd *k, uint32_t set)
{
    int rc = each(k, set,
                  "SELECT id, pid, coalesce(nullif(product_name, ''), nullif(model_name, ''), "
                  "name), coalesce(absolute_index, id), extdata FROM \"rocpd_info_agent{s}\"",
                  put_agent);
    return rc ? rc
              : each(k, set, "SELECT tid, pid, name FROM \"rocpd_info_thread{s}\"", put_thread);
}

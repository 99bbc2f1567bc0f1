/* The place of a process by its environment: by launcher, and with what others left. */
#include "unit.h"

#include <millrace/place.h>

static const char *const known[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_RESTART_COUNT",
                                    "TORCHELASTIC_ERROR_FILE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "PMI_FD",
                                    "PMI_LOCAL_RANK",
                                    "PMI_LOCAL_SIZE",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_STEP_ID",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_NODEID",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_RESTART_COUNT",
                                    "SLURM_JOB_ID",
                                    "PMIX_RANK"};

/* env: "A=1 B=2" is the whole environment, as far as it counts. */
static void set_environment(const char *env)
{
    char copy[512], *at = NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        unsetenv(known[i]);
    snprintf(copy, sizeof copy, "%s", env);
    for (char *word = strtok_r(copy, " ", &at); word; word = strtok_r(NULL, " ", &at)) {
        char *is = strchr(word, '=');
        assert_non_null(is);
        *is = '\0';
        setenv(word, is + 1, 1);
    }
}

#define TORCHRUN                                                                                   \
    "TORCHELASTIC_RUN_ID=none RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "                \
    "TORCHELASTIC_RESTART_COUNT=2 "
#define OPENMPI                                                                                    \
    "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "                  \
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=2 "
#define MPICH "PMI_RANK=5 PMI_SIZE=6 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3 PMI_FD=7 "
#define SRUN                                                                                       \
    "SLURM_STEP_ID=0 SLURM_PROCID=6 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=0 "        \
    "SLURM_NODEID=3 SLURM_STEP_TASKS_PER_NODE=2(x3),1 "
#define BATCH_SCRIPT "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=0 "

static void launchers_are_recognized(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        struct mr_place want; /* without size */
    } cases[] = {
        {"", {0, 0, 1, 0, 0, 0, ""}},
        {TORCHRUN, {0, 3, 8, 1, 2, 2, "torchrun"}},
        {OPENMPI, {0, 2, 4, 0, 2, 0, "openmpi"}},
        {MPICH, {0, 5, 6, 2, 3, 0, "pmi"}},
        {"PMI_RANK=1 PMI_SIZE=2 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2", {0, 1, 2, 1, 2, 0, "pmi"}},
        {"PMI_RANK=1 PMI_SIZE=2", {0, 1, 2, 0, 0, 0, "pmi"}},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1", {0, 1, 2, 0, 0, 0, "pmi"}},
        {SRUN, {0, 6, 7, 0, 1, 0, "slurm"}},
        {SRUN "PMIX_RANK=6", {0, 6, 7, 0, 1, 0, "slurm"}},
        {"SLURM_STEP_ID=1 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_RESTART_COUNT=1",
         {0, 3, 4, 0, 0, 1, "slurm"}},
        {"SLURM_STEP_ID=1 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 "
         "SLURM_STEP_TASKS_PER_NODE=2(x2)",
         {0, 3, 4, 1, 2, 0, "slurm"}},
        {"SLURM_STEP_ID=1 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=9 "
         "SLURM_STEP_TASKS_PER_NODE=2(x2)",
         {0, 3, 4, 0, 0, 0, "slurm"}},
        {"RANK=1 WORLD_SIZE=2", {0, 1, 2, 0, 0, 0, "env"}},
        /* The program runs in a batch script, without srun: it is alone, not rank 0 of 4. */
        {BATCH_SCRIPT, {0, 0, 1, 0, 0, 0, ""}},
        /* mpirun in such a script gives each rank the script's variables. */
        {BATCH_SCRIPT OPENMPI, {0, 2, 4, 0, 2, 0, "openmpi"}},
        {BATCH_SCRIPT MPICH, {0, 5, 6, 2, 3, 0, "pmi"}},
        {SRUN OPENMPI, {0, 2, 4, 0, 2, 0, "openmpi"}},
        /* srun starts one torchrun a node. */
        {SRUN TORCHRUN, {0, 3, 8, 1, 2, 2, "torchrun"}},
        {OPENMPI MPICH TORCHRUN, {0, 3, 8, 1, 2, 2, "torchrun"}},
        {SRUN "PMI_RANK=6 PMI_SIZE=7", {0, 6, 7, 0, 0, 0, "pmi"}}, /* srun --mpi=pmi2 */
        {OPENMPI "RANK=0 WORLD_SIZE=1", {0, 2, 4, 0, 2, 0, "openmpi"}},
        /* Common names: one of them alone is something else's. */
        {"RANK=7", {0, 0, 1, 0, 0, 0, ""}},
        {"WORLD_SIZE=7", {0, 0, 1, 0, 0, 0, ""}},
        {"RANK= WORLD_SIZE=7", {0, 0, 1, 0, 0, 0, ""}},
        {"RANK=7 " OPENMPI, {0, 2, 4, 0, 2, 0, "openmpi"}},
        {"PMI_FD=7", {0, 0, 1, 0, 0, 0, ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mr_place got = {.size = sizeof got, .rank = 99}, want = cases[i].want;
        set_environment(cases[i].env);
        int rc = mr_place_query(&got);
        if (rc < 0 || got.size != sizeof got || got.rank != want.rank || got.world != want.world ||
            got.local_rank != want.local_rank || got.local_world != want.local_world ||
            got.restart_count != want.restart_count || strcmp(got.launcher, want.launcher) != 0)
            fail_msg("\"%s\": %d %s, rank %u of %u, local %u of %u, restart %u, \"%s\"",
                     cases[i].env, rc, rc < 0 ? mr_last_error() : "", got.rank, got.world,
                     got.local_rank, got.local_world, got.restart_count, got.launcher);
    }
}

static void contradictions_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *env, *says;
    } cases[] = {
        {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not set"},
        {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is not set"},
        {"PMI_SIZE=2", "PMI_RANK is not set"},
        {"TORCHELASTIC_RUN_ID=x RANK=1", "WORLD_SIZE is not set"},
        {"SLURM_STEP_ID=0 SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS is not set"},
        {"PMI_RANK=2 PMI_SIZE=2", "PMI_RANK is 2 and PMI_SIZE is 2"},
        {"PMI_RANK=0 PMI_SIZE=0", "PMI_SIZE is 0"},
        {"PMI_RANK=-1 PMI_SIZE=2", "\"-1\": expected a number"},
        {"PMI_RANK=1x PMI_SIZE=2", "\"1x\""},
        {"PMI_RANK=1 PMI_SIZE=99999999999999999999", "PMI_SIZE"},
        {"PMI_RANK=1 PMI_SIZE=1048577", "1048576"},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=2", "MPI_LOCALRANKID is 2"},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=3", "3 processes on this"},
        {"TORCHELASTIC_RUN_ID=x RANK=1 WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=often", "often"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mr_place got = {.size = sizeof got, .rank = 99};
        set_environment(cases[i].env);
        int rc = mr_place_query(&got);
        if (rc != MR_EOPTION || !strstr(mr_last_error(), cases[i].says) || got.rank != 99)
            fail_msg("\"%s\": %d \"%s\", expected \"%s\"", cases[i].env, rc, mr_last_error(),
                     cases[i].says);
    }
}

/* A program that knows less of the struct gets less; one that knows more is refused. */
static void sizes_are_kept(void **state)
{
    (void)state;
    struct mr_place place = {.size = offsetof(struct mr_place, local_rank), .local_rank = 77};
    set_environment(TORCHRUN);
    assert_int_equal(mr_place_query(&place), 0);
    assert_true(place.rank == 3 && place.world == 8 && place.local_rank == 77);
    assert_int_equal(place.size, offsetof(struct mr_place, local_rank));
    place.size = sizeof place + 1;
    assert_int_equal(mr_place_query(&place), MR_EMISUSE);
    place.size = 0;
    assert_int_equal(mr_place_query(&place), MR_EMISUSE);
    assert_int_equal(mr_place_query(NULL), MR_EMISUSE);
}

#define TORCHRUN_OF(id, local, attempt, random)                                                    \
    "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=" local " TORCHELASTIC_RUN_ID=" id          \
    " TORCHELASTIC_RESTART_COUNT=" attempt " TORCHELASTIC_ERROR_FILE=/tmp/" id "_" random          \
    "/attempt_" attempt "/0/error.json"

/* One job: the same name after a restart. Two jobs: two names, or none. */
static void jobs_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *one, *other;
        int same, named;
    } cases[] = {
        {SRUN "SLURM_JOB_ID=7", SRUN "SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1", 1, 1},
        {SRUN "SLURM_JOB_ID=7", SRUN "SLURM_JOB_ID=8 SLURM_RESTART_COUNT=1", 0, 1},
        {SRUN, SRUN "SLURM_RESTART_COUNT=1", 1, 0},
        {TORCHRUN_OF("none", "2", "0", "ab"), TORCHRUN_OF("none", "2", "1", "ab"), 1, 1},
        {TORCHRUN_OF("none", "2", "0", "ab"), TORCHRUN_OF("none", "2", "1", "cd"), 0, 1},
        {TORCHRUN_OF("none", "1", "0", "ab"), TORCHRUN_OF("none", "1", "1", "ab"), 1, 1},
        {TORCHRUN_OF("none", "1", "0", "ab"), TORCHRUN_OF("none", "1", "1", "cd"), 0, 1},
        /* the agent of rank 0 may be another one after a restart, on as many machines or fewer */
        {TORCHRUN_OF("run1", "1", "0", "ab"), TORCHRUN_OF("run1", "1", "1", "cd"), 1, 1},
        {TORCHRUN_OF("run1", "1", "0", "ab"), TORCHRUN_OF("run1", "2", "1", "ab"), 1, 1},
        {TORCHRUN_OF("run1", "1", "0", "ab"), TORCHRUN_OF("run1", "2", "1", "cd"), 1, 1},
        {TORCHRUN_OF("run1", "2", "0", "ab"), TORCHRUN_OF("run1", "1", "1", "cd"), 1, 1},
        {TORCHRUN_OF("run1", "1", "0", "ab"), TORCHRUN_OF("run2", "1", "1", "ab"), 0, 1},
        {TORCHRUN_OF("none", "2", "0", "x/attempt_0/0"), TORCHRUN_OF("none", "2", "1", "cd"), 0, 1},
        {TORCHRUN, TORCHRUN, 1, 0}, /* "none", and no file of errors */
        {TORCHRUN "TORCHELASTIC_ERROR_FILE=/attempt_0", TORCHRUN, 1, 0},
        {TORCHRUN "TORCHELASTIC_ERROR_FILE=none_a/attempt_0", TORCHRUN, 0, 0},
        {OPENMPI "SLURM_JOB_ID=7", MPICH, 1, 0},
        {"", "SLURM_JOB_ID=7", 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char one[64] = "x", other[64] = "y";
        set_environment(cases[i].one);
        assert_int_equal(mr_place_job(one, sizeof one), 0);
        set_environment(cases[i].other);
        assert_int_equal(mr_place_job(other, sizeof other), 0);
        if ((strcmp(one, other) == 0) != cases[i].same || (other[0] != 0) != cases[i].named)
            fail_msg("\"%s\" is of job \"%s\", \"%s\" of job \"%s\"", cases[i].one, one,
                     cases[i].other, other);
    }
}

static void names_of_jobs_are_not_cut(void **state)
{
    (void)state;
    char job[16] = "unchanged";
    set_environment(SRUN "SLURM_JOB_ID=123456789");
    assert_int_equal(mr_place_job(job, sizeof "slurm 123456789" - 1), MR_ELIMIT);
    assert_string_equal(job, "unchanged");
    assert_int_equal(mr_place_job(job, sizeof "slurm 123456789"), 0);
    assert_string_equal(job, "slurm 123456789");
    assert_int_equal(mr_place_job(NULL, 9), MR_EMISUSE);
    assert_int_equal(mr_place_job(job, 0), MR_EMISUSE);
    set_environment("PMI_RANK=1");
    assert_int_equal(mr_place_job(job, sizeof job), MR_EOPTION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_are_recognized),
        cmocka_unit_test(contradictions_are_errors),
        cmocka_unit_test(sizes_are_kept),
        cmocka_unit_test(jobs_are_told_apart),
        cmocka_unit_test(names_of_jobs_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

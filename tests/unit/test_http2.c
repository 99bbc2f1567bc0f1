/* White-box. Requests to a server that speaks HTTP/2 do not wait for each other. */
#include "remote.h"

#include "storage/http/job.h"

#include <netinet/in.h>
#include <sys/socket.h>

struct ask {
    struct mr_http_request request;
    char url[128];
    uint8_t got[10];
    _Atomic bool stop, ended;
};

static struct mr_http *client;

static void on_end(struct mr_http_request *request)
{
    struct ask *a = request->user;
    atomic_store(&a->ended, true);
}

static void ask_for(struct ask *a, int port, const char *path)
{
    *a = (struct ask){.request = {.want = sizeof a->got, .done = on_end, .user = a}};
    snprintf(a->url, sizeof a->url, "https://127.0.0.1:%d/%s", port, path);
    a->request.url = a->url;
    a->request.to = a->got;
    a->request.limit = sizeof a->got;
    a->request.stop = &a->stop;
    mr_http_start(client, &a->request);
}

static int result_of(struct ask *a)
{
    while (!atomic_load(&a->ended))
        usleep(2000);
    if (a->request.error)
        mr_error_put(a->request.error);
    free(a->request.error);
    a->request.error = NULL;
    return a->request.status;
}

static void cancel(struct ask *a)
{
    atomic_store(&a->stop, true);
    mr_http_kick(client);
    assert_int_equal(result_of(a), MR_ECANCELLED);
}

/* Starts a request that the server keeps until the file "go" is there. Returns once it has it. */
static void ask_and_hold(struct ask *a, const char *path)
{
    unlink(test_path("came"));
    ask_for(a, server.port, path);
    while (access(test_path("came"), F_OK))
        usleep(2000);
}

static int client_setup(void **state)
{
    (void)state;
    struct mr_remote_opts opts;
    mr_remote_opts_init(&opts);
    opts.retries = 0;
    opts.connect_timeout_ms = opts.stall_timeout_ms = 20000;
    test_works(mr_remote_opts_set(&opts));
    unlink(test_path("go"));
    test_works(mr_http_open(&client));
    return 0;
}

static int client_teardown(void **state)
{
    (void)state;
    mr_http_close(client);
    return 0;
}

/* The request that opened the connection never got an answer; the connection lives on. */
static void a_cancelled_first_request_leaves_later_ones_parallel(void **state)
{
    (void)state;
    static struct ask first, second, held, other; /* of the I/O thread, too, when a check fails */
    ask_and_hold(&first, "held/small.bin");
    cancel(&first);
    ask_for(&second, server.port, "ok/small.bin");
    test_works(result_of(&second));
    ask_and_hold(&held, "held/big.bin");
    ask_for(&other, server.port, "ok/big.bin");
    test_works(result_of(&other));
    assert_false(atomic_load(&held.ended));
    test_write("go", "", 0);
    test_works(result_of(&held));
    assert_memory_equal(held.got, big, sizeof held.got);
}

/* It takes connections and says nothing. */
static int silent_server(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (void *)&at, bytes) == 0 && listen(fd, 64) == 0);
    assert_int_equal(getsockname(fd, (void *)&at, &bytes), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static uint32_t server_of(const char *url)
{
    struct mr_http_request request = {.url = url};
    return mr_http_server_of(&(struct mr_http_job){.request = &request});
}

/* They share what is known of a server only if their names have the same hash, one in 32. */
static void a_server_that_is_down_blocks_no_other(void **state)
{
    (void)state;
    enum { SILENT = 4 };
    static struct ask silent[SILENT], other;
    int fd[SILENT], port, n = 0;
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/", server.port);
    uint32_t is = server_of(url);
    for (int i = 0; i < SILENT; i++) {
        fd[i] = silent_server(&port);
        snprintf(url, sizeof url, "https://127.0.0.1:%d/", port);
        if (server_of(url) != is)
            ask_for(&silent[n++], port, "x");
    }
    assert_true(n > 0);
    ask_for(&other, server.port, "ok/small.bin");
    test_works(result_of(&other));
    for (int i = 0; i < n; i++)
        assert_false(atomic_load(&silent[i].ended));
    for (int i = 0; i < n; i++)
        cancel(&silent[i]);
    for (int i = 0; i < SILENT; i++)
        close(fd[i]);
}

/* Whatever the path, query and fragment. */
static void a_server_is_a_scheme_host_and_port(void **state)
{
    (void)state;
    static const char *const same[] = {"https://a.example:1/x/y?z", "https://a.example:1?http://b/",
                                       "https://a.example:1#/", "https://a.example:1"};
    uint32_t is = server_of("https://a.example:1/x"), n = 0;
    for (size_t i = 0; i < MR_COUNT(same); i++)
        assert_int_equal(server_of(same[i]), is);
    struct mr_http_request s3 = {.url = "s3://bucket/key"};
    struct mr_http_job job = {.request = &s3,
                              .target.url = (char *)"https://a.example:1/bucket/key"};
    assert_int_equal(mr_http_server_of(&job), is);
    bool seen[MR_HTTP_SERVERS] = {false};
    for (int port = 1; port <= 1000; port++) {
        char url[64];
        snprintf(url, sizeof url, "https://a.example:%d/x", port);
        is = server_of(url);
        assert_true(is < MR_HTTP_SERVERS);
        n += !seen[is];
        seen[is] = true;
    }
    assert_int_equal(n, MR_HTTP_SERVERS);
}

/* A proxy's answer to CONNECT is by HTTP/1.1. One request at a time: libcurl 7.88 fails at more. */
static void a_proxy_does_not_hide_http2(void **state)
{
    static struct ask one;
    char place[128] = "";
    FILE *f = fopen(test_path("proxy"), "r");
    assert_true(f && fgets(place, sizeof place, f));
    fclose(f);
    client_teardown(state);
    setenv("https_proxy", place, 1);
    client_setup(state);
    client->http2 = true;
    ask_for(&one, server.port, "ok/small.bin");
    test_works(result_of(&one));
    unsetenv("https_proxy");
    assert_int_equal(atomic_load(&client->multiplexes[server_of(one.url)]), MR_HTTP_MULTIPLEXES);
}

static int setup(void **state)
{
    if (test_dir_make(state))
        return -1;
    test_random_bytes(5000, big, sizeof big);
    test_write("big.bin", big, sizeof big);
    test_write("small.bin", big, 1000);
    setenv("CURL_CA_BUNDLE", test_path("cert.pem"), 1);
    static const char *const proxies[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < MR_COUNT(proxies); i++)
        unsetenv(proxies[i]);
    if (mr_http_open(&client) == 0) {
        mr_http_close(client);
        if (server_start(&server, "python3", TEST_SUPPORT "/http2_server.py", test_dir))
            return 0;
    }
    print_message("SKIP HTTP/2: no libcurl, nginx with HTTP/2, or openssl\n");
    return 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cancelled_first_request_leaves_later_ones_parallel,
                                        client_setup, client_teardown),
        cmocka_unit_test_setup_teardown(a_server_that_is_down_blocks_no_other, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(a_proxy_does_not_hide_http2, client_setup, client_teardown),
        cmocka_unit_test(a_server_is_a_scheme_host_and_port),
    };
    void *state = NULL;
    int skip = setup(&state);
    int rc = skip ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
    remote_teardown(&state);
    return skip < 0 ? 1 : rc;
}

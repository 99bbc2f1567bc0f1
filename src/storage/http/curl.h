/*
 * The functions of libcurl that we use, in a table that is filled with dlopen when the first URL is
 * opened. libcurl depends on some thirty libraries (TLS, Kerberos, LDAP), which a run on local
 * files should neither load nor need; and the system's libcurl knows where the system's
 * certificates are.
 */
#ifndef MR_STORAGE_HTTP_CURL_H
#define MR_STORAGE_HTTP_CURL_H

#include <curl/curl.h>

#define MR_CURL_FUNCTIONS(X)                                                                       \
    X(global_init)                                                                                 \
    X(version_info)                                                                                \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(easy_init)                                                                                   \
    X(easy_cleanup)                                                                                \
    X(easy_reset)                                                                                  \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_strerror)                                                                               \
    X(multi_init)                                                                                  \
    X(multi_cleanup)                                                                               \
    X(multi_setopt)                                                                                \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_assign)                                                                                \
    X(multi_socket_action)                                                                         \
    X(multi_info_read)                                                                             \
    X(multi_strerror)

/* curl's header defines these as macros, which cannot be members of a table. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

struct mr_curl {
#define X(name) __typeof__(curl_##name) *name;
    MR_CURL_FUNCTIONS(X)
#undef X
};
extern struct mr_curl mr_curl;

/* Opens libcurl, once a process. 0, or MR_EUNSUPPORTED with what is missing. Any thread. */
int mr_curl_load(void);
const char *mr_curl_why_not(void); /* NULL: it can be used */

#endif

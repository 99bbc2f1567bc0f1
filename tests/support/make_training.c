/* make_training FILE training|pageable|many|odd N: recordings for tests of programs. */
#include "training_make.h"

/* Names that want to be markup, and nothing else of note. */
static void make_odd(const char *path)
{
    struct make m;
    make_begin(&m, path);
    make_device(&m, 0, "GPU <b>&\"'");
    make_range(&m, "</script><script>document.documentElement.dataset.error='ran'</script>", 0,
               900000);
    make_range(&m, "{{data}} ${x} \\u003c", 1000, 800000);
    make_kernel(&m, 7, "<img src=x onerror=alert(1)>", 100000, 300000);
    make_end(&m);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    if (!strcmp(argv[2], "many"))
        training_make_many(argv[1], strtoull(argv[3], NULL, 10));
    else if (!strcmp(argv[2], "odd"))
        make_odd(argv[1]);
    else
        training_make(argv[1], atoi(argv[3]), !strcmp(argv[2], "pageable"));
    return 0;
}

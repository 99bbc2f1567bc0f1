# A kernel that refuses io_uring, by a filter that each of these programs gets: EPERM as of a container, ENOSYS as of an old one.
# doctor says so, with the reason.
$ $NO_URING ENOSYS millrace doctor --no-disk | grep '^io_uring'
io_uring     not usable: io_uring_setup: Function not implemented (the kernel has no io_uring, or a seccomp filter forbids it)
$ $NO_URING EPERM millrace doctor --no-disk --json | grep -c 'io_uring is not usable'
1
# Reads go by pread, and give the same bytes: from the page cache, and past it.
$ millrace synth digits d --n 2001 --n-test 20 -q >/dev/null
$ digest() { "$@" feed d -b 32 -s --seed 7 -e 2 --digest | sed -n 's/^digest: //p'; }; with=$(digest millrace); for e in EPERM ENOSYS; do [ ${#with} = 32 ] && [ "$(digest $NO_URING $e millrace)" = "$with" ] && echo "$e: same"; done
EPERM: same
ENOSYS: same
$ $NO_URING EPERM millrace feed d -e 1 -q --json | grep '"storage"'
    "storage": "auto",
      "storage": "pread",
# Who asks for io_uring by name is told.
$ $NO_URING ENOSYS millrace feed d --storage uring
millrace feed: storage uring cannot be used here: io_uring_setup: Function not implemented (the kernel has no io_uring, or a seccomp filter forbids it)
[1]

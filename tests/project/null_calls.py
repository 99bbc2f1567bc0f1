#!/usr/bin/env python3
"""Each function of the public headers, of all libraries, survives a call with NULL and 0 for all of
its arguments, as error.h promises. Those that take an object say MR_EMISUSE, or return NULL or 0.
Each call is made in a process of its own. tests/unit/test_null.c looks closer.

usage: null_calls.py SOURCE BUILD SCRATCH CC
"""

import pathlib
import re
import shutil
import subprocess
import sys


# Without an object these answer something else: a count, no, -1, "too much"; mr_spec_format()
# gives the buffer back, mr_remote_opts_set() sets the defaults.
ANSWERS = {
    "mr_dataset_fields", "mr_dataset_picture", "mr_remote_opts_set", "mr_sampler_is_sequential",
    "mr_schedule_wants_more", "mr_shm_fd", "mr_shm_pool_bytes", "mr_spec_format",
    "mr_train_label_field", "mr_transform_fields", "mr_transform_is_identity",
    "mr_transform_source",
}

HEAD = """#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int n_wrong;
static int begin(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        alarm(20);
    return pid;
}
static void end(int pid, const char *name)
{
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        exit(99);
    if (WIFSIGNALED(status))
        printf("%s: ended by signal %d\\n", name, WTERMSIG(status));
    else if (WEXITSTATUS(status))
        printf("%s: expected MR_EMISUSE, NULL or 0\\n", name);
    n_wrong += status != 0;
}
int main(void)
{
    int pid;
"""


def declarations(headers):
    """Return type, name, number of parameters and whether the first is an object, of each."""
    for header in headers:
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        text = re.sub(r"^#.*(?:\\\n.*)*$", "", text, flags=re.M)
        for kind, name, args in re.findall(r"MR_API\s+([^;{]*?)\b(mr_\w+)\s*(\([^;]*\))", text):
            depth, n = 0, 0
            for c in args:
                depth += (c == "(") - (c == ")")
                if depth == 0:
                    break
                n += c == "," and depth == 1
            n += args[1:].split(")")[0].strip() != "void"
            takes_object = re.match(r"\(\s*(const )?struct mr_\w+ \*\w", args)
            yield " ".join(kind.split()), name, n, bool(takes_object)


def main():
    source, build, scratch, cc = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    functions = list(declarations(sorted((source / "include/millrace").glob("*.h"))))
    if len(functions) < 400:
        sys.exit("found %d functions: expected 400 or more" % len(functions))
    shutil.rmtree(scratch, ignore_errors=True)
    pathlib.Path(scratch).mkdir(parents=True)
    program = HEAD
    for kind, name, n, takes_object in functions:
        call = "%s(%s)" % (name, ", ".join("0" * n))
        none = "*" in kind or re.search(r"uint(32|64)_t$", kind)
        body = "%s; _exit(0)" % call
        if takes_object and (none or kind == "int") and name not in ANSWERS:
            body = "_exit(%s != %s)" % (call, "0" if none else "MR_EMISUSE")
        program += '    if ((pid = begin()) == 0) { %s; }\n    end(pid, "%s");\n' % (body, name)
    path = pathlib.Path(scratch) / "calls.c"
    path.write_text(program + "    return n_wrong != 0;\n}\n")
    libraries = ["-lmillrace-train", "-lmillrace-profile", "-lmillrace", "-Wl,-rpath," + build]
    subprocess.run([cc, "-w", "-I%s/include" % source, str(path), "-o", scratch + "/calls",
                    "-L" + build] + libraries, check=True)
    print(len(functions), "functions")
    code = subprocess.run([scratch + "/calls"], cwd=scratch, timeout=600).returncode
    if code == 0:
        shutil.rmtree(scratch)
    sys.exit(code)


if __name__ == "__main__":
    main()

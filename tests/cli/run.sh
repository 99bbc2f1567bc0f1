#!/bin/sh
# Runs the commands of a .t file with the given program and compares what they print with what the file says.
# usage: run.sh PROGRAM FILE.t        (UPDATE=1: writes what was printed into the file instead)
#
# A .t file holds, one after the other:
#   # a comment
#   $ a command, run by sh in an empty folder that the file's commands share; "millrace" is the program
#   lines it prints, standard output and error together
#   [2]                     its exit status, when it is not 0
# In expected lines, "..." alone stands for any lines, and a line that ends in " (re)" is an extended regular expression.
# A file with the comment "# Locks memory." is skipped where this user may not; one that uses $NO_URING, where a program may
# not set itself a seccomp filter.
set -u

program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
file=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
if grep -q '^# Locks memory' "$file"; then
    limit=$("$program" doctor --no-disk --json | sed -n 's/.*"lock_limit_bytes": \([0-9]*\).*/\1/p')
    if [ -n "$limit" ] && [ "$limit" -lt 33554432 ]; then
        echo "SKIP: this user may page-lock $limit bytes only: ulimit -l"
        exit 77
    fi
fi
if [ -n "${NO_URING:-}" ] && grep -q NO_URING "$file"; then
    "$NO_URING" EPERM true
    if [ $? = 77 ]; then
        echo "SKIP: no seccomp filter can be set here"
        exit 77
    fi
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/millrace-cli.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
mkdir "$folder/bin" "$folder/work"
ln -s "$program" "$folder/bin/millrace"
PATH=$folder/bin:$PATH TERM=dumb LC_ALL=C SOURCE_DATE_EPOCH=0
export PATH TERM LC_ALL SOURCE_DATE_EPOCH
unset NO_COLOR
# Nor is this a rank of whatever started the tests.
unset RANK WORLD_SIZE TORCHELASTIC_RUN_ID TORCHELASTIC_ERROR_FILE SLURM_JOB_ID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_STEP_ID
cd "$folder/work" || exit 1

# Everything but the commands' own lines is made anew.
while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    '$ '*)
        printf '%s\n' "$line"
        sh -c "${line#??}" >"$folder/printed" 2>&1 </dev/null
        code=$?
        cat "$folder/printed"
        if [ -s "$folder/printed" ] && [ -n "$(tail -c 1 "$folder/printed")" ]; then echo; fi
        if [ $code -ne 0 ]; then echo "[$code]"; fi
        ;;
    '#'*) printf '%s\n' "$line" ;;
    esac
done <"$file" >"$folder/actual"

if [ -n "${UPDATE:-}" ]; then
    cp "$folder/actual" "$file"
    exit 0
fi

# Matches line by line; after "..." lines are skipped up to the first that fits the next expected one.
awk -v expected="$file" '
function fits(want, got) {
    if (want ~ / \(re\)$/) return got ~ ("^(" substr(want, 1, length(want) - 5) ")$")
    return want == got
}
BEGIN {
    while ((getline line < expected) > 0) if (line != "") want[++n] = line
    i = 1
}
$0 == "" { next }
{
    if (i <= n && want[i] == "...") {
        skipping = 1
        i++
    }
    if (i <= n && fits(want[i], $0)) {
        i++
        skipping = 0
    } else if (!skipping) {
        print "want: " (i <= n ? want[i] : "(nothing more)")
        print " got: " $0
        failed = 1
        exit 1
    }
}
END {
    if (failed) exit 1
    if (i <= n && want[i] == "...") i++
    if (i <= n) { print "want: " want[i]; print " got: (nothing more)"; exit 1 }
}' "$folder/actual" && exit 0

echo "$(basename "$file"): what was printed:"
cat "$folder/actual"
exit 1

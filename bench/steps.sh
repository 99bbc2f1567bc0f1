# For scripts that run many steps and go on when one fails; to be sourced, with $out set, the folder that it makes, and $python.
# shellcheck shell=bash disable=SC2034,SC2154
failed=0
mkdir -p "$out"
out=$(cd "$out" && pwd)

# step NAME SECONDS COMMAND...: its output to $out/NAME.txt, a line to the terminal; 77 is a skip.
step() {
    local name=$1 limit=$2 code start=$SECONDS
    shift 2
    { printf '$'; printf ' %q' "$@"; echo; } >"$out/$name.txt"
    timeout "$limit" "$@" >>"$out/$name.txt" 2>&1 </dev/null
    code=$?
    if [ $code = 0 ]; then
        echo "ok    $name ($((SECONDS - start)) s)"
    elif [ $code = 77 ]; then
        echo "SKIP  $name: $(tail -1 "$out/$name.txt")"
    else
        echo "FAIL  $name: exit $code"
        tail -3 "$out/$name.txt" | sed 's/^/      /'
        failed=$((failed + 1))
    fi
}

# same_digest TEXT STEP...: all of these steps printed one digest.
same_digest() {
    local text=$1 name n=0 digests
    shift
    digests=$(for name in "$@"; do sed -n 's/^digest: //p' "$out/$name.txt"; done)
    n=$(printf '%s' "$digests" | grep -c .)
    digests=$(printf '%s\n' "$digests" | sort -u)
    if [ "$n" = $# ] && [ "$(printf '%s\n' "$digests" | wc -l)" = 1 ]; then
        echo "ok    $text: $digests $n times"
    else
        echo "FAIL  $text: $n of $# digests: ${digests//$'\n'/;}"
        failed=$((failed + 1))
    fi
}

# The program of a relocatable folder or of a build.
find_millrace() {
    bin=$1/bin
    if [ ! -x "$bin/millrace" ]; then bin=$1/build/release; fi
    if [ ! -x "$bin/millrace" ]; then
        echo "$0: no bin/millrace under $1" >&2
        exit 1
    fi
    millrace=$bin/millrace
}

# cuBLAS comes with PyTorch when the system has none.
find_cublas() {
    local name found
    for name in CUBLAS:libcublas CUBLASLT:libcublasLt; do
        if [ -n "$(printenv "MILLRACE_${name%:*}")" ]; then continue; fi
        found=$("$python" -c 'import glob, sys, sysconfig
found = sorted(glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/**/" + sys.argv[1] + ".so.1?", recursive=True))
print(found[-1] if found else "")' "${name#*:}" 2>/dev/null)
        if [ -n "$found" ]; then export "MILLRACE_${name%:*}=$found"; fi
    done
}

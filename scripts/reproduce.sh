#!/bin/bash
# Are builds reproducible? Clones HEAD twice, builds both clones and compares the results by SHA-256. The builds differ in path,
# HOME, user name, time zone, language, umask, temporary folder and number of processors; as root also in user id; and with
# faketime(1) in date and time. Prints each file that differs; the last line is PASS or FAIL.
# usage: scripts/reproduce.sh [-c] [-n] [-k] [dist] [wheel] [source] [deb]     default: all four parts
#   dist    libraries, program, relocatable folder and its tarball (make dist)
#   wheel   the Python package (make wheel); takes its tools from PyPI
#   source  the source tarball
#   deb     the Debian packages, without CUDA kernels; skipped by default where dpkg-dev is not installed
#   -c      the second build may use a compiler cache (CMAKE_C_COMPILER_LAUNCHER=ccache); otherwise none does
#   -n      without CUDA kernels, which take most of the time
#   -k      keep both builds; they are also kept if they differ
set -eu
cd "$(dirname "$0")/.."
kernels=AUTO keep='' cache=''
while getopts cnk option; do
    case $option in
    c) cache=1 ;;
    n) kernels=OFF ;;
    k) keep=1 ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# = 0 ]; then
    set -- source dist wheel
    if command -v dpkg-shlibdeps >/dev/null; then set -- "$@" deb; fi
fi
for part; do
    case $part in dist | wheel | source | deb) ;; *) echo "reproduce: no such part: $part" >&2 && exit 2 ;; esac
done
[ -z "$(git status --porcelain)" ] || echo "reproduce: only what is committed is built"
unset CFLAGS CXXFLAGS LDFLAGS
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH kernels
work=$(mktemp -d /tmp/millrace-reproduce.XXXXXX)
chmod 755 "$work"

# In a clone.
build_parts() { # mask, parts
    local part
    umask "$1"
    shift
    for part; do
        case $part in
        dist)
            cmake --preset release -DMILLRACE_TESTS=OFF -DMILLRACE_CUDA_KERNELS="$kernels" >/dev/null &&
                scripts/build.sh release && scripts/dist.sh build/release dist
            ;;
        wheel) SKBUILD_CMAKE_DEFINE=MILLRACE_CUDA_KERNELS=$kernels scripts/wheel.sh ;;
        source) scripts/source.sh dist ;;
        deb) DEB_OPTIONS=-DMILLRACE_CUDA_KERNELS=OFF scripts/deb.sh dist/deb ;;
        esac || return
    done
}
export -f build_parts

build() { # folder, umask, command and its arguments, before parts...
    local folder=$work/$1 mask=$2 start=$SECONDS
    shift 2
    # shellcheck disable=SC2016  # expanded by that shell
    "$@" bash -c 'cd "$0" && build_parts "$@"' "$folder" "$mask" "${parts[@]}" || {
        echo "FAIL reproduce: the build in $folder failed"
        exit 1
    }
    echo "reproduce: built in $folder: $((SECONDS - start)) s"
}

# Everything that is handed out; the libraries also as they were linked.
sums() { # folder
    (cd "$1" && find dist build/release -maxdepth 1 -type f \( -path 'dist/*' -o -name 'libmillrace*' -o -name millrace \)
        cd "$1" && find dist -mindepth 2 -type f) 2>/dev/null | sort | (cd "$1" && xargs -r -d '\n' sha256sum)
}

parts=("$@")
umask 022
git clone -q . "$work/one"
git clone -q . "$work/second/place/millrace"
mkdir "$work/tmp" "$work/home"
without=(-u CMAKE_C_COMPILER_LAUNCHER -u CMAKE_CXX_COMPILER_LAUNCHER CCACHE_DISABLE=1)
cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') # the first that this process may use
first=(env "${without[@]}" HOME="$work/home" USER=first LOGNAME=first TZ=UTC LC_ALL=C JOBS=1 taskset -c "$cpu")
second=(env TMPDIR="$work/tmp" USER=second LOGNAME=second TZ=Asia/Tokyo LC_ALL=C.UTF-8 JOBS="$(nproc)")
if [ "$kernels" = OFF ]; then without_kernels=', without CUDA kernels'; else without_kernels=; fi
varied='path, HOME, user name, time zone, language, umask, processors'
if [ -z "$cache" ]; then second+=(env "${without[@]}"); fi
if [ "$(id -u)" = 0 ]; then
    chown -R nobody "$work/one" "$work/home"
    first+=(setpriv --reuid=nobody --clear-groups)
    varied+=', user id'
fi
if command -v faketime >/dev/null; then
    # nvcc's cicc hangs under faketime: it gets the true time.
    if nvcc=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v nvcc); then
        mkdir -p "$work/cuda/bin"
        printf '#!/bin/sh\nexec env -u LD_PRELOAD %s "$@"\n' "$nvcc" >"$work/cuda/bin/nvcc"
        chmod +x "$work/cuda/bin/nvcc"
        second+=(env CUDA_HOME="$work/cuda")
    fi
    second+=(faketime -f +27h)
    varied+=', clock (except of nvcc)'
fi
build one 022 "${first[@]}"
build second/place/millrace 077 "${second[@]}"

sums "$work/one" >"$work/one.sums"
sums "$work/second/place/millrace" >"$work/second.sums"
n=$(wc -l <"$work/one.sums")
if [ "$n" = 0 ]; then
    echo "FAIL reproduce ${parts[*]}: nothing was built: see $work"
    exit 1
fi
if diff "$work/one.sums" "$work/second.sums" >"$work/diff"; then
    [ -n "$keep" ] || rm -rf "$work"
    echo "PASS reproduce ${parts[*]}: $n files are equal$without_kernels (differed: $varied)"
    exit 0
fi
sed -nE 's/^[<>] [0-9a-f]+ +/differs: /p' "$work/diff" | sort -u
echo "FAIL reproduce ${parts[*]}: see $work"
exit 1

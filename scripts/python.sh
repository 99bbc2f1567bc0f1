#!/bin/bash
# The Python package. usage:
#   scripts/python.sh build              build/python/: the package, to import from with PYTHONPATH=build/python
#   scripts/python.sh test [PYTHON...]   the tests, each step with a PASS, FAIL or SKIP line: types; the module under ASan; the
#                                        wheel in an environment of each Python (default: 3.10 to 3.13, of PATH and of pyenv)
#   scripts/python.sh arrow              the tests of Arrow and of the documents, with the producers of tables from PyPI, as
#                                        with MILLRACE_ARROW=1; without a wheel
#   scripts/python.sh frameworks         the tests with Lightning, Accelerate, the HF Trainer, datasets, webdataset and jax, in an
#                                        environment that gets them from PyPI, as python/frameworks.txt says (some 6 GB)
# MILLRACE_TORCH_PYTHON=PYTHON: the tests also with that one, which has torch. MILLRACE_TORCH=1: with one that gets torch from
# PyPI (2 GB). MILLRACE_ARROW=1: the tests of Arrow, with the producers from PyPI (pyarrow, datasets, DuckDB, Polars, nanoarrow;
# 400 MB); else they are skipped. PYTEST_ARGS: more arguments of pytest.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
work=build/python
versions='3.10 3.11 3.12 3.13'
failed=0

# command...: into the log; its end is shown if it fails.
logged() { # log, command...
    local log=$1
    shift
    mkdir -p "$(dirname "$log")"
    "$@" >"$log" 2>&1 </dev/null && return
    grep -E -A5 '(error|warning): |FAILED:|CMake Error|^(FAILED|ERROR) |^E  ' "$log" | tail -60 >&2
    echo "python: $1 failed; the whole log: $log" >&2
    return 1
}

# The Python files as links instead of copies: changes of them need no new build.
link_package() { # folder, module
    local file
    mkdir -p "$1/millrace"
    find "$1/millrace" -xtype l -delete
    for file in "$PWD"/python/millrace/*; do
        case $file in *__pycache__) ;; *) ln -sfn "$file" "$1/millrace/" ;; esac
    done
    ln -sfn "$PWD/$2" "$1/millrace/"
}

configure_and_build() {
    cmake -S . -B $work/build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMILLRACE_WERROR=ON -DMILLRACE_TESTS=OFF \
        -DMILLRACE_PYTHON=ON ${PYTHON:+-DPython_EXECUTABLE="$PYTHON"} &&
        cmake --build $work/build -j "$jobs" --target millrace_python millrace_cli millrace-record
}

python_build() {
    logged $work.log configure_and_build && link_package $work $work/build/python/_core.abi3.so || return 1
    mkdir -p $work/millrace/_bin
    ln -sfn "$PWD/$work/build/millrace" $work/millrace/_bin/
}

# ---- steps ----

# step NAME FUNCTION ARGUMENTS...: 77 is a skip.
step() {
    local name=$1 start=$SECONDS
    shift
    "$@"
    case $? in
    0) echo "PASS python.$name ($((SECONDS - start)) s)" ;;
    77) echo "SKIP python.$name" ;;
    *)
        echo "FAIL python.$name ($((SECONDS - start)) s)"
        return 1
        ;;
    esac
}

# The same beside one other step, since one alone leaves processors idle. What it prints comes in one piece at its end.
running=0
beside() { # NAME FUNCTION ARGUMENTS...
    if [ $running = 2 ]; then
        wait -n
        running=1
    fi
    {
        local output
        output=$(step "$@" 2>&1) || : >"$work/failed"
        printf '%s\n' "$output"
    } &
    running=$((running + 1))
}

# A Python by its version: on PATH, else pyenv's newest.
find_python() { # version
    local found
    for found in "$(command -v "python$1")" $(find ~/.pyenv/versions -path "*/bin/python$1" 2>/dev/null | sort -rV); do
        if [ -n "$found" ] && "$found" -c 'import venv, ensurepip' 2>/dev/null; then
            echo "$found"
            return
        fi
    done
}

# One that C modules can be built with.
find_builder() {
    local version python
    for version in 3.12 3.13 3.11 3.10; do
        for python in "$(find_python $version)" $(find ~/.pyenv/versions -path "*/bin/python$version" 2>/dev/null); do
            if [ -n "$python" ] && "$python" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; then
                echo "$python"
                return
            fi
        done
    done
}

make_venv() { # folder, python, packages...
    local folder=$1 python=$2
    shift 2
    # Python compiles what is imported; for torch, all of it takes half a minute.
    "$python" -m venv "$folder" && "$folder/bin/pip" install --disable-pip-version-check --no-compile --upgrade "$@"
}

# An environment with packages, made once.
venv() { # folder, python, packages...
    [ -f "$1/made" ] && [ "$(cat "$1/made")" = "$*" ] && return
    rm -rf "$1"
    logged "$1.log" make_venv "$@" && echo "$*" >"$1/made"
}

the_wheel() {
    local wheel
    wheel=$(find dist -name 'millrace-*-cp310-abi3-*.whl' 2>/dev/null | head -1)
    [ -n "$wheel" ] && echo "$wheel" && return
    echo "python: no wheel in dist/" >&2
    return 1
}

# MILLRACE_TRIES=2: tests that fail are run again, and count as their second run does, as in scripts/test.sh.
run_pytest() { # log, python, tests...
    local log=$1 python=$2 cache=${1%.log}.cache rc
    shift 2
    rm -rf "$cache"
    try_pytest "$log" "$python" "$cache" "$@"
    rc=$?
    if [ $rc != 0 ] && [ "${MILLRACE_TRIES:-1}" -gt 1 ] && tail -1 "$log" | grep -qE '^[0-9]+ failed' &&
        ! grep -qE '^(ERROR |!+ )' "$log"; then
        sed -nE 's/^FAILED ([^ ]+).*/AGAIN \1/p' "$log"
        mv "$log" "${log%.log}.first.log"
        try_pytest "$log" "$python" "$cache" --last-failed --last-failed-no-failures none "$@"
        rc=$?
    fi
    tail -1 "$log"
    return $rc
}

try_pytest() { # log, python, where it notes what failed, arguments...
    local log=$1 python=$2 cache=$3
    shift 3
    # shellcheck disable=SC2086  # several words
    (unset PYTHONPATH && MILLRACE_WHEEL=1 logged "$log" "$python" -m pytest -q -o cache_dir="$PWD/$cache" ${PYTEST_ARGS:-} "$@")
}

test_wheel_in() { # folder of an environment
    local wheel
    wheel=$(the_wheel) &&
        logged "$1.install.log" "$1/bin/pip" install --disable-pip-version-check --no-deps --force-reinstall "$wheel" &&
        run_pytest "$1.test.log" "$1/bin/python" tests/python
}

test_version() { # version, python, the one that torch is installed for
    if [ -z "$2" ]; then
        echo "python $1: not on PATH, nor pyenv's"
        return 77
    fi
    if [ "${MILLRACE_TORCH:-0}" = 1 ] && [ -z "${MILLRACE_TORCH_PYTHON:-}" ] && [ "$2" = "${3:-}" ]; then
        echo "python $1: the step torch runs all of its tests"
        return 77
    fi
    venv "$work/venv-$1" "$2" numpy pytest && test_wheel_in "$work/venv-$1"
}

test_torch() {
    local site=$work/torch-site wheel
    if [ -n "${MILLRACE_TORCH_PYTHON:-}" ]; then # its own packages stay as they are
        rm -rf "$site"
        wheel=$(the_wheel) &&
            logged "$site.log" "$MILLRACE_TORCH_PYTHON" -m pip install --no-deps --target "$site" "$wheel" &&
            PYTHONPATH=$site MILLRACE_WHEEL=1 logged "$site.test.log" "$MILLRACE_TORCH_PYTHON" -m pytest -q \
                -p no:cacheprovider tests/python &&
            tail -1 "$site.test.log"
    elif [ "${MILLRACE_TORCH:-0}" = 1 ]; then
        venv $work/venv-torch "$1" torch torchvision numpy pytest cloudpickle && test_wheel_in $work/venv-torch
    else
        echo "python: no torch: MILLRACE_TORCH_PYTHON names a Python that has it, MILLRACE_TORCH=1 installs it"
        return 77
    fi
}

arrow_venv() { # python
    venv $work/venv-arrow "$1" numpy pytest pyarrow datasets duckdb nanoarrow polars pillow
}

# The tests of Arrow, beside the producers of its tables.
test_arrow() {
    if [ "${MILLRACE_ARROW:-0}" != 1 ]; then
        echo "python: no pyarrow: MILLRACE_ARROW=1 installs it and the other producers of Arrow tables"
        return 77
    fi
    arrow_venv "$1" || return 1
    local wheel
    wheel=$(the_wheel) &&
        logged $work/venv-arrow.install.log $work/venv-arrow/bin/pip install --disable-pip-version-check --no-deps \
            --force-reinstall "$wheel" &&
        run_pytest $work/venv-arrow.test.log $work/venv-arrow/bin/python tests/python/test_arrow.py tests/python/test_docs.py
}

# As the wheel's users see them: the package alone.
test_types() { # python
    local check=$work/venv-types
    venv "$check" "$1" mypy==2.4.1 basedpyright==1.40.2 numpy || return 1
    logged $work/mypy.log "$check/bin/mypy" --config-file python/pyproject.toml python/millrace &&
        logged $work/basedpyright.log "$check/bin/basedpyright" --project python --pythonpath "$check/bin/python"
}

# The module in the preset that `make asan` builds. Leaks are looked for by a test without it, since the
# interpreter has many, and it keeps freed memory.
test_asan() { # python
    local site=$work/asan
    venv "$work/venv-asan" "$1" numpy pytest || return 1
    # -U: the preset has perhaps found another Python, and CMake does not replace one by another.
    logged $work/asan.log cmake --preset asan -U '_Python_*' -DMILLRACE_TESTS=ON -DMILLRACE_PYTHON=ON -DPython_EXECUTABLE="$1" || return 1
    logged $work/asan.log cmake --build --preset asan -j "$jobs" --target millrace_python || return 1
    link_package "$site" build/asan/python/_core.abi3.so
    PYTHONPATH=$site PYTHONMALLOC=malloc LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0 logged $work/asan.test.log "$work/venv-asan/bin/python" -m pytest -q -p no:cacheprovider \
        -k "not leaks" tests/python/test_core.py tests/python/test_core_errors.py tests/python/test_core_rows.py tests/python/test_core_chain.py \
        tests/python/test_shm.py
    local rc=$?
    tail -1 $work/asan.test.log
    return $rc
}

# Of a build, without a wheel.
test_arrow_built() {
    local python log=$work/arrow.test.log rc
    python=$(find_builder)
    PYTHON=$python python_build && arrow_venv "$python" || return 1
    PYTHONPATH=$work logged $log $work/venv-arrow/bin/python -m pytest -q -rs -p no:cacheprovider \
        tests/python/test_arrow.py tests/python/test_docs.py
    rc=$?
    tail -1 $log
    return $rc
}

# The tests that are skipped where a library is missing. Here none is: a skip is a failure.
test_frameworks() {
    local python log=$work/frameworks.test.log packages rc
    python=$(find_builder)
    mapfile -t packages < <(grep -v '^#' python/frameworks.txt)
    PYTHON=$python python_build && venv $work/venv-frameworks "$python" "${packages[@]}" || return 1
    PYTHONPATH=$work logged $log $work/venv-frameworks/bin/python -m pytest -q -rs -p no:cacheprovider \
        tests/python/test_loader_frameworks.py tests/python/test_loader_iterate.py tests/python/test_recording.py
    rc=$?
    tail -1 $log
    if [ $rc = 0 ] && grep '^SKIPPED' $log; then rc=1; fi
    return $rc
}

test_all() {
    local version python first given=$* others
    first=$(find_builder)
    if [ -z "$first" ]; then
        echo "python: expected one of Python $versions with its headers and venv (packages python3-dev, python3-venv)" >&2
        exit 1
    fi
    mkdir -p $work
    rm -f $work/failed
    step wheel env PYTHON="$first" scripts/wheel.sh || failed=1
    beside torch test_torch "$first"
    beside arrow test_arrow "$first"
    if [ -n "$given" ]; then
        for python in $given; do
            version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1
            beside "$version" test_version "$version" "$python"
        done
    else
        others=$(for version in $versions; do find_python "$version"; done | grep -vxF "$first")
        for version in $versions; do
            python=$(find_python "$version")
            beside "$version" test_version "$version" "$python" ${others:+"$first"}
        done
    fi
    beside asan test_asan "$first"
    beside types test_types "$first"
    wait
    if [ -e "$work/failed" ]; then failed=1; fi
    exit $failed
}

case ${1:-} in
build) python_build ;;
test)
    shift
    test_all "$@"
    ;;
arrow) step arrow test_arrow_built ;;
frameworks) step frameworks test_frameworks ;;
*)
    sed -n '2,/^set/{/^#/p}' "$0" | sed 's/^# \?//' >&2
    exit 2
    ;;
esac

#!/bin/bash
# Installs the build, moves the installation, and builds a user's program against it in every way that we promise:
# pkg-config and find_package, shared and static, C and C++. usage: install.sh BUILD SCRATCH CC CXX [NVCC]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 scratch=$2 cc=$3 cxx=$4
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/moved"
prefix=$scratch/moved
libdir=$(dirname "$(dirname "$(find "$prefix" -name millrace.pc)")")
# Nothing but our own files: a plain --libs asks for no other library's.
PKG_CONFIG_LIBDIR=$libdir/pkgconfig
export PKG_CONFIG_LIBDIR
unset PKG_CONFIG_PATH

expect() { # what, program, the shared libraries of ours that it needs
    local needs
    needs=$(readelf -d "$2" | sed -nE 's/.*NEEDED.*\[lib(millrace[a-z-]*)\.so.*/\1/p' | sort | tr '\n' ' ')
    if [ "${needs% }" != "$3" ]; then
        echo "$1: needs of ours: '${needs% }', expected '$3'"
        exit 1
    fi
    LD_LIBRARY_PATH=$libdir "$2" || { echo "$1: does not run"; exit 1; }
}

for package in millrace millrace-profile millrace-train; do
    flags=$(pkg-config --cflags $package)
    if [ "${flags% }" != "-I$prefix/include" ] && [ "${flags% }" != "-I$libdir/pkgconfig/../../include" ]; then
        echo "$package: --cflags names more than our own folder: $flags"
        exit 1
    fi
    source=$here/consumer${package#millrace}.c
    source=${source//consumer-/consumer_}
    # The words that pkg-config prints are meant to be split.
    # shellcheck disable=SC2046
    {
        "$cc" -Wl,--as-needed "$source" -o "$scratch/pc_shared" $(pkg-config --cflags --libs $package)
        "$cxx" -Wl,--as-needed -x c++ "$source" -x none -o "$scratch/pc_cxx" $(pkg-config --cflags --libs $package)
        "$cc" "$source" -o "$scratch/pc_static" \
            $(pkg-config --static --cflags --libs $package | sed -E 's/-l(millrace[a-z-]*)/-l:lib\1.a/g')
    }
    shared="millrace $package"
    if [ $package = millrace ]; then shared=millrace; fi
    expect "pkg-config, $package, C, shared" "$scratch/pc_shared" "$shared"
    expect "pkg-config, $package, C++, shared" "$scratch/pc_cxx" "$shared"
    expect "pkg-config, $package, C, static" "$scratch/pc_static" ""
done
diff -r "$here/../../include/millrace" "$prefix/include/millrace"
# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Werror "$here/guard.cc" -o "$scratch/guard" $(pkg-config --cflags --libs millrace)
LD_LIBRARY_PATH=$libdir "$scratch/guard" || { echo "guard: does not run"; exit 1; }

# The examples as they are installed, and the C ones as C++20, too: programs in C++ begin with them. Those that need nothing
# but digits or a pipe are run; capabilities.sh runs others.
cp -r "$prefix/share/doc/millrace/examples" "$scratch/examples"
make -C "$scratch/examples" -j2 CC="$cc" CXX="$cxx" CFLAGS=-Werror CXXFLAGS="-Wall -Wextra -Werror" >"$scratch/make.log" ||
    { cat "$scratch/make.log"; exit 1; }
for source in "$scratch"/examples/*.c; do
    # shellcheck disable=SC2046
    "$cxx" -x c++ -std=c++20 -Wall -Werror -fsyntax-only "$source" $(pkg-config --cflags millrace)
done
if [ -x "${5:-}" ]; then
    make -C "$scratch/examples" NVCC="$5 -ccbin $cxx" own_kernel >/dev/null
fi
if [ -x "$prefix/bin/millrace" ]; then
    "$prefix/bin/millrace" synth digits "$scratch/digits" --n 500 --n-test 10 >/dev/null
    export LD_LIBRARY_PATH=$libdir
    for program in feed_mnist own_dataset own_dataset_cxx captions consumers dlpack fork_ranks own_model packing serve \
        shared_tensors token_budget train_validate; do
        "$scratch/examples/$program" "$scratch/digits" >/dev/null || { echo "examples/$program: does not run"; exit 1; }
    done
    seq 1 100 | awk '{ print $1 % 10, $1, $1 + 1 }' | "$scratch/examples/iterable" | grep -q 'the last one' ||
        { echo "examples/iterable: does not run"; exit 1; }
    (cd "$scratch/digits" && for i in 1 2 3; do echo "$i" >"$i.cls"; done && tar -c ./*.cls) |
        "$scratch/examples/tar_stdin" | grep -qx '3 samples' || { echo "examples/tar_stdin: does not run"; exit 1; }
    unset LD_LIBRARY_PATH
fi
if readelf -d "$libdir/libmillrace.so" | grep -q sqlite; then
    echo "libmillrace.so needs SQLite"
    exit 1
fi

unset PKG_CONFIG_LIBDIR # the static targets look for what they need
mkdir "$scratch/project"
cp "$here"/consumer*.c "$scratch/project/"
for file in "$scratch"/project/*.c; do cp "$file" "${file%.c}.cc"; done
cat >"$scratch/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(consumer C CXX)
find_package(millrace VERSION REQUIRED COMPONENTS profile train static profile_static train_static)
add_link_options(-Wl,--as-needed)
foreach(library millrace profile train)
  set(source consumer_${library})
  set(static millrace::${library}_static)
  if(library STREQUAL millrace)
    set(source consumer)
    set(static millrace::static)
  endif()
  add_executable(${library} ${source}.c)
  target_link_libraries(${library} PRIVATE millrace::${library})
  add_executable(${library}_cxx ${source}.cc)
  target_link_libraries(${library}_cxx PRIVATE millrace::${library})
  add_executable(${library}_static ${source}.c)
  target_link_libraries(${library}_static PRIVATE ${static})
endforeach()
CMAKE
version=$("$here/../../scripts/version.sh")
sed -i "s/millrace VERSION/millrace ${version%.*}/" "$scratch/project/CMakeLists.txt"
rm -rf "$scratch/examples"
cp -r "$prefix/share/doc/millrace/examples" "$scratch/examples"
{
    cmake -G Ninja -S "$scratch/examples" -B "$scratch/examples/build" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" &&
        cmake --build "$scratch/examples/build" --target train_mnist own_dataset_cxx
} >"$scratch/cmake.log" 2>&1 || { tail -40 "$scratch/cmake.log"; exit 1; }
{
    cmake -G Ninja -S "$scratch/project" -B "$scratch/project/build" \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" &&
        cmake --build "$scratch/project/build"
} >"$scratch/cmake.log" 2>&1 || { tail -40 "$scratch/cmake.log"; exit 1; }
for library in millrace profile train; do
    shared="millrace millrace-$library"
    if [ $library = millrace ]; then shared=millrace; fi
    expect "find_package, $library, C, shared" "$scratch/project/build/$library" "$shared"
    expect "find_package, $library, C++, shared" "$scratch/project/build/${library}_cxx" "$shared"
    expect "find_package, $library, C, static" "$scratch/project/build/${library}_static" ""
done
if cmake -G Ninja -S "$scratch/project" -B "$scratch/project/other" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON >"$scratch/cmake.log" 2>&1; then
    echo "find_package finds static libraries without what they need"
    exit 1
fi

# No file that is installed may name the folder that it was built or installed in.
if grep -rlIE "$build|$scratch/first" "$prefix"; then
    echo "the files above name the build folder"
    exit 1
fi
if [ -x "$prefix/bin/millrace" ]; then
    env -i "$prefix/bin/millrace" --version
    ls "$prefix"/share/man/man1/millrace*.1 >/dev/null
fi
if [ -d "$build/reference" ]; then
    ls "$prefix"/share/man/man3/mr_loader{,_next}.3 "$prefix"/share/doc/millrace/html/{index,loader}.html >/dev/null
fi
ls "$prefix"/share/doc/millrace/{README,docs/own_data}.md >/dev/null
rm -rf "$scratch"

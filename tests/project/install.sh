#!/bin/bash
# Installs the build, moves the installation, and builds a user's program against it in every way that we promise:
# pkg-config and find_package, shared and static, C and C++. usage: install.sh BUILD SCRATCH CC CXX
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 scratch=$2 cc=$3 cxx=$4
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/moved"
prefix=$scratch/moved
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name millrace.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$PKG_CONFIG_PATH")

expect() { # what, program: it runs, and does or does not need the shared library
    local needs=no
    readelf -d "$2" | grep -q 'NEEDED.*libmillrace' && needs=yes
    if [ "$needs" != "$3" ]; then
        echo "$1: needs libmillrace.so: $needs, expected $3"
        exit 1
    fi
    LD_LIBRARY_PATH=$libdir "$2" || { echo "$1: does not run"; exit 1; }
}

# The words that pkg-config prints are meant to be split.
# shellcheck disable=SC2046
{
    "$cc" "$here/consumer.c" -o "$scratch/pc_shared" $(pkg-config --cflags --libs millrace)
    expect "pkg-config, C, shared" "$scratch/pc_shared" yes
    "$cxx" -x c++ "$here/consumer.c" -x none -o "$scratch/pc_cxx" $(pkg-config --cflags --libs millrace)
    expect "pkg-config, C++, shared" "$scratch/pc_cxx" yes
    "$cc" "$here/consumer.c" -o "$scratch/pc_static" \
        $(pkg-config --static --cflags --libs millrace | sed 's/-lmillrace/-l:libmillrace.a/')
    expect "pkg-config, C, static" "$scratch/pc_static" no
}

mkdir "$scratch/project"
cat >"$scratch/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(consumer C CXX)
find_package(millrace 0.1 REQUIRED COMPONENTS static)
configure_file(${SOURCE} consumer.c COPYONLY)
configure_file(${SOURCE} consumer.cc COPYONLY)
add_executable(shared ${CMAKE_CURRENT_BINARY_DIR}/consumer.c)
target_link_libraries(shared PRIVATE millrace::millrace)
add_executable(shared_cxx ${CMAKE_CURRENT_BINARY_DIR}/consumer.cc)
target_link_libraries(shared_cxx PRIVATE millrace::millrace)
add_executable(static ${CMAKE_CURRENT_BINARY_DIR}/consumer.c)
target_link_libraries(static PRIVATE millrace::static)
CMAKE
{
    cmake -G Ninja -S "$scratch/project" -B "$scratch/project/build" -DSOURCE="$here/consumer.c" \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" &&
        cmake --build "$scratch/project/build"
} >"$scratch/cmake.log" 2>&1 || { tail -40 "$scratch/cmake.log"; exit 1; }
expect "find_package, C, shared" "$scratch/project/build/shared" yes
expect "find_package, C++, shared" "$scratch/project/build/shared_cxx" yes
expect "find_package, C, static" "$scratch/project/build/static" no

# No file that is installed may name the folder that it was built or installed in.
if grep -rlIE "$build|$scratch/first" "$prefix"; then
    echo "the files above name the build folder"
    exit 1
fi
if [ -x "$prefix/bin/millrace" ]; then
    env -i "$prefix/bin/millrace" --version
    ls "$prefix"/share/man/man1/millrace*.1 >/dev/null
fi
rm -rf "$scratch"

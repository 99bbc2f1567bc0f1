#!/bin/bash
# What the interface promises to programs: installs the build, and builds and runs capabilities_data.c, capabilities_loop.c
# and bugs.c against it, with the examples that they name. Prints a line for each capability and each bug; exit 1: one fails.
# usage: capabilities.sh BUILD SCRATCH CC [FLAGS]   (FLAGS: as the build's, such as -fsanitize=thread)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 scratch=$2 cc=$3 flags="-g -O1 -Wall -Wextra -Werror ${4:-}"
rm -rf "$scratch"
mkdir -p "$scratch/work"
scratch=$(cd "$scratch" && pwd)
cmake --install "$build" --prefix "$scratch/installed" >"$scratch/install.log"
examples=$scratch/installed/share/doc/millrace/examples
PKG_CONFIG_LIBDIR=$(dirname "$(find "$scratch/installed" -name millrace.pc)")
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_LIBDIR")
export PKG_CONFIG_LIBDIR LD_LIBRARY_PATH
unset PKG_CONFIG_PATH
cd "$scratch/work"

for source in "$here"/{capabilities_data,capabilities_loop,bugs}.c "$examples"/{own_op,collate,context}.c; do
    # The words that pkg-config prints, and the flags, are meant to be split.
    # shellcheck disable=SC2046,SC2086
    "$cc" $flags "$source" -o "$(basename "$source" .c)" $(pkg-config --cflags --libs millrace)
done
failed=0
./capabilities_data . || failed=1
./capabilities_loop "$scratch/installed/include/millrace" || failed=1
./bugs || failed=1
[ $failed = 1 ] || rm -rf "$scratch"
exit $failed

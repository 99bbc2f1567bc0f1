#!/bin/bash
# layers.sh finds what it is there to find: one wrong include at a time, in a tree that is otherwise right.
# usage: layers_selftest.sh SCRATCH
set -u
here=$(cd "$(dirname "$0")" && pwd)
scratch=$1
failed=0

fresh() {
    rm -rf "$scratch"
    mkdir -p "$scratch"/{cli,include/millrace}
    sed -n 's/^\([a-z]*\):.*/\1/p' "$here/layers.txt" | while read -r room; do
        mkdir -p "$scratch/src/$room"
        echo '#include <stdint.h>' >"$scratch/src/$room/a.c"
    done
    sed -n 's/^library \([a-z_]*\): \(.*\)/set(\1_rooms \2)/p' "$here/layers.txt" >"$scratch/CMakeLists.txt"
    echo '#include <millrace/error.h>' >"$scratch/src/base/a.c"
    echo '#include "storage/storage.h"' >"$scratch/src/dataset/a.c"
    printf '#include <stdio.h>\n#include <millrace/millrace.h>\n#include "cli.h"\n' >"$scratch/cli/a.c"
    echo '#include <millrace/tensor.h>' >"$scratch/include/millrace/dataset.h"
}

wrong() { # file, line
    fresh
    echo "$2" >>"$scratch/$1"
    if "$here/layers.sh" "$scratch" >/dev/null; then
        echo "not found: $1: $2"
        failed=1
    fi
}

fresh
"$here/layers.sh" "$scratch" || { echo "a right tree is called wrong"; failed=1; }
fresh
rm -r "$scratch/src/codec"
if "$here/layers.sh" "$scratch" >/dev/null; then
    echo "not found: a room of layers.txt that does not exist"
    failed=1
fi
fresh
sed -i "s/ serve)/)/" "$scratch/CMakeLists.txt"
if "$here/layers.sh" "$scratch" >/dev/null; then
    echo "not found: a library that CMakeLists.txt makes of other rooms"
    failed=1
fi
fresh
sed -i '/millrace_train/d' "$scratch/CMakeLists.txt"
if "$here/layers.sh" "$scratch" >/dev/null; then
    echo "not found: a library that CMakeLists.txt does not make"
    failed=1
fi
wrong src/base/a.c '#include "device/device.h"'
wrong src/loader/a.c '#include "nn/nn.h"'
wrong src/device/a.c '#include "recording/recording.h"'
wrong src/base/a.c '#include <millrace/loader.h>'
wrong src/base/a.c '#include <millrace/millrace.h>'
wrong src/base/a.c '#include "base.h"'
wrong src/dataset/a.c '#include "sampler/sampler.h"'
wrong src/dataset/a.c '#  include "loader/loader.h"'
wrong src/sampler/a.c '#include "cellar/wine.h"'
wrong cli/a.c '#include "base/base.h"'
wrong include/millrace/dataset.h '#include <millrace/loader.h>'
wrong include/millrace/dataset.h '#include "tensor.h"'
wrong include/millrace/new.h '#include <stdint.h>'
rm -rf "$scratch"
exit $failed

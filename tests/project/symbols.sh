#!/bin/bash
# Each shared library exports exactly the functions that its public headers declare with MR_API, all of them mr_*, as version
# MILLRACE_1 where the project's is 1; and as MILLRACE_1_PRIVATE what rooms' headers mark with MR_PRIVATE, which the other
# libraries do use. The static one defines no global name that does not start with mr_. Only libmillrace-profile needs SQLite.
# usage: symbols.sh SOURCE BUILD
set -u
source=$1 build=$2
node=MILLRACE_$("$source/scripts/version.sh" | cut -d. -f1)
failed=0
complain() {
    echo "$1"
    failed=1
}

rooms_of() { sed -n "s/^library ${1//-/_}: //p" "$source/tests/project/layers.txt"; }
headers_of() { # the public headers of its rooms
    for room in $(rooms_of "$1"); do
        sed -n "s|^\(millrace/[a-z]*\.h\) = $room\$|$source/include/\1|p" "$source/tests/project/layers.txt"
    done
}
marked() { # mark, headers: the functions and objects behind the mark
    local mark=$1
    shift
    sed 's/^ *#.*//' "$@" | tr '\n' ' ' | sed 's/;/;\n/g' | grep -oE "\b$mark [^(;]*[(;]" |
        sed -nE 's/.*[ *](mr_[a-z0-9_]+)(\[[A-Za-z0-9_]*\])?[(;]$/\1/p' | sort -u
}
exported() { # library, version
    nm -D --defined-only "$build/lib$1.so" | awk -v version="$2" -v node="$node" '$2 ~ /[A-Zi]/ {
        split($3, part, /@+/)
        if (part[1] != node && part[1] != node "_PRIVATE" && part[2] == version) print part[1] }' | sort
}
differ() { # what, one list, the other
    local only
    only=$(comm -23 <(echo "$2") <(echo "$3"))
    [ -z "$only" ] || complain "$1: ${only//$'\n'/ }"
}

used=$(for name in millrace-profile millrace-train; do nm -D --undefined-only "$build/lib$name.so"; done |
    sed -nE 's/.* (mr_[a-z0-9_]+)@'"$node"'_PRIVATE.*/\1/p' | sort -u)
for name in millrace millrace-profile millrace-train; do
    # shellcheck disable=SC2046  # lists of files
    declared=$(marked MR_API $(headers_of $name))
    # shellcheck disable=SC2046
    private=$(for room in $(rooms_of $name); do find "$source/src/$room" -name '*.h'; done | xargs sed -n p |
        marked MR_PRIVATE /dev/stdin)
    [ -n "$declared" ] || complain "$name: nothing declared: this test reads something wrong"
    public=$(exported $name "$node")
    differ "$name: exported, but not declared with MR_API in a public header" "$public" "$declared"
    differ "$name: declared in a public header, but not exported" "$declared" "$public"
    differ "$name: marked MR_PRIVATE, but not exported so" "$private" "$(exported $name "${node}_PRIVATE")"
    differ "$name: exported as ${node}_PRIVATE, but no other library uses it" "$(exported $name "${node}_PRIVATE")" "$used"
    differ "$name: exported without a version" "$(exported $name "")" ""
    alien=$(nm -g --defined-only "$build/lib$name.a" | awk 'NF == 3 && $3 !~ /^mr_/ { print $3 }')
    [ -z "$alien" ] || complain "lib$name.a: global, neither static nor mr_*: ${alien//$'\n'/ }"
    needs=$(readelf -d "$build/lib$name.so" | grep -c 'NEEDED.*sqlite')
    [ "$needs" = "$([ $name = millrace-profile ] && echo 1 || echo 0)" ] || complain "lib$name.so: needs SQLite: $needs"
    echo "$name: $(echo "$public" | wc -l) functions exported"
done
all=$(for name in millrace millrace-profile millrace-train; do exported $name "$node"; done | sort)
[ -z "$(echo "$all" | uniq -d)" ] || complain "exported twice: $(echo "$all" | uniq -d)"
differ "declared, but no library exports it" "$(marked MR_API "$source"/include/millrace/*.h)" "$all"
exit $failed

#!/bin/bash
# Arrows between rooms point only down: every #include in src/, cli/, python/, examples/ and the public headers is one
# that layers.txt allows. The program, the Python module and the examples see public headers only. The table itself splits the rooms into libraries as
# CMakeLists.txt does, and lets none of them need one above it. usage: layers.sh SOURCE_ROOT
set -u
table=$(cd "$(dirname "$0")" && pwd)/layers.txt
cd "$1" || exit 1
folders=
for folder in src cli python examples include; do
    if [ -d $folder ]; then folders="$folders $folder"; fi
done

# shellcheck disable=SC2086  # a list of folders
grep -rnE '^[[:space:]]*#[[:space:]]*include' $folders --include='*.[ch]' --include='*.cc' --include='*.cu' \
    --include='*.cuh' --include='*.hpp' --include='*.cpp' | awk -v table="$table" '
function complain(text) { print file ":" line ": " text; bad++ }
BEGIN {
    while ((getline row < table) > 0) {
        if (row ~ /^#/ || row == "") continue
        sub(/ *#.*/, "", row)
        n = split(row, word, /[ :=]+/)
        if (word[1] == "library") {
            libraries[word[2]] = ""
            for (i = 3; i <= n; i++) {
                library[word[i]] = word[2]
                libraries[word[2]] = libraries[word[2]] " " word[i]
            }
            continue
        }
        if (row ~ /=/) { owner[word[1]] = word[2]; continue }
        room[word[1]] = 1
        allowed[word[1], word[1]] = 1
        for (i = 2; i <= n; i++) allowed[word[1], word[i]] = 1
    }
}
{
    split($0, part, ":")
    file = part[1]; line = part[2]
    if (!match($0, /[<"][^>"]+[>"]/)) { complain("cannot read this include"); next }
    quote = substr($0, RSTART, 1)
    name = substr($0, RSTART + 1, RLENGTH - 2)
    n = split(file, at, "/")
    checked++

    if (at[1] == "include") {
        from = owner["millrace/" at[n]]
        if (at[n] == "millrace.h") from = "all"
        if (from == "") { complain("public header without a room: add it to tests/project/layers.txt"); next }
        if (quote == "\"") complain("public headers include one another as <millrace/x.h>")
    } else if (at[1] == "src") {
        from = at[2]
        seen[from] = 1
        if (!(from in room)) { complain("room src/" from " is not in tests/project/layers.txt"); next }
    } else
        from = "user"

    if (name ~ /^millrace\//) {
        if (quote == "\"") complain("public headers are included as <" name ">")
        if (from == "user" || from == "all") next
        to = owner[name]
        if (to == "") complain("rooms include the public headers that they need, not " name)
    } else if (quote == "<")
        next
    else if (from == "user") {
        split(name, path, "/")
        own = at[1] "/" name # a folder of the program may be called as a room is
        if ((getline name_line < own) >= 0) { close(own); next }
        if (path[1] in room) complain(at[1] "/ sees public headers only, not \"" name "\"")
        next
    } else {
        n = split(name, path, "/")
        if (n < 2) { complain("\"" name "\": say the room: \"" from "/" name "\""); next }
        to = path[1]
        if (!(to in room)) { complain("\"" name "\": no such room"); next }
    }
    if (to != "" && !allowed[from, to]) complain(from " may not include " to " (\"" name "\")")
}
# The arrows of the table, and the rooms that CMakeLists.txt puts into a library.
function check_libraries(   pair, key, a, b, text, name) {
    for (pair in allowed) {
        split(pair, key, SUBSEP)
        a = library[key[1]]; b = library[key[2]]
        if (a != "" && b != "" && a != b && b != "millrace") {
            print table ": " key[1] " of " a " may not include " key[2] " of " b
            bad++
        }
    }
    while ((getline text < "CMakeLists.txt") > 0) {
        if (!match(text, /^set\([a-z_]+_rooms /)) continue
        name = substr(text, 5, RLENGTH - 5 - length("_rooms"))
        sub(/^set\([a-z_]+_rooms/, "", text); sub(/\)$/, "", text)
        if (text != libraries[name]) {
            print "CMakeLists.txt: the rooms of " name " are" text ", in " table libraries[name]
            bad++
        }
        delete libraries[name]
    }
    for (name in libraries) {
        print "CMakeLists.txt: no set(" name "_rooms" libraries[name] ")"
        bad++
    }
}
END {
    check_libraries()
    for (r in room)
        if (!(r in seen)) { print table ": no room src/" r; bad++ }
    print checked + 0 " includes checked, " bad + 0 " wrong"
    exit bad > 0 || checked == 0
}'

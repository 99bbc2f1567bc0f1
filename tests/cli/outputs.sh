#!/bin/sh
# What a run may write to, for every option of every command that names a file: never what it reads, by whatever name; without
# --force nothing that is not an earlier output of its kind. Then: what killed runs leave, and two runs with the same files.
# usage: outputs.sh PROGRAM        (MAKE_RECORDING: the program that makes recordings; without it timeline is left out)
set -u
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=$(mktemp -d "${TMPDIR:-/tmp}/millrace-outputs.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder" || exit 1
failed=0

fail() {
    echo "$*"
    [ ! -s said ] || cat said
    failed=1
}

m() {
    "$program" "$@" >said 2>&1
}

# want STATUS WHAT COMMAND...: OUT in the command stands for $out.
want() {
    status=$1 what=$2
    shift 2
    sh -c "\"\$0\" $(echo "$*" | sed "s|OUT|$out|g")" "$program" >said 2>&1 </dev/null
    code=$?
    [ $code -eq "$status" ] || fail "$what: millrace $*: status $code, want $status"
}

# kept FILE COPY WHAT: not a byte differs.
kept() {
    cmp -s "$1" "$2" || fail "$3: $1 has changed"
}

m synth digits d --n 100 --n-test 10 -q
m synth npy x.npy -n 64 --shape 4 -q
m synth photos p --n 4 --classes 2 --side 16 -q
m train idx:d -m softmax -e 1 -q -d cpu -c ck --log l.csv --plot c.svg
m train idx:d -m softmax -e 1 -q -d cpu --log l.jsonl
m bench hostmem -q -d sim --bytes 1MiB --repeats 1 --plot c.html
m feed npy:x.npy -q --state-out s.json --trace t
m predict ck idx:d -q -d cpu --csv q.csv
echo gone.jpg >list
m feed list:list,max-height=9,max-width=9 --collate pad --bad skip --quarantine bad -q
for f in ck l.csv c.svg l.jsonl c.html s.json t q.csv bad; do
    [ -s "$f" ] || fail "$f: was not written"
done

# ending, an earlier output of its own ("-": replaced by --force alone), a file that it reads ("-": none), has --force, command
cat >options <<'END'
.txt bad x.npy y feed npy:x.npy -q --quarantine OUT
.txt s.json x-labels.npy y feed npy:x.npy,labels=x-labels.npy -q --state-out OUT
.txt t s.json y feed npy:x.npy -q --state-in s.json --epochs 2 --trace OUT
.st - d/train-labels-idx1-ubyte y train idx:d -m softmax -e 1 -q -d cpu --test none -c OUT
.csv l.csv d/train-images-idx3-ubyte y train idx:d -m softmax -e 1 -q -d cpu --test none --log OUT
.jsonl l.jsonl d/t10k-images-idx3-ubyte y train idx:d -m softmax -e 1 -q -d cpu --test idx:d,split=test --log OUT
.svg c.svg d/train-images-idx3-ubyte y train idx:d -m softmax -e 1 -q -d cpu --test none --plot OUT
.csv q.csv ck y predict ck idx:d -q -d cpu --csv OUT
.svg c.svg - n bench hostmem -q -d sim --bytes 1MiB --repeats 1 --plot OUT
.svg c.svg - n bench processes -q --python none --starts 1 --resident 1MiB --max 4KiB --time 1ms --items 8 --repeats 1 --plot OUT
.html c.html - n bench streams -q -d sim:h2d=9,d2h=9,tflops=9 --size 16 -n 2 --repeats 1 --plot OUT
.html c.html - n bench surface -q -n 10 --plot OUT
.svg c.svg - n bench transfer -q -d sim --max 1KiB --repeats 1 --plot OUT
.svg c.svg - n bench workers -q -d sim -w 1 --time 1ms --samples 64 -b 8 --plot OUT
.svg c.svg - n bench batch-size idx:d -q -d cpu -m softmax --sizes 32 -e 1 --repeats 1 --plot OUT
.svg c.svg - n bench optimizers idx:d -q -d cpu --models softmax --optimizers sgd:lr=0.1 -n 40 --plot OUT
.png - p/class-000/000000.png y inspect folder:p -q --sheet OUT
.npy - - y synth npy OUT -n 4 --classes 0 -q
.bin - - y synth raw OUT -n 4 -q
END
if [ -n "${MAKE_RECORDING:-}" ]; then
    "$MAKE_RECORDING" good a.sqlite
    for format in html svg perfetto; do
        echo ".$format - a.sqlite y timeline -F $format -o OUT a.sqlite" >>options
    done
fi

while read -r ending own reads force command; do
    out=out$ending
    want 0 "a new file" "$command"
    [ "$own" != - ] && [ "$own" != bad ] && { want 0 "its own earlier output" "$command"; }
    rm -f "$out"
    echo thesis >thesis
    cp thesis "$out"
    want 1 "a foreign file" "$command"
    kept "$out" thesis "a foreign file: $command"
    rm "$out"
    cp thesis victim
    ln -s victim "$out"
    want 1 "a link to a foreign file" "$command"
    kept victim thesis "a link to a foreign file: $command"
    [ -L "$out" ] || fail "a link to a foreign file: $command: the link has gone"
    rm "$out"
    other=s.json
    [ "$own" != s.json ] || other=t
    cp $other "$out"
    want 1 "an output of another kind" "$command"
    kept "$out" $other "an output of another kind: $command"
    rm "$out"
    mkdir "$out"
    want 1 "a folder" "$command"
    rmdir "$out" || fail "a folder: $command: is not as it was"
    ln -s /dev/null "$out"
    case $command in timeline*) code=0 ;; *) code=1 ;; esac
    want $code "/dev/null" "$command"
    if [ ! -L "$out" ] || [ ! -c /dev/null ]; then fail "/dev/null: $command: the link has gone"; fi
    rm "$out"
    if [ "$own" = - ] && [ "$force" = y ]; then
        want 0 "a new file" "$command"
        want 1 "its own earlier output without --force" "$command"
        want 0 "its own earlier output with -f" "$command -f"
        rm "$out"
    fi
    if [ "$force" = y ]; then
        cp thesis "$out"
        want 0 "a foreign file with -f" "$command -f"
        ! cmp -s "$out" thesis || fail "a foreign file with -f: $command: was not replaced"
        rm -f "$out"
    fi
    if [ "$reads" != - ]; then
        cp "$reads" copy
        for link in 'ln' 'ln -s'; do
            $link "$reads" "$out"
            want 1 "an input by another name" "$command -f"
            kept "$reads" copy "an input by another name: $command"
            rm "$out"
        done
    fi
done <options
for f in *.part-* *.lock; do
    [ ! -e "$f" ] || fail "$f is left"
done

# Its own list, without bad samples, goes; a foreign one stays.
out=bad
want 0 "a list of a run before" feed npy:x.npy -q --quarantine OUT
[ ! -e bad ] || fail "a list of a run before is left"

# Tables and lists that are read while the data set is opened.
cp p/points.csv copy
out=p/points.csv
want 1 "the table that is read" "feed csv:p/points.csv -q --trace OUT -f"
kept p/points.csv copy "the table that is read"
cp list copy
out=list
want 1 "the list that is read" "feed list:list,max-height=9,max-width=9 --bad skip --trace OUT -f"
kept list copy "the list that is read"
printf '0\n1\n' >subset
cp subset copy
out=subset
want 1 "the sampler's file" "feed npy:x.npy --sampler subset:subset --state-out OUT -f"
kept subset copy "the sampler's file"
cp s.json again.json
out=again.json
want 0 "the state that the run goes on from" "feed npy:x.npy -q -e 2 --state-in OUT --state-out OUT"
cmp -s s.json again.json && fail "the state that the run goes on from: has not changed"
out=same
want 1 "one file for two outputs" "feed npy:x.npy --trace OUT --state-out OUT"
echo '# mine' >optimizers.html
want 1 "the default page" "bench optimizers idx:d -q -d cpu --models softmax --optimizers sgd:lr=0.1 -n 40"
[ "$(cat optimizers.html)" = '# mine' ] || fail "the default page: has changed"

# A file-size limit is an error of the run, which cleans up.
mkdir small
out=small/out
for command in "synth npy OUT -n 4000" "feed synthetic:n=9000,shape=2 --time 1s --trace OUT -q" \
    "train idx:d -m mlp:300s -e 1 -q -d cpu --test none -c OUT" "pack npy:x.npy OUT"; do
    sh -c "ulimit -f 8; exec \"\$0\" $(echo "$command" | sed "s|OUT|$out|g")" "$program" >said 2>&1
    code=$?
    [ $code -eq 1 ] || [ "$command" = "pack npy:x.npy OUT" ] || fail "a limit: $command: status $code"
    rm -rf small/out/pack.state small/out/shard* small/out/XXH64SUMS
    rmdir small/out 2>/dev/null
    [ -z "$(ls small)" ] || fail "a limit: $command: leaves $(ls small)"
done

# What a killed run was writing goes when the same file is written again; what someone is writing, or is none of ours, stays.
mkdir k
out=k/x.npy
"$program" synth npy k/x.npy -n 1000000 -q >/dev/null 2>&1 &
first=$!
until [ -s k/x.npy.part-000000 ]; do
    kill -0 $first || break
done
echo notes >k/x.npy.part-notes1
echo notes >k/x.npy.part-000000.txt
want 0 "beside a run that writes the same" synth npy OUT -n 8 -q
[ -e k/x.npy.part-000000 ] || fail "the file of a living run has gone"
kill -9 $first
wait $first 2>/dev/null
want 0 "after a killed run" synth npy OUT -n 8 -q -f
[ ! -e k/x.npy.part-000000 ] || fail "what a killed run wrote is left"
for f in k/x.npy.part-notes1 k/x.npy.part-000000.txt; do
    [ -e $f ] || fail "$f has gone"
done

# One run alone writes a checkpoint or a log; the others say who does.
mkdir r
run="train idx:d -m softmax -e 100000 -q -d cpu -w 1 --threads 1 --test none"
# shellcheck disable=SC2086
"$program" $run -c r/ck --checkpoint-every 1 --log r/l.csv --log-every 1 >/dev/null 2>&1 &
first=$!
until [ -s r/ck.lock ] && [ -s r/l.csv.lock ] && [ -s r/ck ] && [ -s r/l.csv ]; do
    kill -0 $first || break
done
out=r/ck
want 1 "a checkpoint that is being written" "$run -c OUT --resume"
grep -q "another run is writing it: process $first on .* since .* UTC" said || fail "who writes the checkpoint is not said"
out=r/l.csv
want 1 "a log that is being written" "$run --log OUT"
grep -q "another run is writing it: process $first on .* since .* UTC" said || fail "who writes the log is not said"
ln -s l.csv r/link.csv
out=r/link.csv
want 1 "a log that is being written, by another name" "$run --log OUT"
kill -9 $first
wait $first 2>/dev/null
out=r/ck
want 0 "after the run was killed" "$run -c OUT --resume --max-steps 1 --log r/l.csv"
for f in r/*.lock; do
    [ ! -e "$f" ] || fail "$f is left"
done
echo mine >r/ck.lock
want 1 "a foreign file where the lock should be" "$run -c OUT --resume --max-steps 1"
[ "$(cat r/ck.lock)" = mine ] || fail "a foreign file where the lock should be has changed"

exit $failed

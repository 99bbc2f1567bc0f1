# Decoding behind a system call filter: every format that can be, with the digest of a run without it, for any workers.
$ millrace synth photos p --n 60 --classes 4 --side 40 -q >/dev/null; millrace synth digits d --n 300 --n-test 10 -q >/dev/null; millrace synth digits z --n 300 --n-test 10 --gz -q >/dev/null; millrace synth npy c.npy --n 200 --shape 3x5 -q >/dev/null; millrace synth npy f.npy --n 200 --shape 3x5 --order F -q >/dev/null; millrace synth raw r.bin --n 200 --shape 8 -q >/dev/null; python3 -c "import zipfile as z; a = z.ZipFile('a.npz', 'w', z.ZIP_DEFLATED); a.write('f.npy', 'x.npy')"; millrace pack folder:p t --shard-count 20 -q >/dev/null; millrace pack npy:f.npy n --shard-count 50 -q >/dev/null; (cd p && ls class-00*/*.png) >l.txt; gzip -c t/*0.tar >t.tar.gz; ls
...
z
$ digest() { millrace feed "$@" -s -e 2 --seed 3 -b 7 -d cpu --digest | sed -n 's/^digest: //p'; }; for d in idx:d idx:z npy:c.npy npy:f.npy npz:a.npz raw:r.bin,shape=8 'tar:n'; do one=$(digest $d); [ ${#one} = 32 ] || echo "$d: no digest"; for w in 1 3; do [ "$(digest $d --sandbox -w $w)" = "$one" ] || echo "$d: $w workers: another digest"; done; echo "$d: same"; done
idx:d: same
idx:z: same
npy:c.npy: same
npy:f.npy: same
npz:a.npz: same
raw:r.bin,shape=8: same
tar:n: same
$ digest() { millrace feed "$@" -s -e 2 --seed 3 -b 7 -d cpu -t 'random_resized_crop(32),hflip(0.5),cast(f32)' --digest | sed -n 's/^digest: //p'; }; for d in folder:p csv:p/points.csv list:l.txt,root=p tar:t tar:t.tar.gz 'mix:2*folder:p,1*tar:t'; do one=$(digest $d); [ ${#one} = 32 ] || echo "$d: no digest"; for o in '-w 1' '-w 3' '--cache host' '--storage pread'; do [ "$(digest $d --sandbox $o)" = "$one" ] || echo "$d: $o: another digest"; done; echo "$d: same"; done
folder:p: same
csv:p/points.csv: same
list:l.txt,root=p: same
tar:t: same
tar:t.tar.gz: same
mix:2*folder:p,1*tar:t: same
$ digest() { millrace feed "$@" -b 7 -d cpu -t 'resize(32,32)' --digest | sed -n 's/^digest: //p'; }; one=$(digest 'tar:t/*.tar,stream'); [ ${#one} = 32 ] && [ "$(cat t/*.tar | digest tar:- --sandbox -w 3)" = "$one" ] && echo "pipe: same"
pipe: same
# The same bad samples, with the same reasons.
$ echo no picture >p/class-001/bad.png; head -c 300 p/class-002/$(ls p/class-002 | head -1) >p/class-002/short.png; for o in '' --sandbox; do millrace feed folder:p -d cpu -t 'resize(32,32)' --bad skip --quarantine q$o.json -q >/dev/null; done; cmp q.json q--sandbox.json && grep -o '"reason"' q.json | wc -l
2
# A resumed run may be in a sandbox, too.
$ rm p/class-001/bad.png p/class-002/short.png; f() { millrace feed folder:p -s -e 2 -b 7 -d cpu -t 'resize(32,32)' --digest "$@" | sed -n 's/^digest: //p'; }; one=$(f); a=$(f --batches 5 --state-out s.json); [ "$(f --sandbox --state-in s.json --digest-from $a)" = "$one" ] && echo "resumed: same"
resumed: same
$ millrace feed synthetic:n=10,shape=4 --sandbox -d cpu
millrace feed: sandbox: synthetic.*: this format can't be decoded in a sandbox: expected one that docs/data.md lists (re)
[1]
$ millrace feed folder:p -t 'resize(32,32)' --sandbox --cache device -d cpu
millrace feed: sandbox: not with cache=device, which decodes all samples when the loader opens
[2]

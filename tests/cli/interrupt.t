# A signal while a data set is opening ends the program in order: status 1, a message, nothing left. RAISE is preloaded and raises it
# when a path is opened. INT 2, TERM 15, HUP 1.
$ mkdir tmp && millrace synth npy x.npy --shape 8 --n 200 --classes 3 >/dev/null && millrace pack npy:x.npy,labels=x-labels.npy p -q >/dev/null && gzip -c p/shard-000000.tar > a.tar.gz && millrace synth photos f --n 4 >/dev/null && millrace synth digits d --n 100 --n-test 10 >/dev/null && millrace train d --model softmax -e 1 -d cpu -c m.st -q >/dev/null && ls
a.tar.gz
d
f
m.st
p
tmp
x-labels.npy
x.npy
$ for s in 2 15 1; do LD_PRELOAD=$RAISE RAISE_AT=/a.tar.gz RAISE_SIGNAL=$s millrace feed ./a.tar.gz -d cpu; echo $?; done
millrace: interrupted: finishing cleanly; interrupt again to stop at once
millrace feed: tar: interrupted while it was opened or read
1
millrace: interrupted: finishing cleanly; interrupt again to stop at once
millrace feed: tar: interrupted while it was opened or read
1
millrace: interrupted: finishing cleanly; interrupt again to stop at once
millrace feed: tar: interrupted while it was opened or read
1
$ for c in 'inspect' 'train' 'bench batch-size' 'bench story'; do LD_PRELOAD=$RAISE RAISE_AT=/a.tar.gz RAISE_SIGNAL=15 millrace $c ./a.tar.gz -q; echo $?; done
millrace inspect: tar: interrupted while it was opened or read
1
millrace train: tar: interrupted while it was opened or read
1
millrace bench batch-size: tar: interrupted while it was opened or read
1
millrace bench story: tar: interrupted while it was opened or read
1
$ LD_PRELOAD=$RAISE RAISE_AT=/a.tar.gz RAISE_SIGNAL=15 millrace predict m.st ./a.tar.gz -q
millrace predict: tar: interrupted while it was opened or read
[1]
$ LD_PRELOAD=$RAISE RAISE_AT=/a.tar.gz RAISE_SIGNAL=15 millrace pack ./a.tar.gz out -q; echo $?; test -e out || echo nothing
millrace pack: tar: interrupted while it was opened or read
1
nothing
$ LD_PRELOAD=$RAISE RAISE_AT=/f RAISE_SIGNAL=15 millrace feed folder:./f -d cpu -q
millrace feed: ./f: interrupted while it was opened or read
[1]
$ LD_PRELOAD=$RAISE RAISE_AT=/a.tar.gz RAISE_SIGNAL=15 millrace feed ./a.tar.gz -d cpu -q --json 2>/dev/null
{
  "command": "feed",
  "version": ".*", (re)
  "error": "tar: interrupted while it was opened or read",
  "exit_status": 1
}
[1]
# While it is unpacked to a temporary file.
$ TMPDIR=$PWD/tmp LD_PRELOAD=$RAISE RAISE_AT=/work/tmp RAISE_SIGNAL=15 millrace feed ./a.tar.gz,memory=1KiB -d cpu -q; echo $?; ls tmp
millrace feed: ./a.tar.gz: interrupted while it was opened or read
1
# nohup: a hangup that is ignored stays ignored.
$ (trap '' HUP; LD_PRELOAD=$RAISE RAISE_AT=/a.tar.gz RAISE_SIGNAL=1 millrace feed ./a.tar.gz -d cpu --json | grep '"samples":')
  "samples": 200,

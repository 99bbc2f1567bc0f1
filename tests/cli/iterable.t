# A tar archive from a pipe: the digest of the file in sequential order, for any workers.
$ millrace synth photos p --n 60 -q >/dev/null && millrace pack p t --shard-size 1MB -q >/dev/null && cat t/*.tar > all.tar; ls t/*.tar | wc -l | grep -vx 0 >/dev/null && echo packed
packed
$ digest() { millrace feed "$@" -b 8 -t 'resize(32,32)' --digest | sed -n 's/^digest: //p'; }; one=$(digest 'tar:t/*.tar'); for w in 1 2 5; do [ "$(cat t/*.tar | digest tar:- -w $w)" = "$one" ] && echo "$w: same"; done; [ "$(digest 'tar:t/*.tar,stream')" = "$one" ] && echo "stream: same"; mkfifo f; cat t/*.tar > f & [ "$(digest tar:f)" = "$one" ] && echo "fifo: same"; [ "$(gzip -c all.tar | digest tar:-)" = "$one" ] && echo "gzip: same"; [ "$(digest tar:/dev/fd/3 3< all.tar)" = "$(digest tar:all.tar)" ] && echo "descriptor: same"
1: same
2: same
5: same
stream: same
fifo: same
gzip: same
descriptor: same
# The length is not known.
$ cat t/*.tar | millrace feed tar:- -b 8 -t 'resize(32,32)' --shuffle-buffer 20 | head -1
tar: stdin: an unknown number of samples
# Shards that can be read again resume, with the same samples in the buffer; a pipe does not.
$ d() { millrace feed 'tar:t/*.tar,stream' -b 8 -t 'resize(32,32)' --shuffle-buffer 20 --seed 3 -e 2 --digest "$@" | sed -n 's/^digest: //p'; }; w=$(d); a=$(d --batches 5 --state-out s.json); [ "$(d --digest-from $a --state-in s.json -w 3)" = "$w" ] && echo "resumed: same"
resumed: same
$ cat t/*.tar | millrace feed tar:- -b 8 -t 'resize(32,32)' --state-in s.json
millrace feed: s.json: tar: stdin: stdin is a pipe: it cannot be read again, so a run cannot be resumed from it
[1]
$ cat t/*.tar | millrace feed tar:- -e 2 -t 'resize(32,32)'
millrace feed: tar: stdin: stdin is a pipe: it cannot be read again, so epochs must be 1
[2]
# Texts are no pictures: the advice is another.
$ mkdir x; for i in 1 2 3; do printf "%0${i}d" 0 >x/$i.txt; done; tar -C x -cf x.tar 1.txt 2.txt 3.txt; millrace feed tar:x.tar; millrace feed tar:-,text <x.tar | sed -n 2p
millrace feed: txt u8[<=3]: samples differ in shape: make them one size by a transform (sequences: truncate(512),pad_to(512)), let it be a text (tar: the option text; data of your own: mr_spec.kind), or collate by pad, fixed, ragged or pack
  txt string[<=65536]
# What goes wrong names the input and the place.
$ head -c 200000 all.tar | millrace feed tar:- -t 'resize(32,32)'
millrace feed: stdin: truncated: the .* at byte [0-9]+ ends at [0-9]+, but the data ended at 200000 (re)
[1]
$ head -c 20000 /dev/zero | tr '\0' x | millrace feed tar:-
millrace feed: stdin: not a tar archive: its first block is not a tar header
[1]
$ millrace feed tar:-
millrace feed: stdin: no data: expected a tar archive
[1]
$ millrace feed 'tar:t/*.tar,stream' --shuffle
millrace feed: sampler: the data set's length is not known, so it has no order but sequential: to shuffle, set the loader's shuffle_buffer (--shuffle-buffer)
[2]
$ millrace inspect tar:- < all.tar
millrace inspect: tar: stdin: an iterable data set, whose samples come one after the other: this command chooses samples by number (millrace feed does not)
[1]

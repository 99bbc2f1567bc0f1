$ millrace synth digits d --n 300 --n-test 10 --seed 5 -q >/dev/null
$ millrace pack idx:d p --shard-count 100
packed 300 samples into 3 shards \(.*\) in .*; open as 'tar:p/shard-\{000000..000002\}.tar' (re)
$ ls p
XXH64SUMS
pack.state
shard-000000.tar
shard-000000.tar.idx
shard-000001.tar
shard-000001.tar.idx
shard-000002.tar
shard-000002.tar.idx
# Other programs read them.
$ tar tf p/shard-000001.tar | head -4
000100.image.npy
000100.cls
000101.image.npy
000101.cls
# The same bytes whatever the workers are; the same samples as before.
$ millrace pack idx:d q --shard-count 100 --workers 5 -q >/dev/null; cmp p/XXH64SUMS q/XXH64SUMS
$ millrace feed idx:d --transform 'label.cast(i64)' --digest -q | grep digest >a; millrace feed 'tar:p/shard-{000000..000002}.tar' --digest -q | grep digest | cmp a -
$ millrace feed 'p/shard-{000000..000002}.tar' --digest -q --workers 3 --storage pread | grep digest | cmp a -
# A pack of a pack is the same.
$ millrace pack 'tar:p/shard-{000000..000002}.tar' r --shard-count 100 -q >/dev/null; cmp p/XXH64SUMS r/XXH64SUMS
# By size.
$ millrace pack idx:d s --shard-size 200KiB -q >/dev/null; find s -name '*.tar' -size +400 | wc -l; ls s/*.tar | wc -l
0
4
# The same again is done already; nothing else is replaced without --force.
$ ls -li p >was; millrace pack idx:d p --shard-count 100; ls -li p | cmp - was; millrace pack idx:d p --shard-count 100 --json | grep '"kept"'
already packed 300 samples into 3 shards \(.*\) in .*; open as 'tar:p/shard-\{000000..000002\}.tar' (re)
  "kept": 3,
$ millrace pack idx:d p; ls -li p | cmp - was
millrace pack: p/pack.state: made from another data set or with other options: use those, another folder, or --force to start over
$ cp -r p old; rm old/pack.state; millrace pack idx:d old --shard-count 100
millrace pack: old: holds shards already; --force replaces them
[1]
# What has gone since is packed again.
$ cp -r p less; rm less/shard-000001.tar; millrace pack idx:d less --shard-count 100 | tail -n 1; cmp p/shard-000001.tar less/shard-000001.tar
1 shard kept from an earlier run
$ rm -r old less was
$ millrace pack idx:d q --shard-count 150 --force -q >/dev/null; ls q/*.tar
q/shard-000000.tar
q/shard-000001.tar
# Nor what is being packed with it.
$ cp -r p mine; millrace pack tar:mine mine/ --force -q 2>&1 | sed 's/-00000[012]/-N/g'; ls mine/*.tar | wc -l; millrace pack 'mix:0.5*tar:mine,0.5*tar:p' ./mine --force -q >/dev/null 2>&1; cmp mine/shard-000002.tar p/shard-000002.tar
millrace pack: mine//shard-N.tar: this run reads it as mine/shard-N.tar: write to another file
3
# Killed at whatever moment, it goes on to the same end.
$ millrace synth npy x.npy --n 400 --shape 25000 --classes 3 -q >/dev/null; millrace pack npy:x.npy,labels=x-labels.npy whole --shard-count 10 -q >/dev/null
$ for t in 0.02 0.05 0.1 0.2; do millrace pack npy:x.npy,labels=x-labels.npy k --shard-count 10 -q >/dev/null & sleep $t; kill -9 $!; wait $!; done 2>/dev/null; millrace pack npy:x.npy,labels=x-labels.npy k --shard-count 10 -q >/dev/null; cmp whole/XXH64SUMS k/XXH64SUMS
$ ls k | grep -c -e part
0
[1]
$ for f in k/*.tar; do cmp "$f" "whole/${f#k/}"; done
# What a killed run was writing goes; what is not pack's stays.
$ mkdir l; for f in pack.state XXH64SUMS shard-000000.tar shard-000003.tar.idx notes; do echo x >l/$f.part-AbCdEf; done; for f in pack.state.backup classes.json.backup XXH64SUMS.part-old shard-000000.tar.sha256; do echo x >l/$f; done; millrace pack idx:d l -q >/dev/null; ls l
XXH64SUMS
XXH64SUMS.part-old
classes.json.backup
notes.part-AbCdEf
pack.state
pack.state.backup
shard-000000.tar
shard-000000.tar.idx
shard-000000.tar.sha256
# What is packed may bear another name.
$ cp -r p linked; ln -s linked/shard-000002.tar link.tar; millrace pack tar:link.tar linked --force; ls linked/*.tar | wc -l
millrace pack: linked/shard-000002.tar: this run reads it as link.tar: write to another file
3
# Other options do not go on with it.
$ mkdir o; echo 'millrace pack 1: of something else' >o/pack.state; millrace pack idx:d o
millrace pack: o/pack.state: made from another data set or with other options: use those, another folder, or --force to start over
[1]
# A full disk: an error, and no half shard. (Limits count blocks of 512 bytes.)
$ (ulimit -f 500; millrace pack npy:x.npy,labels=x-labels.npy f --shard-count 10); ls f
millrace pack: f/shard-000000.tar: cannot be written: File too large; finished shards are kept: run again to resume
pack.state
# Photos, where there are any: as they were, whatever the workers and the store; smaller ones are smaller.
$ data=$MILLRACE_TEST_DATA/faces; if [ -d "$data" ] && millrace pack "folder:$data" photos --shard-size 1MiB -q >photos.txt 2>&1; then for u in "folder:$data" "tar:photos/shard-{000000..$(ls photos/*.tar | tail -1 | tr -dc '0-9')}.tar"; do for w in 1 3; do millrace feed "$u" --transform 'random_resized_crop(48),hflip' --workers $w --storage $([ $w = 1 ] && echo pread || echo auto) --digest -q | grep digest; done; done | sort -u | wc -l; else echo 1; fi
1
$ if [ -d photos ]; then millrace pack "folder:$MILLRACE_TEST_DATA/faces" small --resize 64 --quality 80 -q >/dev/null && cat small/*.tar | wc -c | awk -v all="$(cat photos/*.tar | wc -c)" '{ print ($1 < all) }'; else echo 1; fi
1
# Classes keep their names; a folder of shards is a data set.
$ mkdir -p c/cat "c/big dog"; for f in cat/1 cat/2 'big dog/3'; do printf '\211PNG\r\n\032\nno more' >"c/$f.png"; done; millrace pack folder:c packed -q >/dev/null; cat packed/classes.json; millrace inspect tar:packed --scan 0 2>/dev/null | sed -n '/^classes/,/cat/p'; millrace inspect packed/ --json --scan 0 2>/dev/null | grep -c -e '"name": "cat"' -e '"name": "big dog"'
["big dog", "cat"]
classes:
  label  name     samples
      0  big dog        1  ####################
      1  cat            2  ########################################
2
# A bad sample is told with its file.
$ printf 'no picture' >c/cat/0.png; millrace pack folder:c named -q
millrace pack: sample 1: c/cat/0.png: 10 bytes that are not a picture: expected JPEG, PNG or WebP (--bad skip leaves it out)
[1]
$ mkdir t; printf 'no picture' >t/0.jpg; tar cf t/t.tar -C t 0.jpg; millrace pack tar:t/t.tar named2 -q
millrace pack: sample 0: t/t.tar: 10 bytes that are not a picture: expected JPEG, PNG or WebP (--bad skip leaves it out)
[1]
# Not into a bucket.
$ millrace pack idx:d s3://bucket/d
millrace pack: s3://bucket/d: pack writes into a local folder: give its path
[2]
# What cannot be packed.
$ millrace pack idx:d z --resize 10
millrace pack: --resize and --quality: the data set has no compressed pictures
[1]
$ millrace pack d folder:z
millrace pack: folder:z is a data set, not the folder to pack into: millrace pack DATASET DIR (./folder:z names a folder)
[2]
$ millrace pack nowhere z
millrace pack: nowhere: No such file or directory .* (re)
[1]
$ millrace pack idx:d u --json | grep -e '"shards"' -e '"samples"' -e '"dataset"'
  "dataset": "tar:u/shard-000000.tar",
  "samples": 300,
  "shards": 1,
# Ranks share the work; together they are in the samples' order.
$ for r in 2 0 3 1; do millrace pack idx:d ranks --shard-count 40 --rank $r --world 4 -q >/dev/null; done; millrace feed tar:ranks --digest -q | grep digest | cmp a -; ls ranks | grep -v idx
XXH64SUMS-000-of-004
XXH64SUMS-001-of-004
XXH64SUMS-002-of-004
XXH64SUMS-003-of-004
pack-000-of-004.state
pack-001-of-004.state
pack-002-of-004.state
pack-003-of-004.state
shard-000-of-004-000000.tar
shard-000-of-004-000001.tar
shard-001-of-004-000000.tar
shard-001-of-004-000001.tar
shard-002-of-004-000000.tar
shard-002-of-004-000001.tar
shard-003-of-004-000000.tar
shard-003-of-004-000001.tar
$ env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 millrace pack idx:d ranks --shard-count 40
millrace pack: rank 1 of 4, from openmpi; --rank and --world override that
rank 1 of 4: already packed 75 samples into 2 shards \(.*\) in .*; open all ranks' shards as 'tar:ranks' (re)
# A part that was killed goes on; other ranks' parts are left alone, those of another number of ranks are not mixed in.
$ rm ranks/shard-001-of-004-000001.tar; for r in 1 2; do millrace pack idx:d ranks --shard-count 40 --rank $r --world 4 | cut -d '(' -f 1; done; millrace feed tar:ranks --digest -q | grep digest | cmp a -
rank 1 of 4: packed 75 samples into 2 shards 
1 shard kept from an earlier run
rank 2 of 4: already packed 75 samples into 2 shards 
$ millrace pack idx:d ranks --rank 1 --world 3; millrace pack idx:d ranks
millrace pack: ranks: holds shards already; --force replaces them
millrace pack: ranks: holds shards already; --force replaces them
[1]
$ for r in 0 1 2; do millrace pack idx:d ranks --rank $r --world 3 --force -q >/dev/null & done; wait; millrace feed tar:ranks --digest -q | grep digest | cmp a -; ls ranks | grep -c of-004
0
[1]
$ millrace pack idx:d ranks --force -q >/dev/null; ls ranks | grep -c of-00; millrace feed tar:ranks --digest -q | grep digest | cmp a -
0
# More ranks than samples; a rank beyond them.
$ millrace synth npy few.npy --n 2 --shape 3 -q >/dev/null; for r in 0 1 2; do millrace pack npy:few.npy few --rank $r --world 3 | head -n 1; done; ls few/*.tar
rank 0 of 3: packed 1 sample into 1 shard \(.*\) in .*; open all ranks' shards as 'tar:few' (re)
rank 1 of 3: packed 1 sample into 1 shard .* (re)
rank 2 of 3: packed 0 samples into 0 shards .* (re)
few/shard-000-of-003-000000.tar
few/shard-001-of-003-000000.tar
$ millrace pack idx:d few --rank 3 --world 3; millrace pack idx:d few --rank x
millrace pack: --rank 3: expected 0..2
millrace pack: --rank x: expected auto or a number, 0..1048576
[2]
# TFRecord shards: what was packed reads back with its names, types and shapes, as the printed text says.
$ echo 'sed "s/.* as .//;s/.$//"' >opened; millrace pack idx:d records --format tfrecord --shard-count 100 >out; cut -d '(' -f 1 out; ls records; millrace feed "$(sh opened <out)" --digest -q | grep digest >b; millrace feed idx:d --digest -q | grep digest | cmp b -
packed 300 samples into 3 shards 
XXH64SUMS
pack.state
shard-000000.tfrecord
shard-000000.tfrecord.idx
shard-000001.tfrecord
shard-000001.tfrecord.idx
shard-000002.tfrecord
shard-000002.tfrecord.idx
$ sh opened <out
tfrecord:records/shard-{000000..000002}.tfrecord,features=[image:u8[28,28],label:u8]
# The same bytes whatever the workers are; done is done; another format is not mixed in.
$ millrace pack idx:d records2 --format tfrecord --shard-count 100 --workers 5 -q >/dev/null; cmp records/XXH64SUMS records2/XXH64SUMS; millrace pack idx:d records --format tfrecord --shard-count 100 | cut -c 1-20
already packed 300 s
$ millrace pack idx:d records --shard-count 100; millrace pack idx:d p --format tfrecord --shard-count 100
millrace pack: records/pack.state: made from another data set or with other options: use those, another folder, or --force to start over
millrace pack: p/pack.state: made from another data set or with other options: use those, another folder, or --force to start over
[1]
# All types, in one file that is named: lists where they hold the values, else bytes.
$ for t in bool u8 i8 u16 i16 u32 i32 u64 i64 f16 f32 f64 c64; do millrace synth npy t.npy --n 20 --shape 3x5 --dtype $t --force -q >/dev/null; millrace pack npy:t.npy,labels=t-labels.npy $t.tfrecord >out; millrace feed "$(sh opened <out)" --digest -q | grep digest >c.txt; millrace feed npy:t.npy,labels=t-labels.npy --digest -q | grep digest | cmp - c.txt && sh opened <out; done
tfrecord:bool.tfrecord,features=[x:bool[3,5],label:i64]
tfrecord:u8.tfrecord,features=[image:u8[3,5],label:i64]
tfrecord:i8.tfrecord,features=[x:i8[3,5],label:i64]
tfrecord:u16.tfrecord,features=[x:u16[3,5],label:i64]
tfrecord:i16.tfrecord,features=[x:i16[3,5],label:i64]
tfrecord:u32.tfrecord,features=[x:u32[3,5],label:i64]
tfrecord:i32.tfrecord,features=[x:i32[3,5],label:i64]
tfrecord:u64.tfrecord,features=[x:u64[3,5],label:i64]
tfrecord:i64.tfrecord,features=[x:i64[3,5],label:i64]
tfrecord:f16.tfrecord,features=[x:f16[3,5],label:i64]
tfrecord:f32.tfrecord,features=[x:f32[3,5],label:i64]
tfrecord:f64.tfrecord,features=[x:f64[3,5],label:i64]
tfrecord:c64.tfrecord,features=[x:c64[3,5],label:i64]
# Rows of varying length, empty ones too.
$ millrace pack synthetic:n=50,shape=9x2,min-length=1,seed=3 vary.tfrecord >out; sh opened <out; for u in "$(sh opened <out)" synthetic:n=50,shape=9x2,min-length=1,seed=3; do millrace feed "$u" --collate pad --digest -q | grep digest; done | sort -u | wc -l
tfrecord:vary.tfrecord,features=[x:f32[<=9,2]]
1
# Pictures and labels have the names that TensorFlow's own sets have; the bytes are as they were.
$ mkdir -p pics; millrace synth photos pics --n 12 --classes 3 --side 32 -q >/dev/null; rm pics/points.csv; millrace pack folder:pics pics.tfrecord >out; sh opened <out; millrace inspect tfrecord:pics.tfrecord --scan 0 2>/dev/null | grep -o 'features=.*'; for u in "$(sh opened <out)" folder:pics; do millrace feed "$u" -t 'resize(16,16)' --digest -q | grep digest; done | sort -u | wc -l
tfrecord:pics.tfrecord,features=[image=image/encoded:image,label=image/class/label:i64]
features=[image/encoded:image,image/class/label:i64]
1
# A file is not replaced without --force, nor what the run reads with it; several processes need a folder.
$ millrace pack idx:d f32.tfrecord; cp f32.tfrecord was; millrace pack tfrecord:f32.tfrecord f32.tfrecord --force; cmp f32.tfrecord was; millrace pack idx:d one.tfrecord --rank 0 --world 2
millrace pack: f32.tfrecord: exists; --force replaces it
millrace pack: f32.tfrecord: this run reads it: write to another file
millrace pack: one.tfrecord: several processes pack into a folder: --format tfrecord and the folder's name
[2]
# Killed or on a full disk: no file, or shards that are whole.
$ (ulimit -f 500; millrace pack npy:x.npy,labels=x-labels.npy full.tfrecord); ls full*
millrace pack: full.tfrecord: cannot be written: File too large
ls: cannot access 'full*': No such file or directory
[2]
$ for t in 0.02 0.05 0.1; do millrace pack npy:x.npy,labels=x-labels.npy kr --format tfrecord --shard-count 10 -q >/dev/null & sleep $t; kill -9 $!; wait $!; done 2>/dev/null; millrace pack npy:x.npy,labels=x-labels.npy kr --format tfrecord --shard-count 10 -q >/dev/null; millrace pack npy:x.npy,labels=x-labels.npy whole2 --format tfrecord --shard-count 10 -q >/dev/null; cmp kr/XXH64SUMS whole2/XXH64SUMS; ls kr | grep -c part; for f in kr/*.tfrecord; do cmp $f whole2/${f#kr/}; done
0
# Ranks share the work.
$ for r in 1 0; do millrace pack idx:d rr --format tfrecord --shard-count 80 --rank $r --world 2 >out; done; millrace feed "$(sh opened <out)" --digest -q | grep digest | cmp b -; ls rr/*.tfrecord
rr/shard-000-of-002-000000.tfrecord
rr/shard-000-of-002-000001.tfrecord
rr/shard-001-of-002-000000.tfrecord
rr/shard-001-of-002-000001.tfrecord

# Files that 0.1 wrote: tests/data/README.md says how. Its recordings are in recordings.t.
$ millrace synth digits d --n 203 --n-test 50 --seed 5 -q >/dev/null
# A state: the digest is that of what 0.1 itself delivered after it.
$ millrace feed d -b 16 --shuffle --seed 7 -e 2 -t 'random_crop(24,24),hflip(0.5),cast(f32)' --state-in "$TEST_DATA/state-0.1.json" --digest -q | grep digest
digest: 1fd462e4c2fb5a28571a53c76bfee3e7
$ millrace feed d -b 16 --shuffle --seed 8 --state-in "$TEST_DATA/state-0.1.json" -q 2>&1 | grep -o 'random(seed=7)'
random(seed=7)
# A checkpoint.
$ cp "$TEST_DATA/checkpoint-0.1.safetensors" c.safetensors; train() { millrace train d -b 16 --seed 3 -m softmax -o sgd:momentum=0.9 --lr 0.05 --device cpu -t 'center_crop(8,8),cast(f32),scale(1/255)' --epochs 2 --resume --checkpoint "$@"; }; train c.safetensors | grep -e 'goes on' -e 'epoch  [12]/2'
  goes on from c.safetensors: after step 17, in epoch 2
epoch  1/2  loss 2.2.* (re)
epoch  2/2  .* (re)
# Resumed, it ends where a run of today ends.
$ millrace train d -b 16 --seed 3 -m softmax -o sgd:momentum=0.9 --lr 0.05 --device cpu -t 'center_crop(8,8),cast(f32),scale(1/255)' --epochs 2 --checkpoint new.safetensors -q >/dev/null; for f in c new; do millrace predict $f.safetensors d --csv $f.csv -q; done | sort -u | grep -c accuracy; cut -d , -f 1-3 new.csv >new; cut -d , -f 1-3 c.csv | cmp - new; wc -l <new
1
204
# A pack: the same samples as 0.1 reads in it, by the indexes that 0.1 wrote, which count for archives of their time; no others are made.
$ mkdir p; cp "$TEST_DATA"/pack-0.1/* p; touch -d @1795863649.176958861 p/shard-000000.tar; touch -d @1795863649.200689410 p/shard-000001.tar; stat -c %i p/*.idx >before; millrace feed tar:p,index=beside -d cpu --digest -q | grep digest; stat -c %i p/*.idx | cmp - before
digest: 864651037b97bb868562df9c9cc1367c

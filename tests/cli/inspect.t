$ millrace synth digits d --n 30 --n-test 20 --noise 0 -q >/dev/null
$ millrace inspect d -n 1 --index 4
idx: train-images-idx3-ubyte + train-labels-idx1-ubyte (train)
30 samples, format idx, fingerprint [0-9a-f]* (re)
field            bytes  min  max     mean
image u8[28,28]  784 B    0  254  31.4961
label u8           1 B    0    9  5.26667
label:
  value  samples
      0        4  ##########################
      1        2  #############
      2        2  #############
      3        1  ######
      4        2  #############
      5        3  ####################
      6        2  #############
      7        3  ####################
      8        6  ########################################
      9        5  #################################
sample 4
  image u8[28,28]:
  |
  |            .=*#%%#*.
  |          .*%%#+--#%#
  |         -%%#:    +%%#.
  |        :%%*    .-#%%+
  |        .#%%***#%%%%+
  |          :+***+-*%%:
  |                -%%+
  |         ..    :#%#.
  |        .%%#=:=%%#.
  |         .=#%%%#=
  |            ...
  |
  |
  label u8: 9
$ millrace inspect idx:d,split=test -n 0 | sed -n '2s/,.*//p'
20 samples
$ millrace inspect d --index 30
millrace inspect: --index 30: d has 30 samples
[2]
# Shown samples end with the data set.
$ millrace inspect d --index 28 | grep -c '^sample'
2
$ millrace inspect d -n 2 --json | grep -c '"index"'
2
$ millrace inspect d -n 1 --json | grep -e '"samples": 30' -e '"format"' -e '"name"' -e '"version"'
  "version": ".*", (re)
  "format": "idx",
  "samples": 30,
      "name": "image",
      "name": "label",
$ millrace inspect synthetic:n=5,shape=2,values=index,classes=3 -n 2 --index 1
synthetic: .* (re)
5 samples, format synthetic, fingerprint [0-9a-f]* (re)
...
sample 1
...
sample 2
...
# Lists.
$ millrace inspect --formats | grep -o -e '^idx:' -e '^npy:' -e '^synthetic:'
idx:
npy:
synthetic:
$ millrace inspect --formats | grep -m1 -o -e '(rgb|gray|rgba)'
(rgb|gray|rgba)
$ millrace inspect --transforms | sed 's/[^a-z_].*//' | head -3
cast
scale
normalize
$ millrace inspect --formats --transforms --json | grep -c -e '"formats"' -e '"transforms"'
2
$ millrace inspect --formats d
millrace inspect: d: --formats and --transforms take no DATASET
[2]
# What is missing is said in the list and in the error, with what to install.
$ MILLRACE_VIDEO_MODULE=/nowhere.so millrace inspect --formats | grep -A1 -e '^video:' | tail -1
  not here: the module libmillrace-video.so was not found beside the library: install libavformat-dev, libavcodec-dev and libswscale-dev and build again, or name it in MILLRACE_VIDEO_MODULE: /nowhere.so: .* (re)
$ MILLRACE_VIDEO_MODULE=/nowhere.so millrace inspect video:. 2>&1 | grep -c 'install libavformat-dev, libavcodec-dev and libswscale-dev'
1
# Errors name what was asked for; exit status 2 when it was asked wrongly.
$ millrace inspect
millrace inspect: an argument is missing: millrace inspect DATASET [options]
[2]
$ millrace inspect nothere 2>&1 | cut -c 1-25
millrace inspect: nothere
$ millrace inspect nothere 2>/dev/null
[1]
$ millrace inspect synthetic:m=5 2>/dev/null
[2]
$ head -c 1000 d/train-images-idx3-ubyte >cut-images-idx3-ubyte; millrace inspect cut-images-idx3-ubyte
millrace inspect: cut-images-idx3-ubyte: .*trunc.*1000.* (re)
[1]
# A limit that is no size is told before a cache is opened with it, and made empty.
$ for limit in 16g '16 GiB' abc 5; do MILLRACE_CACHE_DIR=cache MILLRACE_CACHE_LIMIT="$limit" millrace inspect npy:http://127.0.0.1:1/x.npy; done 2>&1 | sed 's/.*libcurl.*/SKIP: MILLRACE_CACHE_LIMIT=: expected/;s/^SKIP: //' | grep -c 'MILLRACE_CACHE_LIMIT=.*: expected'; ls cache 2>&1 | grep -c cannot
4
1
# Names come from foreign files: a terminal does not obey them.
$ esc=$(printf '\033'); mkdir -p "n/a$esc[31m"; printf x >"n/a$esc[31m/b$esc[2J.png"; millrace inspect n -n 0 2>&1 | grep -e warning -e ' 0 ' -e "$esc"; millrace feed n -t 'resize(8,8)' --bad skip 2>&1 | grep -c "$esc"
millrace inspect: warning: sample 0 is bad: n/a?[31m/b?[2J.png: 1 bytes that are not a picture: expected JPEG, PNG or WebP
      0  a?[31m        1  ########################################
0
[1]
# Cells of a header, too; JSON has them escaped.
$ millrace synth photos q --n 2 --side 40 -q >/dev/null; printf 'file,a\033[2Jg\302\233e\n%s,x\n' "$(cd q && ls */*.png | head -n 1)" >q/t.csv; millrace inspect q/t.csv -n 0 | head -n 1; millrace feed q/t.csv -t 'resize(8,8)' | head -n 1; millrace inspect q/t.csv -n 0 --json | grep -o 'u001b.2J'
csv: t.csv: 1 picture (left out: text in column 'a?[2Jg?e')
csv: t.csv: 1 picture (left out: text in column 'a?[2Jg?e'): 1 sample
u001b[2J
# Under a launcher one process speaks for all.
$ env RANK=0 WORLD_SIZE=4 millrace inspect q/t.csv -n 0 | head -n 1; env RANK=3 WORLD_SIZE=4 millrace inspect q/t.csv
millrace inspect: rank 0 of 4, from env; the others print nothing
csv: t.csv: 1 picture (left out: text in column 'a?[2Jg?e')
millrace inspect: rank 3 of 4, from env: only rank 0 reads and prints
# A table of shards: the samples of the archives, from the table's folder or another one; refusals.
$ millrace synth npy x.npy --n 50 --shape 8 -q >/dev/null && millrace pack x.npy set --shard-size 8KiB -q >/dev/null; millrace inspect set --shard-table set/all.shards | sed 's/[0-9]* shards/N shards/'
set/all.shards: N shards, 50 samples
$ for d in set set/all.shards; do millrace feed tar:$d -s --digest -q --json | grep -o '"digest": "[0-9a-f]*"'; done | uniq | wc -l
1
$ millrace inspect set --shard-table set/all.shards
millrace inspect: set/all.shards: exists; --force replaces it
[1]
$ mkdir other; millrace inspect set --shard-table other/x.shards --force 2>&1 | sed 's|/.*/work/|/|g'
millrace inspect: set/other/, which names in the table are relative to: write the table into a folder above, or give base=
$ millrace inspect set --shard-table other/x.shards --base set -q --json | grep samples; millrace inspect tar:other/x.shards,base=set --json | grep '"samples": 50'
  "samples": 50
  "samples": 50,
$ millrace inspect set --base set
millrace inspect: --base is for tables of shards: give --shard-table FILE, too
[2]
$ head -c 100 set/all.shards >cut.shards; millrace inspect cut.shards 2>&1 | sed 's/[0-9][0-9]* bytes/N bytes/'
millrace inspect: cut.shards: the head promises N bytes, the file has 100
# What the statistics are of, where they are not of all.
$ millrace synth photos many --n 300 --side 16 --classes 1 -q >/dev/null; millrace inspect many -n 0 | grep statistics; millrace inspect many -n 0 --scan 9 | grep statistics; millrace inspect many -n 0 --scan 300 | grep -c statistics
(statistics are of the first 255 of 300 samples, so as not to read more than 256 MiB; --scan 300 reads all)
(statistics are of the first 9 of 300 samples; --scan 300 reads all)
0
[1]

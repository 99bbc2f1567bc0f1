# MNIST's four names, of the right sizes.
$ millrace synth digits d --n 300 --n-test 20 --seed 5
wrote 320 images in .*; open as idx:d (re)
$ wc -c d/* | awk '{print $1, $2}'
15696 d/t10k-images-idx3-ubyte
28 d/t10k-labels-idx1-ubyte
235216 d/train-images-idx3-ubyte
308 d/train-labels-idx1-ubyte
251248 total
# The same on every machine.
$ cat d/* | cksum
2619718151 251248
# Another seed gives others; the same seed the same, compressed or not, whatever n is.
$ millrace synth digits e --n 300 --n-test 20 --seed 6 -q >/dev/null; cmp -s d/train-images-idx3-ubyte e/train-images-idx3-ubyte
[1]
$ millrace synth digits e --n 500 --n-test 20 --seed 5 --gz -q >/dev/null; ls e
t10k-images-idx3-ubyte
t10k-images-idx3-ubyte.gz
t10k-labels-idx1-ubyte
t10k-labels-idx1-ubyte.gz
train-images-idx3-ubyte
train-images-idx3-ubyte.gz
train-labels-idx1-ubyte
train-labels-idx1-ubyte.gz
$ gzip -dc e/train-images-idx3-ubyte.gz | tail -c +17 | head -c 235200 >a; tail -c +17 d/train-images-idx3-ubyte | cmp - a
# All ten classes are there.
$ millrace inspect d -n 0 --scan 300 | grep -c '#'
10
# Nothing is replaced without --force, and nothing is left behind.
$ millrace synth digits d --n 10
millrace synth: d/train-images-idx3-ubyte: exists; --force replaces it
[1]
$ millrace synth digits d --n 10 --n-test 10 --force -q | cut -c 1-15
wrote 20 images
$ ls -A d
t10k-images-idx3-ubyte
t10k-labels-idx1-ubyte
train-images-idx3-ubyte
train-labels-idx1-ubyte
# A failure in the middle leaves neither files nor folder. (Limits count blocks of 512 bytes.)
$ (trap '' XFSZ; ulimit -f 100; millrace synth digits f --n 1000); ls -A f
millrace synth: f/train-images-idx3-ubyte: cannot be written: File too large
ls: .*f.* (re)
[2]
# So does an interrupt.
$ (sleep 1; :) & millrace synth digits g --n 100000000 & p=$!; sleep 0.5; kill -TERM $p; wait $p; ls g
millrace: interrupted: finishing cleanly; interrupt again to stop at once
millrace synth: interrupted; nothing was written
ls: .*g.* (re)
[2]
# Arrays: labels beside them; the order does not change the values.
$ millrace synth npy x.npy --n 50 --shape 3x4x5 --dtype i16
wrote 50 samples in .*; open as npy:x.npy,labels=x-labels.npy (re)
$ millrace synth npy y.npy --n 50 --shape 3x4x5 --dtype i16 --order F -q --classes 0
wrote 50 samples in .*; open as npy:y.npy (re)
$ ls *.npy
x-labels.npy
x.npy
y.npy
$ millrace inspect npy:x.npy --json | sed -n '/"shown"/,$p' | cksum >a; millrace inspect npy:y.npy --json | sed -n '/"shown"/,$p' | cksum | cmp - a
$ millrace synth npy z.npy --dtype bf16
millrace synth: --dtype bf16: .npy files have no such type
[2]
$ millrace synth raw r.bin --n 7 --shape 2x3 --dtype f64
wrote 7 samples in .*; open as raw:r.bin,shape=2x3,dtype=f64 (re)
$ wc -c <r.bin
336
$ millrace inspect raw:r.bin,shape=2x3,dtype=f64 -n 0 | grep samples
7 samples, .* (re)
$ millrace synth raw r2.bin --order F
millrace synth: --order is for `synth npy`, not for `synth raw`
[2]
$ millrace synth npz x.npz
millrace synth: npz: no such kind; did you mean npy?
[2]
$ millrace synth digits nowhere/d
millrace synth: nowhere/d: cannot be made: No such file or directory
[1]
$ millrace synth raw j.bin --n 5 --json | grep -e '"samples"' -e '"dataset"' -e '"n"'
  "dataset": "raw:j.bin,shape=1024,dtype=f32",
  "samples": 5,
    "n": 5,
# An option of another kind is refused, not ignored.
$ millrace synth photos x --words 300; millrace synth digits x --shape 3; millrace synth npy x --gz; millrace synth raw x --classes 3; ls x
millrace synth: --words is for `synth words`, not for `synth photos`
millrace synth: --shape is for `synth npy`, `synth raw` and `synth tfrecord`, not for `synth digits`
millrace synth: --gz is for `synth digits` and `synth words`, not for `synth npy`
millrace synth: --classes is for `synth npy`, `synth photos` and `synth tfrecord`, not for `synth raw`
ls: cannot access 'x': No such file or directory
[2]
# Examples have the values and labels of npy.
$ for t in f32 i16 f64; do millrace synth npy n.npy --n 30 --shape 2x3 --dtype $t --force -q >/dev/null; millrace synth tfrecord n.tfrecord --n 30 --shape 2x3 --dtype $t --force; for u in npy:n.npy,labels=n-labels.npy "tfrecord:n.tfrecord,features=[x:$t[2,3],label:i64]"; do millrace feed "$u" --digest -q | grep digest; done | uniq | wc -l; done | sed 's/ in .*;/;/'
wrote 30 records; open as tfrecord:n.tfrecord,features=[x:f32[2,3],label:i64]
1
wrote 30 records; open as tfrecord:n.tfrecord,features=[x:i16[2,3],label:i64]
1
wrote 30 records; open as tfrecord:n.tfrecord,features=[x:f64[2,3],label:i64]
1
$ millrace synth tfrecord n.tfrecord; (trap '' XFSZ; ulimit -f 100; millrace synth tfrecord o.tfrecord); ls o.* 2>/dev/null
millrace synth: n.tfrecord: exists; --force replaces it
millrace synth: o.tfrecord: cannot be written: File too large
[2]

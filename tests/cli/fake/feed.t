# Each kind of data set gives the same bytes on the CPU and on a GPU, with 1, 2 and 4 workers. The driver is a stand-in.
$ millrace synth photos p -n 48 --classes 3 --side 32 -q >/dev/null; millrace synth digits d -n 300 --n-test 10 -q >/dev/null; millrace synth npy x.npy -n 200 --shape 40 -q >/dev/null
$ millrace pack folder:p s --shard-count 20 -q >/dev/null; find p -name '*.png' | sort > list.txt; ls s/*.tar | wc -l
3
$ same() { for d in cpu cuda; do for w in 1 2 4; do millrace feed "$@" -s -e 2 -b 7 --digest -q -d $d -w $w | grep -a '^digest: '; done; done | sort | uniq -c | awk '{print $1, length($3)}'; }; photo='random_resized_crop(24),hflip,cast(f32),scale(1/255),normalize([0.5,0.4,0.3],[0.2,0.2,0.2]),layout(nchw)'; for set in folder:p list:list.txt csv:p/points.csv,labels=none tar:s mix:0.6*folder:p,0.4*tar:s; do echo $set $(same $set -t "$photo"); done
folder:p 6 32
list:list.txt 6 32
csv:p/points.csv,labels=none 6 32
tar:s 6 32
mix:0.6*folder:p,0.4*tar:s 6 32
$ same() { for d in cpu cuda; do for w in 1 2 4; do millrace feed "$@" -s -e 2 -b 7 --digest -q -d $d -w $w | grep -a '^digest: '; done; done | sort | uniq -c | awk '{print $1, length($3)}'; }; for set in idx:d npy:x.npy synthetic:n=100,shape=50,classes=3; do echo $set $(same $set); done
idx:d 6 32
npy:x.npy 6 32
synthetic:n=100,shape=50,classes=3 6 32
$ for d in cpu cuda; do for g in off on; do millrace feed folder:p -s -e 2 --digest -q -d $d -t 'resize(24,24),hflip,cast(f32),scale(1/255)' --device-transforms $g | grep '^digest: '; done; done | uniq | wc -l
1

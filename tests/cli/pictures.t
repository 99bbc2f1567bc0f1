# Folders, lists and CSV files of pictures, generated.
$ millrace synth photos p --n 60 --classes 4 --side 40 -q | sed 's/ in .*;/;/'
wrote 60 pictures; open as folder:p
$ millrace inspect p -n 1
folder: p: 60 pictures of 4 classes
60 samples, format folder, fingerprint [0-9a-f]* (re)
field .* (re)
image u8.* (re)
label i64 .* (re)
image sizes: [0-9]+\.\.[0-9]+ \(mean [0-9]+\) x [0-9]+\.\.[0-9]+ \(mean [0-9]+\) (re)
classes:
  label  name       samples
      0  class-000       15  ########################################
      1  class-001       15  ########################################
      2  class-002       15  ########################################
      3  class-003       15  ########################################
sample 0
...
$ millrace inspect p/points.csv -n 0 | sed -n -e 1p -e '/^points/s/ *32 B.*//p'
csv: points.csv: 60 pictures, 4 points each
points f32[4,2]
$ (cd p && ls class-00*/*.png) >list.txt; millrace inspect list:list.txt,root=p -n 0 | head -1
list: list.txt: 60 pictures
# Any workers, storage, cache, prefetch: the same batches.
$ digest() { millrace feed "$1" -b 7 -s -e 2 --seed 3 -t 'resize(32),random_crop(32,32),hflip(0.5),cast(f32)' --digest $2 | sed -n 's/^digest: //p'; }; for d in folder:p csv:p/points.csv list:list.txt,root=p; do one=$(digest $d '-w 1'); [ ${#one} = 32 ] || echo "$d: no digest"; for o in '-w 2' '-w 5' '-p 1' '--storage pread' '--cache host' '--read-ahead 3 --queue-depth 1' '--device sim:h2d=20'; do [ "$(digest $d "$o")" = "$one" ] || echo "$d: $o: another digest"; done; echo "$d: same"; done
folder:p: same
csv:p/points.csv: same
list:list.txt,root=p: same
# The same of real photos and faces, where they are there.
$ t=${MILLRACE_TEST_DATA:-none}; digest() { millrace feed "$1" -b 16 -s -t 'resize(224),random_crop(224,224)' --batches 3 --digest $2 | sed -n 's/^digest: //p'; }; for d in folder:$t/imagenet-sample csv:$t/faces/face_landmarks.csv; do [ -e "${d#*:}" ] || { echo "SKIP ${d##*/}: same"; continue; }; one=$(digest $d '-w 1'); [ ${#one} = 32 ] && [ "$(digest $d '-w 3 --storage pread')" = "$one" ] && [ "$(digest $d '-w 2 --cache host')" = "$one" ] && echo "${d##*/}: same"; done
(SKIP )?imagenet-sample: same (re)
(SKIP )?face_landmarks.csv: same (re)
# What a transform refuses is told with the picture's file, the same at any number of workers.
$ for w in 1 2 5; do millrace feed folder:p -b 7 -s -t 'crop(400,400)' -w $w; done 2>&1 | sort -u | sed 's/class-[0-9]*.[0-9]*/NAME/'
millrace feed: p/NAME.png: sample [0-9]+: transform 1: crop\(400,400\): does not fit .* (re)
# Contact sheets.
$ millrace inspect p --sheet s.png --rows 2 --columns 3 --tile 64; head -c 24 s.png | od -An -tu1 | tr -s ' \n' ' '
 137 80 78 71 13 10 26 10 0 0 0 13 73 72 68 82 0 0 0 208 0 0 0 140 
$ millrace inspect p/points.csv --sheet s.png --rows 2 --columns 3 --tile 64
millrace inspect: s.png: exists; --force replaces it
[1]
$ millrace inspect p/points.csv --sheet s.png --force --vary -t 'resize(32),random_crop(32,32)' && echo drawn
drawn
$ millrace inspect synthetic:n=5,shape=2 --sheet t.png
millrace inspect: --sheet: no field is a picture; the first is x f32[2]
[1]
$ millrace inspect p --sheet t.jpg
millrace inspect: --sheet t.jpg: expected a name that ends in .png: that is what is written
[2]
$ ls
list.txt
p
s.png
$ millrace inspect p --sheet u.png --json | grep '"sheet"' && rm u.png
  "sheet": "u.png"
$ millrace inspect p -t 'resize(32,32)'
millrace inspect: --transform is for contact sheets: give --sheet FILE, too
[2]
# Bad pictures are told and counted; the rest is shown.
$ echo no picture >p/class-001/bad.png; millrace inspect p -n 0 2>&1 | grep bad; millrace inspect p -n 0 >/dev/null 2>&1
millrace inspect: warning: sample [0-9]+ is bad: p/class-001/bad.png: .* (re)
1 of 61 samples that were read are bad
[1]
$ millrace inspect p --sheet b.png --rows 4 --columns 16 2>&1; rm b.png
millrace inspect: warning: sample [0-9]+ is bad: p/class-001/bad.png: .* (re)
$ millrace inspect p --sheet b.png --rows 4 --columns 16 -q; code=$?; rm b.png; exit $code
[1]
$ echo gone.png >>list.txt; millrace feed list:list.txt,root=p -b 8 -t 'resize(32),center_crop(32)' --bad skip -s 2>&1 | grep -c 'gone.png\|bad.png'
1
$ printf 'path,v\na.png,1\n../b.png,2\n' >out.csv; millrace feed out.csv
millrace feed: out.csv:3: '../b.png' is outside the root folder '.': expected a path below it, without '..' (root=DIR sets another)
[1]
$ mkdir -p e/none; millrace feed e
millrace feed: e: a folder whose name does not tell the format: .* (re)
[1]
$ millrace feed folder:e
millrace feed: e: class 'none' has no pictures (.jpg, .jpeg, .png, .webp): remove the folder, or set allow-empty
[1]
# Videos are not looked for among photos for long, and nobody is told to remove photos.
$ millrace synth photos few --n 4 --classes 2 -q >/dev/null; for d in few few/class-000; do millrace inspect video:$d; done 2>&1 | sed 's/.*libmillrace-video.so.*/SKIP video: , 2 other files: pictures? folder: opens those/' | grep -c ', 2 other files: pictures? folder: opens those'
2
# Photos by the residual net, channels last as they are decoded: it learns what it sees.
$ millrace synth photos ph --n 48 --classes 2 -q >/dev/null && millrace train folder:ph --model resnet20 -t 'resize(20),center_crop(16,16)' -b 16 -e 3 --lr 0.003 --json > ph.json; sed -n 's/^      "loss": \(.*\),/\1/p' ph.json | awk 'NR==1 {a=$1} {b=$1} END {print NR, b<a}'
3 1
# Names of classes are the training's, whatever numbers another data set gives its own; labels that number others are not looked at.
$ printf '%s\n' 'import struct,zlib,os,sys' 'def png(path,shade):' ' c=lambda k,d:struct.pack(">I",len(d))+k+d+struct.pack(">I",zlib.crc32(k+d))' ' os.makedirs(os.path.dirname(path),exist_ok=True)' ' open(path,"wb").write(b"\x89PNG\r\n\x1a\n"+c(b"IHDR",struct.pack(">IIBBBBB",8,8,8,2,0,0,0))+c(b"IDAT",zlib.compress((b"\0"+bytes([shade]*24))*8))+c(b"IEND",b""))' 'for i in range(16):' ' png("an/cat/%d.png"%i,200+i)' ' png("an/dog/%d.png"%i,i)' ' png("dz/dog/%d.png"%i,i)' ' png("dz/emu/%d.png"%i,90)' ' png("uk/%d.png"%i,i)' > png.py; python3 png.py
$ millrace train folder:an -m flatten,linear:2 -o adam:lr=0.03 -e 10 -b 8 -c an.st -t 'resize(8,8)' --json | sed -n 's/^  "best_accuracy"/best/p'; millrace predict an.st folder:an -n 1 -k 2 | sed -n 2p; millrace predict an.st folder:uk -n 1 --csv an.csv | sed -n 2p; head -n 2 an.csv; mv an/cat 'an/a "c", t'; millrace train folder:an -m flatten,linear:2 -e 1 -c q.st -t 'resize(8,8)' >/dev/null; millrace predict q.st folder:an -n 0 --csv q.csv >/dev/null; python3 -c 'import csv; print(sorted({r["name"] for r in csv.DictReader(open("q.csv"))}))' | grep -c '"c", t\|dog'; mv 'an/a "c", t' an/cat
best: 1,
(       0  cat 0.[0-9]*, dog 0.[0-9]*  cat) (re)
(       0  dog 0.[0-9]*) (re)
index,label,predicted,score,name
(0,,1,0.[0-9]*,"dog") (re)
1
$ millrace predict an.st folder:dz -n 1 | cut -d. -f1
millrace predict: warning: folder: dz.*: its class 0 is 'dog', that of the training 'cat': predictions only, its labels are ignored (re)
  sample  predicted   label
       0  dog 0

32 samples in [0-9]+ (re)
$ millrace train folder:an -m flatten,linear:2 -t 'resize(8,8)' --test folder:dz
millrace train: test set: folder: dz.*: its class 0 is 'dog', that of the training set 'cat': expected the same classes: name its folders as the training set's \(with folder:DIR,allow-empty an empty one keeps the numbers\), or do without a test set (re)
[1]

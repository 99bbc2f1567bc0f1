# Training on generated digits: an accuracy, where the time went.
$ millrace synth digits d --n 3003 --n-test 500 -q >/dev/null
$ millrace train d --model mlp:100s --optimizer adam --lr 0.003 -e 3 --seed 1
idx: train-images-idx3-ubyte + train-labels-idx1-ubyte (train): 3,003 samples; test: idx: t10k-images-idx3-ubyte + t10k-labels-idx1-ubyte (test): 500 samples
  transform cast(f32),scale(1/255),normalize(0.1307,0.3081) (the default for MNIST's format)
mlp:100s: 79,510 parameters, 10 classes
...
  fc1      linear 100, sigmoid  784x1x1  100x1x1      78,500  .* (re)
...
  adam:lr=0.003, schedule constant, batches of 64, seed 1
  device cpu, f32, tensor cores not used; .* (re)
epoch  1/3  loss [0-9.]+, accuracy [0-9.]+%  test [0-9.]+, [0-9.]+%  [0-9.]+ s, .* samples/s, lr 0.003, waited for data [0-9.]+% (re)
...
best test accuracy: (9[5-9]|100)\.[0-9]+%, in epoch 3 (re)
where the time went  seconds  share
...
loader's bottleneck: [a-z]+: .* (re)
# JSON: the members that scripts rely on.
$ millrace train d --model softmax -e 2 --json > out.json; for k in epochs test_accuracy best_accuracy best_epoch seconds seconds_to_target steps resumed_from_step ended_by model parameters layers times bottleneck config; do grep -q "^  \"$k\":" out.json || echo "missing: $k"; done; grep -c '"data_wait":' out.json; grep -E '^  "(steps|parameters|ended_by)"' out.json
2
  "steps": 94,
  "ended_by": "epochs",
  "parameters": 7850,
# A model as a list of layers; samples as u8; a convolutional net learns.
$ millrace train d --model 'conv:8,k=3,s=2,relu,maxpool:2,flatten,linear:10' -t '' -e 2 --target-acc 60% | sed -n 's/^  transform/transform/p;s/.*; 60% reached.*/reached/p'
transform none: u8 is scaled by 1/255 by the net
reached
$ millrace train d --model softmax -e 1 --target-acc 100% >/dev/null
millrace train: the accuracy of 100% was not reached
[1]
# The same parameters, bit for bit, for any workers and threads; another seed gives others. Dropout and optimizer state among them.
$ tail_of() { python3 -c 'import sys,hashlib;b=open(sys.argv[1],"rb").read();n=int.from_bytes(b[:8],"little");print(hashlib.sha256(b[8+n:]).hexdigest())' $1; }; m='conv:4,k=3,s=3,batchnorm,relu,flatten,dropout:0.3,linear:10'; for o in '-w 1 --threads 1' '-w 2 --threads 2' '-w 4 --threads 3 -p 2' '-w 2 --seed 5'; do millrace train d --model "$m" -o nadam -e 1 $o -c w.st -f >/dev/null; tail_of w.st; done | uniq -c | awk '{print $1}'
3
1
# Killed in mid-epoch (one that was quicker is begun again) and resumed: the parameters of a run that was not.
$ tail_of() { python3 -c 'import sys,hashlib;b=open(sys.argv[1],"rb").read();n=int.from_bytes(b[:8],"little");print(hashlib.sha256(b[8+n:]).hexdigest())' $1; }; run="millrace train d --model conv:4,k=3,s=2,relu,flatten,dropout:0.3,linear:10 -o adam -e 4 --seed 3 -b 16 --schedule plateau:0.5/patience=0"; $run -c whole.st >/dev/null; for try in 1 2 3; do for again in 1 2 3 4 5; do rm -f part.st; $run -c part.st --checkpoint-every 7 >/dev/null & pid=$!; n=0; while [ ! -s part.st ] && [ $n -lt 5000 ]; do sleep 0.02; n=$((n + 1)); done; sleep 0.0$((try * 3)); kill -9 $pid; wait $pid; step=$($run -c part.st --resume --json | sed -n 's/^  "resumed_from_step": \([0-9]*\),/\1/p'); [ "$step" -lt 752 ] && break; done; [ "$(tail_of part.st)" = "$(tail_of whole.st)" ] && [ "$step" -gt 0 ] && [ "$step" -lt 752 ] && echo same; done 2>/dev/null
same
same
same
$ millrace train d --model mlp:20r -e 2 -c e.st --json | grep -c '"epoch":'; millrace train d --model mlp:20r -e 3 -c e.st --resume --json | grep -c '"epoch":'
2
3
# What does not go together.
$ millrace train d --model mlp:20r -e 3 -c e.st
millrace train: e.st: exists: --resume goes on from it, --force starts over
[1]
$ millrace train d --model mlp:30r -e 3 -c e.st --resume
millrace train: e.st: is of another run: model there 'mlp:20r', here 'mlp:30r'
[1]
$ millrace train d --model mlp:20r -o sgd -e 3 -c e.st --resume
millrace train: e.st: is of another run: optimizer there 'adam', here 'sgd'
[1]
$ millrace synth digits other --n 2000 --n-test 500 --seed 9 -q >/dev/null; millrace train other --model mlp:20r -e 3 -c e.st --resume
millrace train: e.st: is of another run: data set there '.*3003 samples.*', here '.*2000 samples.*' (re)
[1]
$ for k in 1 2 3; do millrace train d --model softmax --max-steps 5 --test none -c m.st --resume --json 2>/dev/null | sed -n 's/^  "\(steps\|ended_by\)": //p' | tr -d '\n'; echo; done
5,"steps",
5,"steps",
5,"steps",
# The figures of an epoch that was resumed are those of one that was not; its rate is that of its own part.
$ for n in 20 47; do millrace train d --model softmax --max-steps $n --test none -c n.st --resume --log n.csv --log-every 10 2>/dev/null; done | grep -c 'goes on'; millrace train d --model softmax --max-steps 47 --test none --log w.csv --log-every 10 >/dev/null; cut -d, -f1-5 w.csv > w; cut -d, -f1-5 n.csv | cmp - w && wc -l < w; awk -F, '/^epoch/ {printf "%.0f\n", $8 * $10}' n.csv w.csv
1
6
1723
3003
# Rows that a killed run wrote behind its last checkpoint, the last by half, do not come twice.
$ for f in csv jsonl; do run="millrace train d --model softmax -e 2 -c r.st --test none --log r.$f --log-every 10"; rm -f r.st; $run >/dev/null; cp r.$f whole.$f; $run -f --max-steps 40 >/dev/null; cp whole.$f r.$f; printf 'steps,3' >> r.$f; $run --resume >/dev/null; for i in whole r; do sed 's/"test_loss.*//' $i.$f | cut -d, -f1-5 > $i; done; cmp whole r && wc -l < r; done
12
11
$ printf 'kind,epoch,step\nsteps,1,10\n' > r.csv; rm r.st; millrace train d --model softmax --max-steps 20 -c r.st --resume --test none --log r.csv --log-every 10 2>/dev/null >&2; cut -d, -f1-3 r.csv
kind,epoch,step
steps,1,10
steps,1,10
steps,1,20
# Without a checkpoint to go on from all rows of a log stay, and no row is written behind half a one; with a checkpoint those of an earlier run stay.
$ steps() { grep -o '^steps,1,[0-9]*\|"step": *[0-9]*' $1 | grep -o '[0-9]*$' | tr '\n' ' '; echo; }; for f in csv jsonl; do run="millrace train d --model softmax -c a.st --test none --log a.$f --log-every 10"; rm -f a.st; $run --max-steps 40 >/dev/null; rm a.st; printf half >> a.$f; $run --resume --max-steps 20 2>&1 >/dev/null | grep -o 'warning: .*'; steps a.$f; cp a.st b.st; $run --resume --max-steps 40 >/dev/null; cp b.st a.st; $run --resume --max-steps 30 >/dev/null; steps a.$f; done
warning: a.st: does not exist yet: the run begins at the start
10 20 30 40 10 20 
10 20 30 40 10 20 30 
warning: a.st: does not exist yet: the run begins at the start
10 20 30 40 10 20 
10 20 30 40 10 20 30 
# A last row that lacks its newline alone stays; one by half goes.
$ for f in csv jsonl; do for cut in 1 2 9; do run="millrace train d --model softmax -c a.st --test none --log a.$f --log-every 10"; rm -f a.st; $run --max-steps 20 >/dev/null; cp a.$f was; truncate -s -$cut a.$f; $run --resume --max-steps 30 >/dev/null; head -n "$(wc -l < was)" a.$f | cmp -s - was && echo whole; grep -c 'steps.*[^0-9][123]0,' a.$f; done; done
whole
3
2
2
whole
3
2
2
# A log that does not fit into memory is told, and stays as it was. (A sanitizer takes more memory than this from the start: nothing is seen.)
$ run="millrace train d --model softmax -c a.st --test none --resume --threads 1 -w 1 -d cpu --log a.csv"; ulimit -v 900000; if $run --max-steps 35 >/dev/null 2>&1; then truncate -s 2G a.csv; $run --max-steps 40 2>&1 >/dev/null; stat -c %s a.csv; rm a.csv; else echo 'SKIP memory: millrace train: a.csv: cannot be made: Cannot allocate memory'; echo 2147483648; fi | sed 's/^SKIP.*y: m/m/'
millrace train: a.csv: cannot be made: Cannot allocate memory
2147483648
# Files that were cut off or changed, or are none.
$ head -c 5000 e.st > cut.st; millrace train d --model mlp:20r -c cut.st --resume; head -c 40000 e.st > cut.st; millrace predict cut.st d
(millrace train: cut.st: truncated: tensor .*) (re)
(millrace predict: cut.st: truncated: tensor .*) (re)
[1]
$ python3 -c 'b=bytearray(open("e.st","rb").read());b[-9]^=1;open("bad.st","wb").write(b)'; millrace predict bad.st d
millrace predict: bad.st: damaged or changed: its checksum is [0-9a-f]+, its contents give [0-9a-f]+ (re)
[1]
$ sed 's/"seed": "0"/"seed": "1"/' e.st > bad.st; millrace predict bad.st d
millrace predict: bad.st: damaged or changed: its checksum is [0-9a-f]+, its contents give [0-9a-f]+ (re)
[1]
$ echo nothing at all > none.st; millrace predict none.st d
(millrace predict: none.st: not a safetensors file: .*) (re)
[1]
# No room for a checkpoint: the old one stays, nothing else is left behind.
$ cp e.st old.st; (trap '' XFSZ; ulimit -f 30; millrace train d --model mlp:20r -e 4 -c e.st --resume >/dev/null); ls e.st*; cmp e.st old.st && echo stays
millrace train: e.st: checkpoint not written: File too large
e.st
stays
# A folder whose name is no UTF-8: what the checkpoint says of it is compared as it was written.
$ b="$(printf 'd\377')"; cp -r d "$b"; millrace train "$b" --model mlp:20r -e 1 -c u.st >/dev/null && millrace train "$b" --model mlp:20r -e 2 -c u.st --resume | grep -c '^  goes on from u.st: after step 47, in epoch 2'
1
# A file that appears beside the pictures does not make another data set of them.
$ millrace synth photos ph --n 12 --classes 2 --side 16 -q >/dev/null; f="millrace train folder:ph --model softmax -t resize(8),center_crop(8,8) --test none -c f.st"; $f -e 1 >/dev/null; touch ph/class-000/notes.txt; $f -e 2 --resume | grep -c '^  goes on'
1
# Predictions are the evaluation's.
$ millrace train d --model mlp:50r -e 1 -c p.st --json > p.json; millrace predict p.st d,split=test --json --top 3 -n 2 --csv p.csv > q.json; a=$(sed -n 's/^  "test_accuracy": \(.*\),/\1/p' p.json); [ "$a" = "$(sed -n 's/^  "accuracy": \(.*\),/\1/p' q.json)" ] && echo same; wc -l < p.csv; head -n 1 p.csv; grep -c '"index":' q.json; awk -F, 'NR>1 && $2==$3 {n++} END {print n/(NR-1)}' p.csv | grep -c "^$a\$"
same
501
index,label,predicted,score,predicted_2,score_2,predicted_3,score_3
2
1
$ millrace predict p.st d,split=test -n 1 -k 2
  sample  predicted           label
.* (re)
500 samples in .* (re)
accuracy .* (re)
$ millrace train d -m flatten,linear:100 -e 1 -c h.st >/dev/null; millrace predict h.st d -n 1 -k 100 | sed -n 's/^ *0  //p' | grep -o '[0-9]* [01]\.[0-9]*' | wc -l
100
$ millrace synth npy v --n 64 --shape 20 -q >/dev/null; millrace predict p.st npy:v
millrace predict: p.st: its model takes samples of 1x28x28 nchw .channels, height, width., the data set gives .*\[20\] (re)
[1]
# An interrupt in a test pass ends the run behind it: no epoch of a checkpoint is without its test.
$ millrace train d --model softmax -e 1 -w 1 -p 1 --test 'synthetic:n=20000,shape=28x28,dtype=u8,classes=10,delay=200ms' -c i.st --log i.csv --log-every 1 >/dev/null 2>&1 & for i in $(seq 5000); do grep -qs '^steps,1,46' i.csv && break; sleep 0.02; done; sleep 0.2; kill -TERM $!; wait $!; echo $?; head -c 20000 i.st | tr , '\n' | grep -ac -e 'test_accuracy.*[0-9]' -e 'test_accuracy.*null'
1
1
# One within an epoch reports its steps, and that they were not tested.
$ millrace train 'synthetic:n=4e6,shape=28x28,dtype=u8,classes=10' --test d,split=test --model softmax --classes 10 -d cpu --log j.csv --log-every 1 >j.txt 2>/dev/null & for i in $(seq 5000); do grep -qs '^steps,1,5' j.csv && break; sleep 0.02; done; kill -TERM $!; wait $!; echo $?; grep '^epoch' j.txt
1
epoch  1/10  loss [0-9.]+, accuracy [0-9.]+%  [0-9.]+ s, .*; not finished, not tested (re)
# Names of classes that are no list of names. The checksum is the one that the program finds.
$ millrace train d --model softmax -e 1 -c k.st >/dev/null; printf '%s\n' 'import json,re,subprocess,sys' 'b=open("k.st","rb").read()' 'n=int.from_bytes(b[:8],"little")' 'head=json.loads(b[8:8+n])' 'head["__metadata__"]["class_names"]=sys.argv[1]' 'def put():' ' h=json.dumps(head).encode()' ' open("kk.st","wb").write(len(h).to_bytes(8,"little")+h+b[8+n:])' 'put()' 'told=subprocess.run(["millrace","predict","kk.st","d"],capture_output=True,text=True).stderr' 'head["__metadata__"]["checksum"]=re.search("give ([0-9a-f]+)",told)[1]' 'put()' > names.py; for k in '{"0": "nought"}' 'nought' '["nought", 1]' '["nought", null]'; do python3 names.py "$k"; millrace predict kk.st d -n 1 2>&1 | grep -o 'millrace predict: .*\|  nought 0\|^accuracy'; done
millrace predict: kk.st: key class_names: expected a JSON array of strings, found {"0": "nought"}
millrace predict: kk.st: key class_names: expected a JSON array of strings, found nought
millrace predict: kk.st: key class_names: expected a JSON array of strings, found ["nought", 1]
accuracy
# MNIST's folder without its test files is trained on without a test; with damaged ones it is not.
$ cp -r d alone; truncate -s 1000 alone/t10k-images*; millrace train alone --model softmax -e 1; rm alone/t10k*; millrace train alone --model softmax -e 1 | grep -o 'test set: .*'
millrace train: .*t10k-images-idx3-ubyte: .*truncated.* (re)
test set: none: the folder has no test files
# Early ends, files beside.
$ millrace train d --model mlp:20r -e 50 --target-acc 90% --log l.csv --log-every 10 --plot c.svg | sed -n 's/.*; \(90% reached\).*/\1/p'; head -n 1 l.csv; grep -c '^steps,1,' l.csv; grep -c '<svg' c.svg
90% reached
kind,epoch,step,loss,accuracy,test_loss,test_accuracy,seconds,lr,samples_per_s,data_wait
4
1
$ millrace train d --model softmax -o sgd --lr 0 -e 50 --patience 2 | grep -c '^epoch'; millrace train d --model softmax --max-steps 5 --test none | grep 'no epoch'
3
no epoch was finished: 5 steps done
# Steps of an epoch that --max-steps ended have their loss and accuracy, as --log has them, and a test, as predict makes it.
$ millrace train d --model softmax --max-steps 30 -d cpu -c un.st --log un.csv --log-every 30 --json > un.json; sed -n '/"unfinished_epoch"/,/}/p' un.json > un; grep -c '"epochs": \[\]' un.json; for k in loss accuracy; do sed -n "s/^    \"$k\": \(.*\),/\1/p" un; done | awk '{printf "%.4f\n", $1}' > a; tail -n 1 un.csv | awk -F, '{printf "%.4f\n%.4f\n", $4, $5}' | cmp - a && echo as logged; grep -c '^epoch' un.csv; millrace predict un.st d,split=test -d cpu -n 0 --json | sed -n 's/^  "accuracy": \(.*\),/\1/p' > p; sed -n 's/^    "test_accuracy": \(.*\),/\1/p' un | cmp - p && echo as predicted
1
as logged
0
as predicted
$ millrace train d --model softmax --max-steps 50 -c un.st -f | grep '^epoch\|^no epoch\|^best'; millrace train d --model softmax --max-steps 50 -c un.st --resume --json | sed -n '/"unfinished_epoch"/,/}/p' | grep -c 'test_accuracy": 0\.[0-9]'; millrace train d --model softmax --max-steps 47 --json | grep unfinished
epoch  1/10  loss [0-9.]+, accuracy [0-9.]+%  test [0-9.]+, [0-9.]+%  .* waited for data [0-9.]+% (re)
epoch  2/10  loss [0-9.]+, accuracy [0-9.]+%  test [0-9.]+, [0-9.]+%  .*; not finished (re)
best test accuracy: .*, in epoch 1; stopped by --max-steps (re)
1
  "unfinished_epoch": null,
# Test samples are not to be drawn at random without a word; an accuracy that is never there is not waited for.
$ for o in "-t random_crop(20,20),cast(f32)" "-t cast(f32),hflip" "-t random_crop(20,20),cast(f32) --test none" "-t random_crop(20,20),cast(f32) --test-transform center_crop(20),cast(f32)" "-t center_crop(20,20),cast(f32)"; do millrace train d -m softmax --max-steps 1 $o 2>&1 >/dev/null | grep -o 'warning.*samples, too'; done
warning: random_crop draws at random on test samples, too
warning: hflip draws at random on test samples, too
[1]
$ millrace train d -m softmax --loss mse --target-acc 50%
millrace train: --target-acc: needs an accuracy, and --loss mse has none
[2]
# A plateau with max looks at the accuracy, which grows here.
$ millrace train d --model mlp:50r -o sgd --lr 0.01 -e 3 --schedule plateau:0.1/max/patience=0 | sed -n 's/^epoch.* lr \([0-9.e-]*\),.*/\1/p'
0.01
0.01
0.01
# Bad input.
$ millrace train d --model softmax --loss mse --schedule plateau:0.1/max
millrace train: schedule plateau:0.1/max: max needs an accuracy, and loss mse has none
[2]
$ millrace train d --model conv:8,k=31
millrace train: model: layer 1: .* (re)
[1]
$ millrace train d --model mlp:10q
millrace train: model: mlp:10q: expected widths with s, r, t or g behind, as mlp:300s,100r,50s
[2]
$ for m in mnist_cnn resnet18 mlp conv:8,q=3; do millrace train d --model $m; done
millrace train: model 'mnist_cnn': no such model, and no layer (conv:8,relu,flatten,linear:10 is a list of them); did you mean mnist-cnn? there are softmax, mlp:300s,100r,50s, mnist-cnn, resnet20
millrace train: model 'resnet18': no such model, and no layer (conv:8,relu,flatten,linear:10 is a list of them); did you mean resnet20? there are softmax, mlp:300s,100r,50s, mnist-cnn, resnet20
millrace train: model 'mlp': no such model, and no layer (conv:8,relu,flatten,linear:10 is a list of them); there are softmax, mlp:300s,100r,50s, mnist-cnn, resnet20
millrace train: model: layer 1: conv:q: no such option; there are n, k, s, p, bias
[2]
$ millrace train d --optimizer adam:beta=3
millrace train: .*beta.* (re)
[2]
$ millrace train d --optimizer nosuch
millrace train: .*nosuch.* (re)
[2]
# --help names the optimizers that the library has.
$ millrace train d --optimizer nosuch 2>&1 | sed 's/.*there are //; s/$/,/' > names; millrace train --help | tr -s ' \n' ' ' | sed 's/.*--optimizer OPTIMIZER //; s/ with options.*//; s/$/\n/' | tr -s '\n' | cmp - names; tr -cd , < names | wc -c
13
$ millrace train d --model softmax --classes 5 -e 1 >/dev/null
millrace train: [0-9]+ labels of the last batches are outside 0..4 \(the first 3003 samples have 0..9\): expected labels from 0, as many classes as there are (re)
[1]
$ millrace train d --model mlp:50r -o sgd --lr 1e6 -e 1 >/dev/null
millrace train: the loss is not finite .NaN or infinite. at step [0-9]+ of epoch 1: first in layer fc[12] .*; a lower lr, clip_norm=1, or leaving such steps out may help (re)
[1]
$ millrace train d --amp bf16 -e 1 --device cpu
millrace train: .*bf16.* (re)
[1]
$ millrace train d --device sim
millrace train: device sim computes nothing: nets run on cpu and cuda
[1]
$ millrace train d --device cpu+cpu --split fc2 --micro-batches 4 --model mlp:20r -e 1 --max-steps 3 --threads 1 | grep stages
  stages: flatten to fc1 on cpu; fc2 on cpu; 4 micro-batches, 1f1b
$ millrace train d --device cpu+cpu --split conv9
millrace train: split: the net has no layer 'conv9'; a stage can begin with .*fc2.* (re)
[2]
# Each layer that is listed can begin a stage: both of them have parameters.
$ millrace train d --device cpu+cpu --model softmax --split fc1
millrace train: split: no stage can begin with layer 'fc1'; the net can't be cut into stages that have parameters each
[2]
$ for l in $(millrace train d --device cpu+cpu --model 'conv:4,relu,maxpool:2,flatten,linear:10,logsoftmax' --loss nll --split x 2>&1 | sed 's/.*begin with//; s/,//g'); do millrace train d --device cpu+cpu --model 'conv:4,relu,maxpool:2,flatten,linear:10,logsoftmax' --loss nll --split $l --max-steps 1 -q >/dev/null && echo $l; done
pool
flatten
fc1
# A restart by torchrun goes on where the run was.
$ t="RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=9 TORCHELASTIC_RUN_ID=x TORCHELASTIC_MAX_RESTARTS=3"; for n in 0 1; do env $t TORCHELASTIC_RESTART_COUNT=$n millrace train d -m softmax -b 64 -d cpu --test none --max-steps $((4 + n)) -c restart.st --json | grep -E '"(steps|resumed_from_step)": [0-9]+,$' | tail -n 2; done; env $t TORCHELASTIC_RESTART_COUNT=2 millrace train d -m softmax -b 64 -d cpu --test none --max-steps 2 -c restart.st -f 2>&1 >/dev/null
  "steps": 4,
  "resumed_from_step": 0,
  "steps": 5,
  "resumed_from_step": 4,
millrace train: warning: restart 2 starts over because of --force; --resume would continue the run
# Also where rank 0 moved to another machine, whose torchrun has another log folder, and no more ranks are elsewhere.
$ t="RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=9 TORCHELASTIC_RUN_ID=x"; for n in 0 1; do env $t TORCHELASTIC_RESTART_COUNT=$n TORCHELASTIC_ERROR_FILE=/tmp/x_log$n/attempt_$n/0/error.json millrace train d -m softmax -b 64 -d cpu --test none --max-steps $((4 + n)) -c moved.st --json | grep resumed; done
  "resumed_from_step": 0,
  "resumed_from_step": 4,
# Not where the file is another job's, or says nothing of a job; --resume takes any.
$ t="RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=9 TORCHELASTIC_RUN_ID=y"; for n in 0 1; do env $t TORCHELASTIC_RESTART_COUNT=$n millrace train d -m softmax -b 64 -d cpu --test none --max-steps 9 -c restart.st; done; env $t TORCHELASTIC_RESTART_COUNT=1 millrace train d -m softmax -b 64 -d cpu --test none --max-steps 9 -c restart.st --resume --json | grep resumed
millrace train: restart.st: exists: --resume goes on from it, --force starts over
millrace train: restart.st: exists, and another job wrote it (torchrun x; this is torchrun y): --resume goes on from it, --force starts over
  "resumed_from_step": 2,
$ s="SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1"; millrace train d -m softmax -b 64 -d cpu --test none --max-steps 2 -c restart2.st -q >/dev/null; for n in 0 1; do env $s SLURM_JOB_ID=8 SLURM_RESTART_COUNT=$n millrace train d -m softmax -b 64 -d cpu --test none --max-steps 3 -c restart2.st; done; env $s SLURM_JOB_ID=7 millrace train d -m softmax -b 64 -d cpu --test none --max-steps 2 -c restart2.st -f -q >/dev/null; for job in 7 8; do env $s SLURM_JOB_ID=$job SLURM_RESTART_COUNT=1 millrace train d -m softmax -b 64 -d cpu --test none --max-steps 3 -c restart2.st --json | grep resumed; done; env $s SLURM_RESTART_COUNT=1 millrace train d -m softmax -b 64 -d cpu --test none --max-steps 4 -c restart2.st
millrace train: restart2.st: exists: --resume goes on from it, --force starts over
millrace train: restart2.st: exists, and does not say which job wrote it: --resume goes on from it, --force starts over
  "resumed_from_step": 2,
millrace train: restart2.st: exists, and another job wrote it (slurm 7; this is slurm 8): --resume goes on from it, --force starts over
millrace train: restart2.st: exists, and the launcher does not say which job it restarts (torchrun takes --rdzv-id ID): --resume goes on from it, --force starts over
[1]
# A run that is no rank ignores variables that launchers left, and a long ID: only a restart needs the job's name.
$ train="millrace train d -m softmax -b 64 -d cpu --test none --max-steps 2 --comm none -q -f -c left.st"; PMI_RANK=1 $train >/dev/null && TORCHELASTIC_RUN_ID=$(printf %300s | tr ' ' x) RANK=0 WORLD_SIZE=1 $train >/dev/null && millrace predict left.st d --json | grep -c '"samples"'
1
# Words are no pictures.
$ millrace synth words words -n 60 --n-test 10 -q >/dev/null; millrace train words
millrace train: model: layer 1: conv 3x3 with padding 0 takes pictures, and its input is 2000 numbers (words, a table's row): expected layers such as linear, as in the models mlp:300r,100r and softmax
[1]
$ millrace train d --device cpu+cpu+cpu --model softmax
millrace train: split: the net can't be cut into 3 stages that have parameters each; residuals and layers that run as one stay together
[2]
$ millrace train d --device cpu+sim
millrace train: mr_device_reach: there are no copies between devices cpu and sim: copy to host memory, and on from there
[1]
$ millrace bench split --device cpu
millrace bench split: --device cpu: expected at least two, as cuda:0+cuda:1
[2]
$ millrace bench split --micro-batches 3
millrace bench split: --micro-batches 3: expected at most 12 powers of two up to 1024, ascending, with commas between
[2]
$ millrace bench split --device cpu+cpu --model conv:2,relu,flatten,linear:10 --steps 1 --repeats 1 --micro-batches 1,2 --plot s.svg | grep -oE '^  (whole, on one|split|pipelined)|bound: 2 m'; grep -c '<svg' s.svg
  whole, on one
  split
  pipelined
bound: 2 m
1
$ millrace train npy:v --model softmax
millrace train: .*has no labels: expected a data set whose samples have a second field, the label (re)
[1]
$ millrace train d --resume
millrace train: --resume: expected --checkpoint FILE, too
[2]
$ millrace train d -c x.st --checkpoint-every soon
millrace train: --checkpoint-every soon: .* (re)
[2]
$ millrace train d --log l.txt
millrace train: --log l.txt: expected a name that ends in .csv or .jsonl
[2]
$ millrace train d --model softmax --loss nll
millrace train: loss nll: needs log-probabilities: a model that ends in logsoftmax, not in fc1 (linear 10)
[2]
$ millrace train d --model flatten,linear:10,logsoftmax --loss nll -e 1 --target-acc 50% >/dev/null; millrace train d --model flatten,linear:10,softmax -e 1 2>&1 >/dev/null
millrace train: warning: --loss cross-entropy takes the softmax itself: leave it out of the model, or learn slowly
$ millrace train d --model linear:10
millrace train: model: layer 1: linear:10 reads a vector, but its input is 1x28x28: put flatten before it
[1]
$ millrace train d --optimizer adam:momentum=0.9
millrace train: adam:momentum: no such option; there are lr, betas, eps, amsgrad, weight_decay, decoupled, maximize, clip_norm, clip_value, accumulate, threads
[2]
# A loss that is not finite, left out: the run goes on, and ends when nothing else comes for a hundred steps.
$ millrace train d --model mlp:50r -o sgd --lr 1e6 -e 1 --on-nan skip --json | grep -c '"steps_skipped": [1-9]'
1
$ millrace train d --model softmax -t 'cast(f32),scale(1e30),scale(1e30)' -e 9 --on-nan skip >/dev/null
millrace train: the loss is not finite .NaN or infinite. at step 101 of epoch 3: first in layer flatten .output.; .* (re)
[1]
# Real MNIST, if it is there: a perceptron and a short run of the CNN.
$ m=${MILLRACE_TEST_DATA:-none}/mnist; if [ -d $m ]; then millrace train $m --model mlp:300s,100r,50s -o adam -e 3 --device cpu --target-acc 96% --json > m.json && grep -c ended_by m.json; else echo "SKIP MNIST: 1"; fi | sed 's/^SKIP.*: //'
1
$ m=${MILLRACE_TEST_DATA:-none}/mnist; if [ -d $m ]; then millrace train $m --model mnist-cnn -o adadelta --lr 1.0 --schedule step:0.7 --max-steps 80 --test none --device cpu -c cnn.st >/dev/null && millrace predict cnn.st $m,split=test --device cpu --json -n 0 | awk '/"accuracy"/ {print ($2 + 0 > 0.9)}'; else echo "SKIP MNIST: 1"; fi | sed 's/^SKIP.*: //'
1
# The benches of training.
$ millrace bench optimizers d --models 'softmax|mlp:20r' --optimizers 'sgd:lr=0.1|adam:lr=1e-3' -n 40 --plot o.html --json > o.json; grep -c '"optimizer"' o.json; grep -c '<polyline' o.html; grep -c '^<tr>' o.html
4
12
6
$ millrace bench optimizers d --models softmax --optimizers 'sgd:lr=1e-3|sgd:lr=1e-2|adam:lr=1e-3' --quick -n 40 --seed 1 --plot o.html | sed -n 's/^idx.*: \([0-9]* steps\),.*/\1/p'
40 steps
# Huge losses keep the table's columns; they, and a run alone, are not the best.
$ millrace bench optimizers d --models softmax --optimizers 'sgd:lr=1e20' -n 40 --plot o.html >o.txt; millrace bench optimizers d --models softmax --optimizers adam:lr=1e-3 -n 40 --plot o.html >>o.txt; awk '/^  / && (length > 110 || /best/)' o.txt; grep -c 'e+' o.txt
1
# Best is what is ahead by more than the spread over at least five seeds.
$ for s in 4 5; do millrace bench optimizers d --models softmax --optimizers 'adam:lr=1e-9|adam:lr=3e-3' -n 80 --seeds $s --plot o.html | awk '/^  adam/ {print $1, /<- best/}'; done
adam:lr=1e-9 0
adam:lr=3e-3 0
adam:lr=1e-9 0
adam:lr=3e-3 1
$ millrace bench optimizers d --models softmax --optimizers 'adam:lr=3e-3|adam:lr=3e-3' -n 40 --seeds 5 --plot o.html | grep -c -e '<- best'
0
[1]
# A sweep's best rate is used; rates that fail are none. At its ends there may be a better one.
$ millrace bench optimizers d --models mlp:20r --optimizers 'sgd:lr=0.1' -n 40 --lr-sweep 1e-6,1,1e7 --plot o.html | awk '/^  sgd/ && !n++ {print $1, $2} /1e.06: fails/ {print "fails"} /first or last/'
sgd:lr=0.1 0.1
fails
# A schedule is of one optimizer, and a rate of 0 moves nothing: the size of a step.
$ millrace bench optimizers d --models softmax --optimizers 'sgd:lr=0|sgd:lr=0.1|sgd:lr=0.1@warmup:1000000,constant' -n 40 --plot o.html --json > o.json; awk '/"step_rms"/ {getline; print ($1 + 0 == 0), ($1 + 0 > 1e-4)}' o.json
1 0
0 1
0 0
$ millrace bench optimizers d --optimizers 'sgd@nosuch' -n 40 --plot o.html
millrace bench optimizers: .*nosuch.* (re)
[2]
$ millrace bench optimizers d --lr-sweep 1,0.1 -n 40 --plot o.html
millrace bench optimizers: --lr-sweep 1,0.1: expected at most 16 positive numbers, ascending, with commas between
[2]
# A sparse set: the same bytes everywhere, words that are there or not, few of them.
$ millrace synth words bag --n 500 --n-test 100 -q >/dev/null; cksum < bag/train-images-idx3-ubyte; tail -c +13 bag/train-images-idx3-ubyte | od -An -v -tu1 -w1 | awk '{n++; if ($1 == 255) one++; else if ($1) bad++} END {print n, bad + 0, (one / n > 0.005 && one / n < 0.02)}'; millrace bench optimizers bag --models mlp:8r --optimizers adam -n 40 -b 50 --plot o.html | grep -c '^  adam'
453353230 1000012
1000000 0 1
1
# Steps that are given stay with --quick.
$ millrace synth digits one --n 300 --n-test 1 -q >/dev/null; for n in '-n 20000' '-n 41' ''; do millrace bench optimizers one -b 1 --models softmax --optimizers 'sgd:lr=1e-3' --quick $n --plot o.html | sed -n 's/^idx.*: \([0-9]* steps\),.*/\1/p'; done
20000 steps
41 steps
400 steps
$ millrace bench batch-size d --model softmax --repeats 1 --sizes 64 -e 1 --plot b.svg >/dev/null; grep -o '(train): softmax by adam' b.svg
(train): softmax by adam
$ millrace bench optimizers d --models 'mlp:50r' --optimizers 'sgd:lr=1e6|adam:lr=1e-3' -n 40 --plot o.svg | grep -c 'not finite at step'
1
$ timeout -s INT 2 millrace bench optimizers d --models softmax --optimizers 'sgd:lr=0.1|adam:lr=1e-3' -n 900000 --plot o.html 2>/dev/null | awk '/interrupted at step/ {n++} /<- best/ {n = "best"} END {print n}'; grep -q 'interrupted at step' o.html || echo 'no part of a run in the page'
1
no part of a run in the page
$ millrace bench optimizers d --models softmax --optimizers adam:lr=1e-3 -n 79 --plot o.html --json > o.json; grep -A41 '"loss"' o.json | grep -c '[0-9],*$'; millrace train d --model softmax -o adam --lr 1e-3 -b 128 --max-steps 79 --log l.csv --log-every 1 -e 9 >/dev/null; tail -n 1 l.csv | awk -F, '{printf "%.4f\n", $4}' > want; sed -n 's/.*"last_loss": \([0-9.]*\),/\1/p' o.json | awk '{printf "%.4f\n", $1}' | cmp - want && echo last
40
last
$ millrace bench batch-size d --model softmax --repeats 1 --sizes 32,256 --target-acc 80% -e 2 --plot b.svg | sed -n 's/^knee: 32, .*/knee/p; s/^no knee: 256 is the largest .*/knee/p'; millrace bench batch-size d --model softmax --repeats 1 --sizes 64 -e 1 --json | grep -E '"(batch_size|knee)"'
knee
      "batch_size": 64,
  "knee": null,
# Files that cannot be written, and a rate that is none, are told before the first step; what fails later is in the JSON.
$ millrace train d --model softmax -c none/x.st
millrace train: none/x.st: cannot be made: No such file or directory
[1]
$ millrace train d --model softmax --plot none/x.svg
millrace train: none/x.svg: cannot be made: No such file or directory
[1]
$ for o in dataset collate-fn drop-last non-blocking pin-memory; do millrace train d --$o; done
millrace train: --dataset: no such option; the data set is an argument of its own: millrace train DATASET
millrace train: --collate-fn: no such option; samples of a batch are stacked; --transform brings them to one shape
millrace train: --drop-last: no such option; the last batch of an epoch is trained on, however small
millrace train: --non-blocking: no such option; copies that do not block are the default; --blocking turns them off
millrace train: --pin-memory: no such option; page-locked memory is the default; --no-pin turns it off
[2]
$ millrace train d --model softmax --no-shuffle --sampler random
millrace train: --no-shuffle and --sampler random: give one of the two
[2]
$ seq 9 > nine; millrace train d --model softmax --sampler subset:nine
millrace train: sampler subset:nine: the trainer needs each sample once an epoch: expected sequential, random or random:block=N[,window=N]
[2]
$ millrace train d --model softmax --lr -0.5
millrace train: --lr -0.5: expected a rate of 0 or more, or -1: the optimizer's own default
[2]
$ millrace train d --model softmax -e 1 --target-acc 100% --json 2>/dev/null | grep '"error"'
  "error": "the accuracy of 100% was not reached"
$ millrace synth digits few -n 100 --n-test 20 -q >/dev/null; millrace bench batch-size few --model softmax --repeats 1 -e 1 | grep -cE '^ +[0-9]+ '; rm -r few
3
# Sizes that are not given double to the end of something, and the largest has a substitute.
$ millrace bench batch-size d --model softmax -e 1 --time 20ms --json > b.json; python3 -c 'import json; d = json.load(open("b.json")); n = [s["batch_size"] for s in d["sizes"]]; print(n == [16 << i for i in range(len(n))], n[-1] <= 3003, len(n) == 8 or "5%" in d["ended"], d["knee"] != n[-1], d["largest_that_fits"] > n[-1], all("variation" in s for s in d["sizes"]), d["config"]["repeats"]); s = d.get("substitute"); print((s is None) == (d["knee"] is None), not s or (s["batch_size"], s["of"], s["batch_size"] * s["accumulate"], s["net_bytes"] < d["sizes"][-1]["net_bytes"]) == (d["knee"], n[-1], n[-1], True))'
True True True True True True 3
True True
# A substitute that cannot be measured costs no row. (All sizes divide the last, so any knee has one.)
$ o=adam:eps=0.00000001$(printf %0230d 0); millrace bench batch-size d --model softmax --repeats 1 -e 1 -o $o --sizes 250,300,375,500,600,750,1000,1500,3000 --json > b.json; echo $?; python3 -c 'import json; d = json.load(open("b.json")); e = d.get("substitute_error"); print(len(d["sizes"]), "substitute" in d, (e is None) == (d["knee"] is None), not e or "longer than" in e)'
0
9 False True True
$ millrace synth digits few -n 10 --n-test 20 -q >/dev/null; millrace bench batch-size few --model softmax --repeats 1; rm -r few
millrace bench batch-size: few has 10 samples: expected 16 or more
$ millrace bench batch-size d --sizes 64,32
millrace bench batch-size: --sizes 64,32: expected at most 24 numbers of 1..1048576, ascending, with commas between
[2]
# Without a test set no test loss is told.
$ millrace bench optimizers alone --models softmax --optimizers adam:lr=1e-3 -n 40 --plot o.svg | awk '/^  adam/ {print ($3 + 0 > 0), $4, $5, ($8 + 0 > 0)}'
1 - - 1
# Each size is measured over all its epochs, without a test set, too, and none that the data set has not.
$ for e in 1 2; do millrace bench batch-size alone --model softmax --repeats 1 --sizes 512,3003 --tests 100 -e $e | grep -E '^ +[0-9]|nan' | awk '{print $1, ($3 != "0"), $9, $10}'; done
512 1 - -
3003 1 - -
512 1 - -
3003 1 - -
$ millrace bench batch-size d --model softmax --repeats 1 --sizes 64,3004
millrace bench batch-size: --sizes 64,3004: d has 3003 samples: expected no larger batches
[2]
$ millrace bench story d --model softmax --time 30ms -d cpu | sed -n 's/^  \([a-z]*\) .*\(no meaning on cpu\).*/\1: \2/p'; millrace bench story d --model softmax --time 30ms -d cpu --json | grep -c '"measured": true'
pinned: no meaning on cpu
mixed: no meaning on cpu
2
$ millrace bench story synthetic:n=1000,shape=16,delay=1ms --time 30ms -d sim:h2d=1 --step 0.2ms -b 16 --plot s.svg --json > s.json; python3 -c 'import json; d = json.load(open("s.json")); s = d["steps"]; print([(x["step"], x["measured"]) for x in s], all(x["n_steps"] > 0 and 0 <= x["waited"] <= 1 and x["step_ms"] >= 0.199 and "variation" in x for x in s[:3]))'; grep -c '<rect' s.svg
[('starved', True), ('workers', True), ('pinned', True), ('mixed precision', False)] True
9
# Predictions look for labels where training does; no more memory than the data set's batches need.
$ printf '%s\n' 'import struct,random,json,sys' 'random.seed(1)' 'x=[random.random() for i in range(64*6)]' 'y=[int(x[6*i]>.5) for i in range(64)]' 'xb=struct.pack("<384f",*x)' 'yb=struct.pack("<64q",*y)' 'h=json.dumps(dict(x=dict(dtype="F32",shape=[64,6],data_offsets=[0,1536]),y=dict(dtype="I64",shape=[64],data_offsets=[1536,2048]))).encode()' 'h+=b" "*(-len(h)%8)' 'open("xy.safetensors","wb").write(struct.pack("<Q",len(h))+h+xb+yb)' > st.py; python3 st.py; millrace train safetensors:xy.safetensors --classes 2 -m softmax -e 1 -c xy.st --json | sed -n 's/^  "steps"/steps/p'; millrace predict xy.st safetensors:xy.safetensors -n 0 -b 1048576 | grep -c '^accuracy .* of 64'
steps: 1,
1
# A list of layers whose last is too small for the labels.
$ millrace train d --model flatten,linear:4 -e 1 >/dev/null
millrace train: [0-9]+ labels of the last batches are outside 0..3 .* (re)
[1]
# Labels and targets are as large as what the net reads of them, or refused before a byte is read.
$ printf '%s\n' 'import struct,sys' 'def put(name,dtype,form,shape):' ' n=1' ' for d in shape: n*=d' ' h=str(dict(descr=dtype,fortran_order=False,shape=tuple(shape)))' ' h+=" "*(117-len(h))+"\n"' ' open(name,"wb").write(b"\x93NUMPY\x01\x00"+struct.pack("<H",118)+h.encode()+struct.pack("<%d%s"%(n,form),*[i*7%3 for i in range(n)]))' 'put("x.npy","<f4","f",[64,6])' 'put("y.npy","<f4","f",[64])' 'put("z.npy","<f4","f",[64,2,3])' 'put("k.npy","<i8","q",[64])' 'put("kk.npy","<i8","q",[64,6])' > npy.py; python3 npy.py
$ for o in '--classes 10' '-m linear:5 -c y.st'; do millrace train npy:x.npy,labels=y.npy --loss mse -m softmax -e 1 $o; done
millrace train: npy: x.npy + y.npy: targets are label f32, but the net has 10 outputs: expected as many numbers as outputs in each target
millrace train: npy: x.npy + y.npy: targets are label f32, but the net has 5 outputs: expected as many numbers as outputs in each target
[1]
$ millrace train npy:x.npy,labels=kk.npy --classes 3 -m softmax -e 1
millrace train: npy: x.npy + kk.npy: labels are label i64[6], for a net of 3 outputs: expected one class in each label (loss mse takes vectors)
[1]
$ millrace train npy:x.npy,labels=k.npy --classes 3 -m softmax -e 1 --test npy:x.npy,labels=kk.npy
millrace train: npy: x.npy + kk.npy: labels are label i64[6], for a net of 3 outputs: expected one class in each label (loss mse takes vectors)
[1]
$ millrace train npy:x.npy,labels=k.npy --classes 3 -m softmax -e 1 --test npy:x.npy
millrace train: npy: x.npy: has no field 1, where the labels are: expected the fields of the training set
[1]
$ millrace train npy:x.npy,labels=z.npy --loss mse -m softmax -e 1 | grep '^softmax: '
softmax: [0-9,]+ parameters, 6 outputs (re)
$ for y in y z; do millrace train npy:x.npy,labels=$y.npy --loss mse -m softmax -e 1 -c $y.st | grep -c '^epoch'; done
1
1
$ millrace predict z.st npy:x.npy,labels=z.npy -n 2 --csv z.csv | sed -n 1,3p; head -n 1 z.csv; millrace predict z.st npy:x.npy -n 1 --json > z.json; sed -n '/"outputs"/,/\]/p' z.json | tr -dc '0-9.,e-' | python3 -c 'import sys; a=[float(v) for v in sys.stdin.read().split(",")[-6:] if v]; b=[float(v) for v in open("z.csv").readlines()[1].split(",")[1:]]; print(len(a), all(abs(x-y)<1e-6 for x,y in zip(a,b)))'
  sample  outputs
(       0  [-0-9.e]+, [-0-9.e]+, [-0-9.e]+, [-0-9.e]+, [-0-9.e]+, [-0-9.e]+) (re)
(       1  [-0-9.e]+, [-0-9.e]+, [-0-9.e]+, [-0-9.e]+, [-0-9.e]+, [-0-9.e]+) (re)
index,output_0,output_1,output_2,output_3,output_4,output_5
6 True
$ millrace predict z.st npy:x.npy,labels=z.npy | grep -c '^loss'; millrace predict z.st npy:x.npy,labels=y.npy; millrace predict y.st npy:x.npy,labels=k.npy >/dev/null
1
millrace predict: npy: x.npy + y.npy: targets are label f32, but the net has 6 outputs: expected as many numbers as outputs in each target
millrace predict: net: labels of i64: expected f32 or f64
[1]

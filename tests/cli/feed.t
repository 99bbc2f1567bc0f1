# The main job on generated files, plain.
$ millrace synth digits d --n 3003 --n-test 20 -q >/dev/null
$ millrace feed d -b 64 -s -e 2 -t 'cast(f32),scale(1/255),normalize(0.1307,0.3081)' -w 2
idx: train-images-idx3-ubyte + train-labels-idx1-ubyte (train): 3,003 samples
  image u8[28,28] -> image f32[28,28]
  label u8
  order random.*, batches of 64, 2 workers, prefetch [0-9]+, read from (uring|pread), device cpu (re)
6,006 samples in [0-9.]+ s: .* samples/s, .*B/s (re)
first batch after .*, then .* samples/s; from batch to batch: .* (re)
...
  read .* (re)
...
bottleneck: [a-z]+: .* (re)
# The same digest for any workers, prefetch, storage, cache; as two ranks; stopped in mid-epoch and resumed.
$ digest() { millrace feed d -b 32 -s --seed 7 -e 2 -t 'random_crop(24,24),hflip(0.5),cast(f32)' --digest "$@" | sed -n 's/^digest: //p'; }; one=$(digest -w 1); for o in '-w 2' '-w 5' '-p 1' '-p 9' '--storage pread' '--cache host' '--read-ahead 3 --queue-depth 1' '--device sim:h2d=20' '--device sim:h2d=20 --no-pin -p 1' '--device sim --blocking' '--device sim --streams 3' '--device sim --on-host' '--device sim --device-transforms on'; do [ "$(digest $o)" = "$one" ] && echo "$o: same"; done
-w 2: same
-w 5: same
-p 1: same
-p 9: same
--storage pread: same
--cache host: same
--read-ahead 3 --queue-depth 1: same
--device sim:h2d=20: same
--device sim:h2d=20 --no-pin -p 1: same
--device sim --blocking: same
--device sim --streams 3: same
--device sim --on-host: same
--device sim --device-transforms on: same
$ d() { millrace feed e -s --digest "$@" | sed -n 's/^digest: //p'; }; millrace synth digits e --n 2002 -q >/dev/null; [ "$(d --world 2 --rank 1 --digest-from $(d --world 2))" = "$(d)" ] && echo "two ranks: same"
two ranks: same
$ d() { millrace feed e -s --digest --world 3 --remainder exact "$@" | sed -n 's/^digest: //p'; }; [ "$(d --rank 2 --digest-from $(d --rank 1 --digest-from $(d --rank 0)))" = "$(millrace feed e -s --digest | sed -n 's/^digest: //p')" ] && echo "three ranks, 2,002 samples: same"
three ranks, 2,002 samples: same
$ w=$(millrace feed d -s -e 2 -t 'hflip(0.5)' --digest | tail -n 1); first=$(millrace feed d -s -e 2 -t 'hflip(0.5)' --digest --batches 61 --state-out s.json | sed -n 's/^digest: //p'); rest=$(millrace feed d -s -e 2 -t 'hflip(0.5)' --digest-from $first --state-in s.json -w 3 | tail -n 1); [ "$w" = "$rest" ] && echo "resumed: same"; ls
resumed: same
d
e
s.json
# On the device as a whole: only indices are copied; what cannot lie there is refused.
$ for o in '--device cpu' '--device sim' '--device sim --cache device'; do millrace feed d -s -t 'hflip(0.5),cast(f32)' --digest $o | tail -n 1; done | uniq | wc -l
1
$ millrace feed d --cache device --device cpu
millrace feed: cache device: device cpu has no memory of its own: use the cache host
[2]
# Another seed is another digest.
$ [ "$(millrace feed d -s --seed 1 --digest | tail -n 1)" != "$(millrace feed d -s --seed 2 --digest | tail -n 1)" ] && echo differ
differ
# JSON: the members that scripts rely on.
$ millrace feed d --json --digest --sink-ms 0.1 > out.json; for k in samples batches bytes seconds samples_per_s gb_per_s first_batch_ms start_ms device_open_ms warm_samples_per_s utilization digest bottleneck bad_samples stages memory config; do grep -q "^  \"$k\":" out.json || echo "missing: $k"; done; grep -E '"(samples|batches|bytes|bad_samples)"' out.json
  "samples": 3003,
  "batches": 47,
  "bytes": 2357355,
  "bad_samples": 0,
    "batches": 0,
# --warmup: what is delivered until then is left out of the steady rate, not of the rest.
$ for t in 1h 1ns; do millrace feed d --json --warmup $t | python3 -c 'import json, sys; o = json.load(sys.stdin); print(o["batches"], o["warm_samples_per_s"] is None, o["start_ms"] >= o["first_batch_ms"] + o["device_open_ms"])'; done
47 True True
47 False True
# A trace file appears whole.
# Nothing but a file is replaced by a file, and that is told before the run.
$ mkdir no; mkfifo pipe; for to in no pipe; do for o in state-out quarantine trace; do millrace feed d --$o $to; done; done; rmdir no; [ -p pipe ] && rm pipe
millrace feed: no: exists and is not a regular file
millrace feed: no: exists and is not a regular file
millrace feed: no: exists and is not a regular file
millrace feed: pipe: exists and is not a regular file
millrace feed: pipe: exists and is not a regular file
millrace feed: pipe: exists and is not a regular file
$ millrace feed d --trace t.pftrace -q >/dev/null && [ -s t.pftrace ] && echo traced
traced
# Files that are cut off; other formats; samplers from files.
$ cp -r d bad; truncate -s 60000 bad/train-images-idx3-ubyte; millrace feed bad
millrace feed: bad/train-images-idx3-ubyte: truncated: header promises 2354368 bytes, file has 60000
[1]
$ millrace feed raw:d/train-images-idx3-ubyte,shape=784,dtype=u8
millrace feed: d/train-images-idx3-ubyte: 3003 records of 784 bytes and 16 bytes left over: file has 2354368 bytes, of which 0 are skipped
[1]
$ printf '5\n1\n5\n' > some; millrace feed d --sampler subset:some -b 2 | sed -n 's/^\([0-9]* samples\).*/\1/p;s/^  order \([a-z]*\).*/\1/p'
subset
3 samples
$ printf '5\nx\n' > some; millrace feed d --sampler subset:some
millrace feed: some:2: 'x': expected an index (0, 1, 2, ...), one a line
[1]
$ printf '5\n99999\n' > some; millrace feed d --sampler subset:some
millrace feed: some: subset sampler: index 99999 (number 2 of 2): expected 0..3002
[2]
# Misuse and what cannot be.
$ millrace feed
millrace feed: an argument is missing: millrace feed DATASET [options]
[2]
$ millrace feed nowhere 2>&1 | sed 's/idx, [a-z0-9, ]*/.../'
millrace feed: nowhere: No such file or directory (no format was given; formats: ...)
$ millrace feed d --workers 0x
millrace feed: --workers 0x: expected 0..512 threads
[2]
$ millrace feed d --workers 1000
millrace feed: --workers 1000: expected 0..512 threads
[2]
$ millrace feed d --batch-size 0
millrace feed: --batch-size 0: expected 1..16777216 samples
[2]
$ millrace feed d --no-such
millrace feed: --no-such: no such option; --help lists them
[2]
$ millrace feed d --shuffle --sampler random
millrace feed: --shuffle and --sampler random: give one of the two
[2]
$ millrace feed d --max-bad many
millrace feed: --max-bad many: expected a number, a percentage such as 1%, or any
[2]
$ millrace feed d --max-memory 100k
millrace feed: max_memory 102400 bytes: needs [0-9]+: [0-9]+ slots x .* (re)
[1]
$ millrace feed d --device gpu:99
millrace feed: device cuda: .* (re)
[1]
$ millrace feed d --device cudda
millrace feed: device "cudda": not known to this build; did you mean cuda? known are auto, cuda, cpu, sim
[2]
$ millrace feed d --device sim:mem=64k
millrace feed: sim: out of device memory: asked for 3227648 bytes, 65536 of 65536 are free; lower --prefetch or --batch-size, or raise mem= of the device
[1]
$ millrace feed d --device sim:h2d=fast
millrace feed: sim:h2d=fast: expected 0.0001..1000000 GB/s
[2]
$ millrace feed d -t 'crop(32,32)'
millrace feed: transform 1: crop(32,32): does not fit image u8[28,28]
[1]
$ millrace feed d -t 'normalize(0,1)'
millrace feed: transform 1: normalize(0,1): floats only; put cast(f32) before it for image u8[28,28]
[1]
$ millrace feed d -t 'nosuch(1)'
millrace feed: transform 1: 'nosuch': no such op; there are cast, scale, normalize, .*, hflip.* (re)
[2]
$ millrace feed d -t 'normalise(0,1)' 2>&1 | sed 's/there are.*/.../'
millrace feed: transform 1: 'normalise': no such op; did you mean normalize? ...
$ millrace feed npi:x.npy 2>&1 | sed 's/formats:.*/.../'
millrace feed: npi:x.npy: unknown format 'npi'; did you mean npy?: ...
$ millrace feed d -t 'label.drop,image.copy(view),view.cast(f32)' | sed -n 2,4p
  image u8[28,28]
  image u8[28,28] -> view f32[28,28]
  label u8 -> dropped
$ millrace feed d --collate padd
millrace feed: --collate padd: expected stack, pad, fixed, ragged or pack; did you mean pad?
[2]
# The name that --remainder had in 0.1.
$ millrace feed d --tail pad
millrace feed: --tail: no such option; --remainder drop or pad replaces it
[2]
# Names of DataLoader's: their counterpart is said, or that none is needed; no hint says the opposite.
$ for o in dataset batch-sampler num_workers collate_fn pin_memory no-pin-memory pin-memory-device timeout worker_init_fn multiprocessing-context generator prefetch_factor persistent-workers non-blocking; do millrace feed d --$o=1; done
millrace feed: --dataset: no such option; the data set is an argument of its own: millrace feed DATASET
millrace feed: --batch-sampler: no such option; batches are --batch-size samples in the order of --sampler
millrace feed: --num_workers: no such option; --workers is the number of threads; 0 is not the caller's thread, but as many as processors
millrace feed: --collate_fn: no such option; --collate stack, pad, fixed or ragged says how samples become a batch
millrace feed: --pin_memory: no such option; page-locked memory is the default; --no-pin turns it off
millrace feed: --no-pin-memory: no such option; --no-pin turns page-locked memory off
millrace feed: --pin-memory-device: no such option; memory is page-locked for the device that --device names
millrace feed: --timeout: no such option; waiting for a batch has no limit of time
millrace feed: --worker_init_fn: no such option; workers are threads that begin without a function of the user's
millrace feed: --multiprocessing-context: no such option; --workers are threads of one process, not processes
millrace feed: --generator: no such option; --seed N selects the order and the random transforms
millrace feed: --prefetch_factor: no such option; --prefetch counts batches of all workers together, not of each
millrace feed: --persistent-workers: no such option; threads always stay from epoch to epoch
millrace feed: --non-blocking: no such option; copies that do not block are the default; --blocking turns them off
[2]
$ millrace feed d --nonblocking; millrace feed d --no-blokcing; millrace feed d --blockin
millrace feed: --nonblocking: no such option; did you mean --no-blocking?
millrace feed: --no-blokcing: no such option; did you mean --no-blocking?
millrace feed: --blockin: no such option; did you mean --blocking?
[2]
$ millrace feed d --rank 2 --world 2
millrace feed: rank 2: expected 0..1
[2]
$ millrace feed d --rank 1.5; millrace feed d --world 0
millrace feed: --rank 1.5: expected auto or a number, 0..1048576
millrace feed: --world 0: expected auto or a number, 1..1048576
[2]
$ l() { env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 millrace feed e -s --digest "$@" 2>&1; }; l | grep '^millrace'; l -q | grep '^millrace'; l --rank 0 --world 2 | grep '^millrace'
millrace feed: rank 1 of 2, from openmpi; --rank and --world override that
[1]
$ d() { millrace feed e -s --digest "$@" | grep '^digest'; }; l() { OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 d "$@"; }; [ "$(l -q)" = "$(d --rank 1 --world 2)" ] && [ "$(l --rank 0 --world 2)" = "$(d --rank 0 --world 2)" ] && [ "$(l --world 1)" = "$(d)" ] && [ "$(d)" != "$(l -q)" ] && echo "options win"
options win
$ env OMPI_COMM_WORLD_RANK=1 millrace feed d
millrace feed: environment: OMPI_COMM_WORLD_SIZE is not set, though openmpi seems to have started this process: set it, or unset the launcher's other variables
[2]
$ for v in RANK=1 WORLD_SIZE=2; do env $v millrace feed d --digest 2>&1 | grep '^millrace'; done; env RANK=1 millrace feed d -q --digest 2>&1 | grep -c '^millrace'
millrace feed: RANK is ignored, because WORLD_SIZE is not set: this is rank 0 of 1
millrace feed: WORLD_SIZE is ignored, because RANK is not set: this is rank 0 of 1
0
[1]
$ env SLURM_PROCID=0 SLURM_NTASKS=4 millrace feed d --digest 2>&1 | grep -c '^millrace'
0
[1]
$ millrace feed d --digest-from 12
millrace feed: --digest-from 12: expected 32 hex digits, as --digest prints them
[2]
$ millrace feed d --state-in nowhere.json
millrace feed: nowhere.json: No such file or directory
[1]
$ millrace feed d --shuffle --state-in s.json --seed 9
millrace feed: s.json: state: made with another sampler: the state has random(seed=0), this run has random(seed=9): use the same, or force-state (force_state, --force-state)
[1]
$ millrace feed synthetic:n=10,shape=4 --shuffle --state-in s.json
millrace feed: s.json: state: made with another data set .fingerprint.: the state has [0-9a-f]+, this run has [0-9a-f]+ (re)
[1]
$ echo '{"millrace_state": 1' > cut.json; millrace feed d --state-in cut.json
millrace feed: cut.json: state: not JSON at byte 21: ''
[1]
$ millrace feed d --state-out /nowhere/s.json
millrace feed: /nowhere/s.json: cannot be made: No such file or directory
[1]
$ millrace feed d --trace /nowhere/t --batches 1
millrace feed: /nowhere/t: cannot be made: No such file or directory
[1]
$ ls
bad
cut.json
d
e
out.json
s.json
some
t.pftrace
# An interrupt and a time limit end a run that waits for reads at once, in order: report and state are written. (A later
# interrupt, where the program had not begun at the first.)
$ for s in 1 5 25; do timeout -s INT $s millrace feed synthetic:n=1e9,shape=4,delay=100s -q --state-out cut-short.json --json >cut-short; [ -s cut-short ] && break; done; grep -c '"stopped": true' cut-short; grep -c millrace_state cut-short.json
1
1
$ millrace feed synthetic:n=1e6,shape=4,delay=60s --time 200ms --json | grep '"stopped"'
  "stopped": true,
# A state whose run is over says so.
$ millrace feed d --state-out over.json -q >/dev/null; millrace feed d --state-in over.json | grep -v -e '^  ' -e '^$'
millrace feed: warning: over.json: its run has finished its epochs, .* (re)
idx: train-images-idx3-ubyte .* (re)
nothing fed: over.json is the state of a run that has done its epochs; .* (re)
$ millrace feed d --state-in over.json -q --json | grep -e '"finished"' -e '"samples"'
  "samples": 0,
  "finished": true,
# No bad samples, no list of them, nor one of a run before; one of each otherwise.
$ millrace feed d --quarantine bad.jsonl -q >/dev/null; ls bad.jsonl
ls: cannot access 'bad.jsonl': No such file or directory
[2]
$ echo gone.jpg >l; millrace feed list:l,max-height=9,max-width=9 --collate pad --bad skip --quarantine bad.jsonl -q >/dev/null; grep -c gone.jpg bad.jsonl
millrace feed: no good sample in a whole epoch of 1; the last: ./gone.jpg: cannot be opened: No such file or directory
1
$ millrace feed d --quarantine bad.jsonl -q >/dev/null; ls bad.jsonl
ls: cannot access 'bad.jsonl': No such file or directory
[2]
# Nor does an endless run wait for one.
$ millrace feed list:l,max-height=9,max-width=9 --collate pad --bad skip --time 1h -q
millrace feed: no good sample in a whole epoch of 1; the last: ./gone.jpg: cannot be opened: No such file or directory
[1]
# Epochs that end and begin with bad samples are none; a rank's part of an epoch may have none but these.
$ millrace synth photos ph --n 1 --classes 1 -q >/dev/null; (find ph -type f; printf 'gone1.jpg\ngone2.jpg\n') >l; for s in 1 2 3; do millrace feed list:l --transform 'resize(8,8)' --bad skip --batch-size 1 --epochs 60 --shuffle --seed $s 2>&1 | grep -o '^[0-9]* samples in\|.*no good.*'; done
60 samples in
60 samples in
60 samples in
$ for r in 0 1 2; do millrace feed list:l --transform 'resize(8,8)' --bad skip --batch-size 1 --epochs 2 --shuffle --world 3 --rank $r -q 2>&1 | grep 'no good'; done; echo $?
1
# Blocks of machines or ranks: what the launcher says, and what is refused.
$ for r in 0 3; do RANK=$r WORLD_SIZE=4 LOCAL_RANK=$((r % 2)) LOCAL_WORLD_SIZE=2 millrace feed synthetic:n=640,shape=8 -q --sampler random:block=16 --affinity node -b 8 --json | grep -o '"random(.*)'; done
"random(seed=0,block=16,window=16,nodes=2,ranks=4)
"random(seed=0,block=16,window=16,nodes=2,ranks=4)
$ millrace feed synthetic:n=640,shape=8 -q --sampler random:block=16,window=2 --affinity rank --rank 1 --world 3 -b 8 --json | grep -o '"random(.*)'
"random(seed=0,block=16,window=2,nodes=3,ranks=3)
$ millrace feed synthetic:n=640,shape=8 -q --sampler random:block=16 --affinity rank -b 8 --json | grep -o '"random(.*)'
"random(seed=0,block=16,window=16)
$ millrace feed synthetic:n=640,shape=8 --shuffle --affinity rank
millrace feed: --affinity rank: expected --sampler random:block=N[,window=N], whose blocks then belong to a rank
[2]
$ millrace feed synthetic:n=640,shape=8 --sampler random:block=8,nodes=2,ranks=4 --affinity node
millrace feed: --affinity node with --sampler random:block=8,nodes=2,ranks=4: --affinity sets nodes= and ranks= itself: give one of the two
[2]
$ millrace feed synthetic:n=640,shape=8 -q --sampler random:block=16 --affinity node --rank 0 --world 4
millrace feed: --affinity node: no launcher says which ranks share a machine: give --sampler random:block=N,nodes=N,ranks=4
[2]
# Machines of 4 and 2 ranks: no rank may count nodes by its own machine.
$ for r in 0 5; do RANK=$r WORLD_SIZE=6 LOCAL_RANK=$((r % 4)) LOCAL_WORLD_SIZE=$((4 - r / 4 * 2)) GROUP_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x millrace feed synthetic:n=640,shape=8 -q --sampler random:block=16 --affinity node -b 8; done
millrace feed: --affinity node: this machine has 4 of 6 ranks: expected the same number on each machine: give each rank --sampler random:block=N,nodes=N,ranks=6
millrace feed: --affinity node: this machine has 2 of 6 ranks: expected the same number on each machine: give each rank --sampler random:block=N,nodes=N,ranks=6
[2]
$ SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE='4,2' SLURM_STEP_NUM_NODES=2 millrace feed synthetic:n=640,shape=8 -q --sampler random:block=16 --affinity node -b 8
millrace feed: --affinity node: this machine has 2 of 6 ranks: expected the same number on each machine: give each rank --sampler random:block=N,nodes=N,ranks=6
[2]
$ RANK=0 WORLD_SIZE=6 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 millrace feed synthetic:n=640,shape=8 -q --sampler random:block=16 --affinity node -b 8
millrace feed: --affinity node: this machine has 4 of 6 ranks: expected the same number on each machine: give each rank --sampler random:block=N,nodes=N,ranks=6
[2]
$ RANK=1 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 millrace feed synthetic:n=640,shape=8 --sampler random:block=16 --affinity node -b 8 --json | grep -o '"random(.*)'
millrace feed: rank 1 of 4, from env; --rank and --world override that
millrace feed: warning: --affinity node: ranks do not follow each other machine by machine: some read blocks that another machine has cached (mpirun --map-by slot, srun --distribution block)
"random(seed=0,block=16,window=16,nodes=2,ranks=4)
# Long steps end with the run, those that wait in the device's queue, too: 60 of them would take 10 hours.
$ for d in sim:step=10min 'cpu --sink-ms 600000'; do timeout 60 millrace feed synthetic:n=1e5,shape=8 --time 300ms --device $d -q --json | grep -E '"stopped"'; done
  "stopped": true,
  "stopped": true,
$ timeout 60 millrace feed synthetic:n=1e5,shape=8 --time 300ms --device sim:step=10min -q | grep -c '^  steps: [0-9]* of [0-9]* were not done when the run was stopped$'
1
# A run ends after few steps more than had begun: the queue holds no step for each batch that is ahead.
$ for s in 10min 150ms; do timeout 60 millrace feed synthetic:n=1e5,shape=8 --time 300ms --device sim:step=$s -q --prefetch 100 --json | awk '/^  "batches"/ {print $2 + 0 < 9}'; done
1
1
$ (timeout -s INT 3 millrace feed synthetic:n=1e5,shape=8 --device sim:step=10min -q) 2>/dev/null | grep -c '(stopped before the end)$'
1
# A run that an error ends prints what it did until then.
$ millrace synth photos err --n 8 --classes 1 -q >/dev/null; (find err -name '*.png' | sort; echo gone.png) >l; millrace feed list:l -t 'resize(8,8)' -b 2 -d cpu -q 2>&1 | grep -E 'gone|samples in'
millrace feed: ./gone.png: cannot be opened: No such file or directory
8 samples in .* \(stopped before the end\) (re)
$ millrace feed list:l -t 'resize(8,8)' -b 2 -d cpu -q --json 2>/dev/null | grep -E '^  "(samples|stopped|exit_status|error)":'
  "samples": 8,
  "stopped": true,
  "exit_status": 1,
  "error": "./gone.png: cannot be opened: No such file or directory"
# A shard of a table that is missing: the list names the archive, and the table.
$ millrace synth npy sh.npy --shape 8 --n 60 -q >/dev/null; millrace pack npy:sh.npy shd --shard-count 20 -q >/dev/null; millrace inspect shd --shard-table t.shards -q >/dev/null; rm shd/shard-000001.tar; millrace feed t.shards --bad skip --quarantine q.jsonl -d cpu -q >/dev/null; wc -l <q.jsonl; grep -o '"file": "[^"]*"\|"reason": ".*"' q.jsonl | sort -u
20
"file": "./shd/shard-000001.tar"
"reason": "./shd/shard-000001.tar: cannot be opened: No such file or directory (shard 1 of t.shards)"
# A small set that is read from the page cache again each epoch: what to do; not of one epoch, nor with simulated latency.
$ millrace synth raw tiny.raw --n 200000 --shape 2 -q >/dev/null; millrace synth raw few.raw --n 2000 --shape 2 -q >/dev/null; t=tiny.raw,shape=2,dtype=f32; told() { millrace feed "$@" -s -w 1 --storage pread -b 256 -d cpu | grep -o 'a host cache would keep its files, 2 MB, in memory'; }; told raw:$t -e 4 || told raw:$t -e 4 || told raw:$t -e 4; for o in "raw:$t -e 1" "raw:$t -e 4 --cache host" 'slow:[raw:few.raw,shape=2,dtype=f32],delay=1ms -e 2'; do told $o || echo no; done
a host cache would keep its files, 2 MB, in memory
no
no
no

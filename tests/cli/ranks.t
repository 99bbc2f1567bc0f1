# Jobs of several ranks: who holds them up, from one recording or from one of each rank.
$ for kind in loader compute even; do "$MAKE_RECORDING" $kind $kind.sqlite; mkdir $kind; for r in 0 1 2; do "$MAKE_RECORDING" $kind:$r $kind/run.rank$r.sqlite; done; done
$ millrace analyze loader.sqlite | head -4
rank 1 holds up the job: the others waited for it in 23 of 23 steps, 11.897 ms in each; cause:
waiting for the loader (11.900 ms a step more than theirs). Rank 1 is looked at: data-bound: the GPU
waited 92% of the step (12.000 of 13.071 ms) for data: 12.000 ms for the loader, 0.000 ms for copies
to the device; most of the idle time is waiting for the loader (92% of the step); 23 steps after
$ millrace analyze compute.sqlite | head -2
rank 1 holds up the job: the others waited for it in 23 of 23 steps, 7.997 ms in each; cause:
compute (8.000 ms a step more than theirs). Rank 1 is looked at: not data-bound: the GPU waited 1.1%
$ millrace analyze even.sqlite | grep -c 'holds up the job'
0
[1]
$ millrace analyze even.sqlite | tr '\n' ' ' | grep -o 'no rank holds up the others'
no rank holds up the others
# The same of a file for each rank, whose clocks differ by milliseconds.
$ millrace analyze loader | head -4
rank 1 holds up the job: the others waited for it in 23 of 23 steps, 11.896 ms in each; cause:
waiting for the loader (11.900 ms a step more than theirs). Rank 1 is looked at: data-bound: the GPU
waited 92% of the step (12.000 of 13.071 ms) for data: 12.000 ms for the loader, 0.000 ms for copies
to the device; most of the idle time is waiting for the loader (92% of the step); 23 steps after
$ millrace analyze compute/*.sqlite | head -2
rank 1 holds up the job: the others waited for it in 23 of 23 steps, 7.996 ms in each; cause:
compute (8.000 ms a step more than theirs). Rank 1 is looked at: not data-bound: the GPU waited 1.1%
$ millrace report -r comm_sum,rank_breakdown loader
Communication (comm_sum)

Rank  PID  Device  Instances  Total Time  Hidden  Hidden Share   Exposed  Waiting for Others  Waiting Share
----  ---  ------  ---------  ----------  ------  ------------  --------  ------------------  -------------
   0  100       0         24    286.8 ms    0 ns          0.0%  286.8 ms            285.6 ms          99.6%
   1  101       1         24    1.224 ms    0 ns          0.0%  1.224 ms                0 ns           0.0%
   2  102       2         24    286.8 ms    0 ns          0.0%  286.8 ms            285.6 ms          99.6%

the others wait for rank 1: it came last in 23 of 23 steps and cost 11.896 ms in each; cause: waiting for the loader

Ranks side by side (rank_breakdown)

Rank  PID  Device  Steps      Step   Compute  Communication Exposed  Copy Exposed      Idle  Most Idle               Waiting for Others  Last in Steps  Costs Others
----  ---  ------  -----  --------  --------  ---------------------  ------------  --------  ----------------------  ------------------  -------------  ------------
   0  100       0     23  13.07 ms  1.011 ms               11.95 ms          0 ns  110.0 us  waiting for the loader            11.90 ms              0          0 ns
   1  101       1     23  13.07 ms  1.010 ms               51.00 us          0 ns  12.01 ms  waiting for the loader                0 ns             23      11.90 ms
   2  102       2     23  13.07 ms  1.009 ms               11.95 ms          0 ns  110.0 us  waiting for the loader            11.90 ms              0          0 ns

the others wait for rank 1: it came last in 23 of 23 steps and cost 11.896 ms in each; cause: waiting for the loader
$ millrace report -r rank_steps -n 3 compute/run.rank2.sqlite compute/run.rank0.sqlite compute/run.rank1.sqlite
The last rank of each step (rank_steps)

Step         Start  Duration  Last Rank  PID  Device     Costs  Cause        More
----  ------------  --------  ---------  ---  ------  --------  -------  --------
   1  16.181106 ms  9.162 ms          1  101       1  7.993 ms  compute  7.995 ms
   2  25.343394 ms  9.178 ms          1  101       1  8.002 ms  compute  8.008 ms
   3  34.521477 ms  9.180 ms          1  101       1  8.002 ms  compute  8.008 ms

the others wait for rank 1: it came last in 23 of 23 steps and cost 7.996 ms in each; cause: compute
# A part of a job.
$ millrace report -r rank_breakdown --rank 1 loader | sed -n '3,$p'
Rank  PID  Device  Steps      Step   Compute  Communication Exposed  Copy Exposed      Idle  Most Idle               Waiting for Others  Last in Steps  Costs Others
----  ---  ------  -----  --------  --------  ---------------------  ------------  --------  ----------------------  ------------------  -------------  ------------
   1  101       1     23  13.07 ms  1.010 ms               51.00 us          0 ns  12.01 ms  waiting for the loader                   -              -             -

the job has 3 ranks, and 1 is recorded here: whether one of the others is waited for is not known; give the recordings of all ranks
$ millrace report -r cuda_gpu_kern_sum --device 2 loader.sqlite | cut -c1-40
Kernels (cuda_gpu_kern_sum)

 Time  Total Time  Instances       Avg  
-----  ----------  ---------  --------  
92.2%    286.8 ms         24  11.95 ms  
 7.8%    24.22 ms         24  1.009 ms  
$ millrace analyze --pid 100 loader.sqlite | head -1
cannot tell: 91% of the time is communication, which may be waiting for a rank that is data-bound;
$ millrace report --rank 5 loader.sqlite
millrace report: rank 5 is not in loader.sqlite, which has device 0 of process 100 (rank 0), device 1 of process 101 (rank 1), device 2 of process 102 (rank 2)
[2]
$ millrace timeline -o one.html --rank 0 loader
one\.html: 144 events, .* KiB (re)
$ millrace timeline loader/
loader\.html: 432 events, .* KiB (re)
# What does not belong together, or is not there.
$ millrace analyze loader/run.rank0.sqlite loader/run.rank2.sqlite | tr '\n' ' ' | grep -o 'the job has 3 ranks.*of all ranks'
the job has 3 ranks, and 2 are recorded here: whether one of the others is waited for is not known; give the recordings of all ranks
$ millrace analyze loader/run.rank0.sqlite compute/run.rank1.sqlite
millrace analyze: loader/run.rank0.sqlite and compute/run.rank1.sqlite: their collectives (24 and 24) do not end together in one order: they are of different runs, or of ranks in different groups; expected recordings of one job whose ranks take part in the same collectives
[1]
$ millrace analyze loader/run.rank0.sqlite compute/run.rank0.sqlite
millrace analyze: compute/run.rank0.sqlite and loader/run.rank0.sqlite are both of rank 0: expected one recording of each rank of one run
[1]
$ mkdir none; millrace report none
millrace report: none: is a folder without recordings: expected files that end in .sqlite, .db, .json, .json.gz or .nsys-rep
[2]
$ millrace report --rank -2 loader
millrace report: --rank -2: expected -1..4294967294
[2]
$ ln loader/run.rank0.sqlite again.sqlite; millrace report loader/run.rank0.sqlite again.sqlite
millrace report: loader/run.rank0.sqlite and again.sqlite are one file: expected one recording of each rank
[2]
# A report of nsys beside its export is the same recording.
$ mkdir both; cp loader/*.sqlite both; for r in 0 1 2; do : >both/run.rank$r.nsys-rep; done; millrace analyze both | head -1
rank 1 holds up the job: the others waited for it in 23 of 23 steps, 11.896 ms in each; cause:
# A folder without a name of its own.
$ (cd even && millrace timeline . | cut -d: -f1 | sed 's,.*/,,'); rm even.html; ls even*
even.html
even.sqlite

even:
run.rank0.sqlite
run.rank1.sqlite
run.rank2.sqlite
# Comparisons: the slow rank's, and what they cannot take.
$ millrace report --diff even.sqlite compute.sqlite -f markdown | head -1 | grep -o '^slower: '
slower: 
$ millrace report --diff even.sqlite compute.sqlite --by time
millrace report: --by: not with --diff, which compares steps and rows as they are
[2]
$ millrace report --diff even.sqlite compute.sqlite --link-gbps 5
millrace report: --link-gbps: not with --diff, which compares steps and rows as they are
[2]
$ millrace timeline --diff -o x.folded even.sqlite compute.sqlite
millrace timeline: --diff: expected html, svg or perfetto: folded lines have no two sides
[2]
# Under a launcher each rank records into a file of its own, which says which rank it is.
$ millrace synth digits d --n 640 -q >/dev/null; mkdir job; for r in 0 1; do OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 millrace profile -t nvtx,millrace -o job/run -- millrace feed d -b 64 -q >/dev/null 2>&1; RANK=$r WORLD_SIZE=2 TORCHELASTIC_RUN_ID=a millrace profile -t none -o job/by-%r.db -- true 2>/dev/null; done; OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 millrace profile -t none -o job/alone.db -- true 2>/dev/null; RANK=1 WORLD_SIZE=2 millrace profile -t none -- true 2>/dev/null; ls job *.rank*
report1.rank1.sqlite

job:
alone.db
by-0.db
by-1.db
run.rank0.sqlite
run.rank1.sqlite
$ OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 millrace profile -t none -o job/run -- true
millrace profile: job/run.rank0.sqlite: exists; --force-overwrite replaces it
[1]
$ waits() { millrace report -r nvtx_sum -f csv "$@" | grep 'wait: batch' | cut -d, -f3; }; echo "$(waits job) in both: $(waits job/run.rank0.sqlite) and $(waits job/run.rank1.sqlite)"
10 in both: 5 and 5

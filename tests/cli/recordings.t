# Recordings of real programs on a real GPU: tests/data/README.md says which.
$ for n in mnist_w0 mnist_w2 mnist_w2pin cupy; do gunzip -c "$TEST_DATA/$n.sqlite.gz" >$n.sqlite; done
$ millrace analyze mnist_w0.sqlite | head -4
data-bound: the GPU waited 78% of the step (11.989 of 15.351 ms) for data: 11.790 ms for the loader,
0.199 ms for copies to the device; most of the idle time is waiting for the loader (77% of the
step), then host code (1%); 19 steps after warming up, from one NVTX range "step" to the next; fix
first: data_starvation (saves 76.8%)
$ millrace analyze mnist_w2.sqlite | grep -e '^[a-z]*_[a-z_]*: ' -e ' workers would' -e 'workers that'
data_starvation: the device waits for data 50.7% of the time
            processes are in the recording: 2 x 7.143 ms / (7.143 - 3.621 ms) = 5 workers would keep
pageable_copies: 19 of 19 copies of more than 64 KiB use pageable memory (14.9 GB/s)
gpu_gaps: the device idles while the launching thread runs its own code
tensor_cores: by their names, 13% of kernel time multiplies matrices without tensor cores
critical_path: the device is busy 44% of the time, but only 24% decides when a step ends
$ millrace analyze mnist_w2pin.sqlite | grep -e '^[a-z]*_[a-z_]*: ' -e 'pageable_copies'
data_starvation: the device waits for data 55.5% of the time
tensor_cores: by their names, 13% of kernel time multiplies matrices without tensor cores
copy_on_compute_stream: 19 copies run on the stream of the kernels
critical_path: the device is busy 43% of the time, but only 0% decides when a step ends
      low_use, memset_sync, pageable_copies, pinning_in_loop, same_direction_copies, small_copies,
$ millrace analyze cupy.sqlite | sed -n '1,7p'
data-bound: the GPU waited 28% of the step (0.142 of 0.507 ms) for data: 0.000 ms for the loader,
0.142 ms for copies to the device; the largest part of the idle time is copy calls (7% of the step),
then read-back or synchronization (5%); 59 steps after warming up, from one NVTX range "step" to the
next; fix first: pageable_copies (saves 18.5%)

pageable_copies: 29 of 59 copies of more than 64 KiB use pageable memory (20.2 GB/s)
  saves     0.094 ms a step, 18.5% (confidence 0.78)
$ millrace report mnist_w2.sqlite -r mem_ops --sort duration --limit 3
Copies and memsets in order (mem_ops)

          Start  Duration     Bytes  Throughput  Of Link  Operation       SrcMemKd  DstMemKd  Dev  Strm  CorrId  API Call               API Start  API Duration   Tid  Thread Name  Host Blocked
---------------  --------  --------  ----------  -------  --------------  --------  --------  ---  ----  ------  ---------------  ---------------  ------------  ----  -----------  ------------
3,309.845335 ms  273.4 us  3.211 MB  11.74 GB/s    61.2%  Host-to-Device  Pageable  Device      0     7    1499  cudaMemcpyAsync  3,309.704335 ms      402.9 us  1146  python3      in the call
3,369.301848 ms  271.4 us  3.211 MB  11.83 GB/s    61.7%  Host-to-Device  Pageable  Device      0     7    1971  cudaMemcpyAsync  3,369.155295 ms      407.4 us  1146  python3      in the call
3,412.915205 ms  266.7 us  3.211 MB  12.04 GB/s    62.8%  Host-to-Device  Pageable  Device      0     7    2325  cudaMemcpyAsync  3,412.762240 ms      407.4 us  1146  python3      in the call

Of Link: of the recording's fastest copy of the same kind that has 1 MiB or more; --link-gbps gives the link's measured rate (millrace bench transfer)
$ millrace report mnist_w2pin.sqlite -r overlap
Copies and compute at once (overlap)

 PID  Device  What                                                   Time  Time Share  Share Of    Count     Bytes
----  ------  -------------------------------------------------  --------  ----------  ----------  -----  --------
1186       0  H2D                                                1.851 ms        1.4%  work span      40  64.39 MB
1186       0  D2H                                                    0 ns        0.0%  work span       0       0 B
1186       0  D2D                                                    0 ns        0.0%  work span       0       0 B
1186       0  compute                                            59.01 ms       43.4%  work span   1,100  118.1 MB
1186       0  H2D with D2H                                           0 ns        0.0%  H2D             -         -
1186       0  H2D with D2D                                           0 ns        0.0%  H2D             -         -
1186       0  H2D with compute                                       0 ns        0.0%  H2D             -         -
1186       0  D2H with D2D                                           0 ns        0.0%  D2H             -         -
1186       0  D2H with compute                                       0 ns        0.0%  D2H             -         -
1186       0  D2D with compute                                       0 ns        0.0%  D2D             -         -
1186       0  H2D copies exposed: on a stream that runs kernels  1.851 ms      100.0%  H2D copies     40  64.39 MB

Times are unions; a pair's share is of the first. Copies exposed: the part of each that no compute hides, added up, with one reason each: the first that holds of pageable memory, a synchronizing call, a stream that runs kernels, the engine of its direction busy, kernels that waited for it, nothing queued.
$ millrace report mnist_w2.sqlite -r step_breakdown --limit 4
Steps (step_breakdown)

Step     PID  Device            Start  Duration  Compute Alone  Copy Hidden  Copy Exposed  Others Alone      Idle  Idle Share  Idle in API Calls  Idle in OS Calls  Idle in Own Code  While Idle
------  ----  ------  ---------------  --------  -------------  -----------  ------------  ------------  --------  ----------  -----------------  ----------------  ----------------  --------------------------------------------------------------------------------------------------------
mean    1146       0  3,282.580763 ms  7.143 ms       2.941 ms         0 ns      216.7 us          0 ns  3.985 ms       55.8%           124.7 us          3.358 ms          502.5 us  load: poll 63%, load: read 13%, load: its own code 8%, load: munmap 4%
sum     1146       0  3,282.580763 ms  135.7 ms       55.88 ms         0 ns      4.118 ms          0 ns  75.71 ms       55.8%           2.369 ms          63.79 ms          9.548 ms  load: poll 63%, load: read 13%, load: its own code 8%, load: munmap 4%
median  1146       0  3,399.863190 ms  3.539 ms       3.089 ms         0 ns      169.7 us          0 ns  280.5 us        7.9%           75.22 us          34.60 us          170.7 us  train: its own code 46%, copy: cudaMemcpyAsync 13%, copy: its own code 12%, train: pthread_cond_wait 10%
p95     1146       0  3,358.775776 ms  12.40 ms       2.936 ms         0 ns      272.5 us          0 ns  9.188 ms       74.1%           190.4 us          8.113 ms          884.7 us  load: poll 58%, load: read 20%, load: its own code 7%, load: munmap 5%

Steps from one NVTX range "step" to the next (confidence 0.95, 0 pauses left out). Compute: kernels, memsets, copies inside the device. Others: what other processes run there. Compute alone + copy hidden + copy exposed + others alone + idle = duration. Mean and sum are of the steps after warming up.
$ millrace report mnist_w2.sqlite -r idle_breakdown
Idle time by class (idle_breakdown)

 PID  Device  Class                           Mean a Step  Of Idle  Of Step     Total  Most in a Step  Steps with It
----  ------  ------------------------------  -----------  -------  -------  --------  --------------  -------------
1146       0  waiting for the loader             3.621 ms    90.9%    50.7%  68.81 ms        8.704 ms             19
1146       0  communication                          0 ns     0.0%     0.0%      0 ns            0 ns              0
1146       0  read-back or synchronization       20.00 us     0.5%     0.3%  380.0 us        27.29 us             19
1146       0  copy calls                         80.79 us     2.0%     1.1%  1.535 ms        174.4 us             19
1146       0  allocation and loading of code         0 ns     0.0%     0.0%      0 ns            0 ns              0
1146       0  launch overhead                    76.33 us     1.9%     1.1%  1.450 ms        94.73 us             19
1146       0  switch between processes               0 ns     0.0%     0.0%      0 ns            0 ns              0
1146       0  operating system                   14.07 us     0.4%     0.2%  267.3 us        87.99 us              4
1146       0  host code                          172.3 us     4.3%     2.4%  3.273 ms        227.0 us             19
1146       0  unexplained                            0 ns     0.0%     0.0%      0 ns            0 ns              0
1146       0  idle                               3.985 ms   100.0%    55.8%  75.71 ms        9.188 ms             19
1146       0  copy exposed                       216.7 us        -     3.0%  4.118 ms        274.6 us             19
1146       0  communication exposed                  0 ns        -     0.0%      0 ns            0 ns              0
1146       0  compute                            2.941 ms        -    41.2%  55.88 ms        3.089 ms             19
1146       0  step                               7.143 ms        -   100.0%  135.7 ms        12.40 ms             19

19 steps after warming up, from one NVTX range "step" to the next. The classes add up to idle; idle, copies and communication that no compute hides, other processes and compute to the step
$ millrace report cupy.sqlite -r cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum,cuda_gpu_kern_sum --limit 4
Memory operations by time (cuda_gpu_mem_time_sum)

 Time  Total Time  Count       Avg       Med       Min       Max    StdDev  Operation
-----  ----------  -----  --------  --------  --------  --------  --------  ----------------------------
98.9%    8.676 ms     60  144.6 us  131.0 us  78.14 us  419.8 us  77.27 us  [CUDA memcpy Host-to-Device]
 1.1%    93.98 us     60  1.566 us  1.568 us  1.408 us  1.600 us  21.59 ns  [CUDA memcpy Device-to-Host]

Memory operations by size (cuda_gpu_mem_size_sum)

   Total  Count       Avg       Med       Min       Max  StdDev  Operation
--------  -----  --------  --------  --------  --------  ------  ----------------------------
251.7 MB     60  4.194 MB  4.194 MB  4.194 MB  4.194 MB     0 B  [CUDA memcpy Host-to-Device]
   240 B     60       4 B       4 B       4 B       4 B     0 B  [CUDA memcpy Device-to-Host]

Kernels (cuda_gpu_kern_sum)

 Time  Total Time  Instances       Avg       Med       Min       Max    StdDev  Name
-----  ----------  ---------  --------  --------  --------  --------  --------  -------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------------
87.9%    13.35 ms        240  55.65 us  55.49 us  55.33 us  56.67 us  261.5 ns  sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
 9.8%    1.496 ms        240  6.232 us  6.240 us  6.207 us  6.304 us  21.34 ns  cupy_tanh__float32_float32
 1.0%    157.0 us          1  157.0 us  157.0 us  157.0 us  157.0 us      0 ns  void generate_seed_pseudo<rng_config<curandStateXORWOW, (curandOrdering)101> >(unsigned long long, unsigned long long, unsigned long long, curandOrdering, curandStateXORWOW*, unsigned int*)
 0.8%    115.1 us         60  1.919 us  1.920 us  1.855 us  2.144 us  41.71 ns  void cub::CUB_300102_SM_750_800_860_890_900_1000_1200::detail::reduce::DeviceReduceKernel<cub::CUB_300102_SM_750_800_860_890_900_1000_1200::detail::reduce::policy_hub<float, unsigned int, cuda::std::__4::plus<void> >::Policy1000, float*, unsigned int, cuda::std::__4::plus<void>, float, cuda::std::__4::identity>(float*, float*, unsigned int, cub::CUB_300102_SM_750_800_860_890_900_1000_1200::GridEvenShare<unsigned int>, cuda::std::__4::plus<void>, cuda::std::__4::identity)
# The textbook fix: copies from pinned memory. The step is as fast as before, within noise.
$ millrace report --diff mnist_w2.sqlite mnist_w2pin.sqlite
same: a step took 7.143 ms before and 6.900 ms after (-3.4%), within noise (p = 1.0000; 19 and 19
steps); waiting for data 53.7% -> 56.8% of the step; pageable copies 40 -> 0, pinned 0 -> 40;
findings: 2 gone, 1 new, 3 remaining

A step's time, before and after (steps)

Part                            Before     After  Change Time   Change  Verdict       P  StdDev Before  StdDev After  Med Before  Med After
----------------------------  --------  --------  -----------  -------  -------  ------  -------------  ------------  ----------  ---------
step                          7.143 ms  6.900 ms    -242.4 us    -3.4%  same     100.0%       4.126 ms      5.590 ms    3.539 ms   1.902 ms
compute                       2.941 ms  2.876 ms    -65.06 us    -2.2%  same     100.0%       94.56 us      1.298 ms    2.936 ms   1.794 ms
copy exposed                  216.7 us  88.33 us    -128.4 us   -59.2%  less       0.2%       47.22 us      45.15 us    180.5 us   63.46 us
data wait                     3.838 ms  3.921 ms     83.20 us     2.2%  same     100.0%       4.017 ms      4.248 ms    187.3 us   66.62 us
idle                          3.985 ms  3.936 ms    -48.99 us    -1.2%  same     100.0%       4.081 ms      4.279 ms    289.2 us   53.47 us
waiting for the loader        3.621 ms  3.833 ms     211.6 us     5.8%  same      82.0%       3.971 ms      4.221 ms    13.15 us   3.296 us
read-back or synchronization  20.00 us      0 ns    -20.00 us  -100.0%  less       0.2%       1.904 us          0 ns    19.65 us       0 ns
copy calls                    80.79 us  7.279 us    -73.51 us   -91.0%  less       0.2%       73.02 us      7.900 us    16.93 us       0 ns
launch overhead               76.33 us  69.92 us    -6.412 us    -8.4%  same     100.0%       11.29 us      38.01 us    80.45 us   53.47 us
operating system              14.07 us      0 ns    -14.07 us  -100.0%  same      17.2%       28.64 us          0 ns        0 ns       0 ns
host code                     172.3 us  25.68 us    -146.6 us   -85.1%  less       0.2%       32.66 us      37.97 us    158.7 us       0 ns

Means of 19 and 19 steps after warming up, from one NVTX range "step" to the next. Compute, copies and communication exposed, other processes and idle add up to the step; data wait is waiting for the loader and exposed copies to the device; P: permutation tests of the means and ranks of 9 and 9 blocks of 2 and 2 steps (Chung, Romano 2013), two-sided. A change is one of at least 1%, of a part also 0.1% of the step, with a P of at most 1%

Copies by kind of memory, before and after (copies)

Operation       SrcMemKd  DstMemKd  Count Before  Count After  Bytes Before  Bytes After  Time Before  Time After  Throughput Before  Throughput After
--------------  --------  --------  ------------  -----------  ------------  -----------  -----------  ----------  -----------------  ----------------
Host-to-Device  Pageable  Device              40            0      64.39 MB          0 B     4.360 ms        0 ns         14.77 GB/s                 -
Host-to-Device  Pinned    Device               0           40           0 B     64.39 MB         0 ns    1.851 ms                  -        34.80 GB/s

The longest copy and its call, before and after (longest_copy)

Recording            Start  Duration     Bytes  Throughput  Operation       SrcMemKd  DstMemKd  API Call         API Duration  Host Blocked
---------  ---------------  --------  --------  ----------  --------------  --------  --------  ---------------  ------------  ------------
before     3,309.845335 ms  273.4 us  3.211 MB  11.74 GB/s  Host-to-Device  Pageable  Device    cudaMemcpyAsync      402.9 us  in the call
after      3,321.894396 ms  176.6 us  3.211 MB  18.18 GB/s  Host-to-Device  Pinned    Device    cudaMemcpyAsync      14.15 us  no

Findings of analyze, before and after (findings)

Status     Rule                    Saving Before  Saving After  Finding
---------  ----------------------  -------------  ------------  ---------------------------------------------------------------------------
gone       pageable_copies              224.2 us             -  19 of 19 copies of more than 64 KiB use pageable memory (14.9 GB/s)
gone       gpu_gaps                     172.3 us             -  the device idles while the launching thread runs its own code
new        copy_on_compute_stream              -      85.13 us  19 copies run on the stream of the kernels
remaining  data_starvation              3.621 ms      3.833 ms  the device waits for data 55.5% of the time
remaining  tensor_cores                 185.6 us      181.8 us  by their names, 13% of kernel time multiplies matrices without tensor cores
remaining  critical_path                    0 ns          0 ns  the device is busy 43% of the time, but only 0% decides when a step ends

Savings are of a step, or of the whole recording without steps. Cannot tell: found before, and the second recording cannot support a conclusion
$ millrace report --diff mnist_w2.sqlite mnist_w2.sqlite | head -2
same: a step took 7.143 ms before and 7.143 ms after (+0.0%), within noise (p = 1.0000; 19 and 19
steps); waiting for data 53.7% -> 53.7% of the step; findings: 0 gone, 0 new, 5 remaining
$ millrace report --diff mnist_w2.sqlite mnist_w2.sqlite >/dev/null
$ millrace report --diff mnist_w2.sqlite mnist_w2.sqlite -f csv | grep -cE ',(more|less|slower|faster),|^(gone|new),'
0
[1]
# A slower loader.
$ millrace report --diff mnist_w2pin.sqlite mnist_w0.sqlite | head -3; millrace report --diff mnist_w2pin.sqlite mnist_w0.sqlite >/dev/null
slower: a step took 6.900 ms before and 15.351 ms after (+122.5%), beyond noise (p = 0.0020; 19 and
19 steps); waiting for data 56.8% -> 78.1% of the step; pageable copies 0 -> 40, pinned 40 -> 0;
findings: 1 gone, 2 new, 3 remaining
[1]
$ millrace report --diff mnist_w2pin.sqlite mnist_w0.sqlite --threshold 200 | head -2
same: a step took 6.900 ms before and 15.351 ms after (+122.5%), less than what counts (p = 0.0020;
19 and 19 steps); waiting for data 56.8% -> 78.1% of the step; pageable copies 0 -> 40, pinned 40 ->
$ millrace report --diff mnist_w2.sqlite mnist_w2pin.sqlite --step nosuch
millrace report: step nosuch: no NVTX range has this name; expected one of "load", "copy", "train", "step"
[2]
$ millrace report --diff mnist_w2.sqlite mnist_w2.sqlite -r all --threshold 5 | tail -3
  0.0%         0 ns      32.65 ms     32.65 ms            20           20    1.632 ms   1.632 ms  same     NVTX_RANGE   :train

0 got slower by more than 5%; changes below 0.1% of their category's time are ignored
$ for n in mnist_w0 mnist_w2 mnist_w2pin cupy; do for f in html perfetto svg; do millrace timeline $n.sqlite --format $f -o $n.$f -q | sed 's/, [0-9.]* [KM]iB//' || echo $n $f; test -s $n.$f || echo empty $n $f; done; done
mnist_w0.html: 2,447 events
mnist_w0.perfetto: 2,447 events; ui.perfetto.dev opens it
mnist_w0.svg: 2,447 events
mnist_w2.html: 4,826 events
mnist_w2.perfetto: 4,826 events; ui.perfetto.dev opens it
mnist_w2.svg: 4,630 events
mnist_w2pin.html: 4,866 events
mnist_w2pin.perfetto: 4,866 events; ui.perfetto.dev opens it
mnist_w2pin.svg: 4,599 events
cupy.html: 4,445 events
cupy.perfetto: 4,445 events; ui.perfetto.dev opens it
cupy.svg: 1,609 events
# Without workers the loader takes longer: no kernel and no call tells, its range does.
$ millrace report --diff mnist_w2pin.sqlite mnist_w0.sqlite -r nvtx_sum,cuda_gpu_mem_time_sum --limit 2
Before and after

Change  Change Time  Total Before  Total After  Count Before  Count After  Avg Before  Avg After  Verdict  Category    Name
------  -----------  ------------  -----------  ------------  -----------  ----------  ---------  -------  ----------  -----
 99.5%     154.4 ms      155.1 ms     309.5 ms            21           21    7.387 ms   14.74 ms  slower   NVTX_RANGE  :step
125.0%     148.4 ms      118.7 ms     267.0 ms            21           21    5.650 ms   12.72 ms  slower   NVTX_RANGE  :load

4 got slower by more than 10%; changes below 0.1% of their category's time are ignored
[1]
# A window behind the end.
$ millrace report cupy.sqlite -r nvtx_sum --from 10s | tail -1
no NVTX ranges in this window: the recording ends at 1.43564 s
# A Kineto trace, as torch.profiler writes it; then one that is cut.
$ cp "$TEST_DATA/kineto/train.json" . && gzip -k train.json
$ millrace report train.json.gz -r cuda_gpu_kern_sum -f csv | cut -d, -f2,3,6 | sed 1d
200003,1,200003
10000,1,10000
$ millrace report train.json -r osrt_sum | tail -1
this Kineto trace records no OS runtime calls
$ head -c 2300 train.json >cut.json; millrace report cut.json -r cuda_api_sum -f csv | tr -d '\r' | sed 1d
millrace report: warning: cut.json: only the events before the damage are read: the file is cut after byte 2300: expected the rest of a value
80.198,20250,1,20250,20250,20250,20250,0,cudaMemcpyAsync
19.802,5000,1,5000,5000,5000,5000,0,cudaLaunchKernel
# Two ranks in one file; a recording that is compressed.
$ for p in 1 2; do echo '{"ph":"X","cat":"cuda_runtime","name":"cudaFree","pid":'$p',"tid":'$p',"ts":1,"dur":1}'; done | paste -sd, | sed 's/.*/{"traceEvents":[&]}/' >two.json
$ millrace report two.json
millrace report: two.json: is merged from traces of several ranks: 2 processes make CUDA calls in it (1, 2); merged files do not tell which device work is of which rank: give the files that it was merged from, one of each rank, or their folder
[1]
$ sed 's/"pid":1/"pid":"[TP00] 1"/; s/"pid":2/"pid":"[TP01] 2"/' two.json >merged.json; millrace report merged.json
millrace report: merged.json: is merged from traces of several ranks: 2 processes make CUDA calls in it ([TP00] 1, [TP01] 2); merged files do not tell which device work is of which rank: give the files that it was merged from, one of each rank, or their folder
[1]
$ millrace report "$TEST_DATA/cupy.sqlite.gz" 2>&1 | sed 's#: .*/cupy#: cupy#'
millrace report: cupy.sqlite.gz: is no JSON within: only Kineto traces are read compressed; gunzip a recording first
# The range of waiting for data can be named; one that is not there is an error.
$ for n in '' '--loader load' '--loader copy'; do millrace report mnist_w2.sqlite -r idle_breakdown $n -f csv | grep 'waiting for the loader' | tr -d '\r' | cut -d, -f3,4,9; done
waiting for the loader,3621424.8,19
waiting for the loader,3621424.8,19
waiting for the loader,168821.1,19
$ millrace report mnist_w2.sqlite -r idle_breakdown --loader nowhere
millrace report: range nowhere: the process that is looked at has no NVTX range of this name; leave it out, or see the names in the report nvtx_sum
[2]
# rocpd databases of rocprofv3.
$ for f in inline tracks job; do cp "$TEST_DATA/rocpd/$f.db" .; done
$ millrace analyze inline.db | head -2
data-bound: the GPU waited 52% of the step (5.190 of 10.000 ms) for data: 4.990 ms for the loader,
0.200 ms for copies to the device; most of the idle time is waiting for the loader (50% of the
$ millrace report inline.db -r mem_ops -n 3 -f csv | tr -d '\r' | cut -d, -f2-6
Duration (ns),Bytes (MB),Throughput (MB/s),Of Link (%),Operation
200000,1.048576,5242.88,100,Host-to-Device
10000,,,,memset
20000,4e-06,0.2,,Device-to-Host
$ millrace report inline.db -r osrt_sum | tail -1
this rocpd database records no OS runtime calls
$ millrace report --diff inline.db tracks.db | head -1
same: a step took 10.000 ms before and 10.000 ms after (+0.0%), within noise (p = 1.0000; 7 and 7
$ millrace timeline tracks.db | cut -d, -f1
tracks.html: 113 events
$ mkdir amd && mv job.db amd && millrace analyze amd | head -1
rank 1 holds up the job: the others waited for it in 7 of 7 steps, 1.500 ms in each; cause: waiting
# A report as JSON may lie in the folder that it is about; it is no trace.
$ millrace report amd -r rank_breakdown -o amd/ranks.json; millrace report amd -r rank_breakdown -f csv | tr -d '\r' | cut -d, -f1-4
millrace report: warning: amd/ranks.json: is JSON, but no trace: left out
Rank,PID,Device,Steps
0,4242,0,7
1,4243,1,7
# Whoever reads the output may stop.
$ (trap '' PIPE; millrace report cupy.sqlite -r cuda_gpu_trace; echo "status $?" >status) | head -1 >first; cat status
status 141
# A signal while nsys exports leaves nothing.
$ mkdir tools tmp; printf '#!/bin/sh\n: >"$7"; : >"$7-wal"; sleep 60' >tools/nsys; chmod +x tools/nsys; : >a.nsys-rep
$ (for s in TERM HUP KILL; do TMPDIR=$PWD/tmp PATH=$PWD/tools:$PATH millrace report a.nsys-rep >said & p=$!; while ! ls tmp/*/export.sqlite-wal >said; do sleep 0.05; done; kill -s $s $p; wait $p; i=0; while [ "$(ls tmp)" ] && [ $i -lt 100 ]; do sleep 0.05; i=$((i + 1)); done; ls tmp; done) 2>/dev/null; pgrep -f "$PWD/tools/nsys" || echo none runs
none runs

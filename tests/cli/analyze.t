$ "$MAKE_RECORDING" good good.sqlite && "$MAKE_RECORDING" pageable pageable.sqlite
$ "$MAKE_RECORDING" starved starved.sqlite && "$MAKE_RECORDING" empty empty.sqlite
# The same loop with pageable and with page-locked memory: different, right things.
$ millrace analyze pageable.sqlite
data-bound: the GPU waited 36% of the step (1.693 of 4.751 ms) for data: 0.015 ms for the loader,
1.678 ms for copies to the device; most of the idle time is copy calls (1% of the step); 39 steps
after warming up, from one NVTX range "step" to the next; fix first: pageable_copies (saves 32.9%)

pageable_copies: 39 of 39 copies of more than 64 KiB use pageable memory (5.0 GB/s)
  saves     1.564 ms a step, 32.9% (confidence 0.66)
  why       exposed time 1.678 ms a step x (1 - pageable 5.0 GB/s / page-locked 55.0 GB/s, usual for
            NVIDIA H100 80GB HBM3), for each copy, + 0.039 ms in which their calls held the
            launching thread and the device idled (beyond 5 us a call). Threshold: 1% of the time.
  do        Page-lock the host memory: DataLoader(pin_memory=True) with .to(device,
            non_blocking=True); in CUDA cudaHostAlloc or cudaHostRegister once, before the loop, and
            cudaMemcpyAsync. Do not call .pin_memory() just before the copy: it copies once more in
            the launching thread.
                    Start  Duration     Bytes  Throughput  Operation  Host Memory  Strm  Call              Exposed
            -------------  --------  --------  ----------  ---------  -----------  ----  ---------------  --------
              6.805721 ms  1.678 ms  8.389 MB  5.000 GB/s  H2D        pageable        7  cudaMemcpyAsync  1.678 ms
             11.556442 ms  1.678 ms  8.389 MB  5.000 GB/s  H2D        pageable        7  cudaMemcpyAsync  1.678 ms
             16.307163 ms  1.678 ms  8.389 MB  5.000 GB/s  H2D        pageable        7  cudaMemcpyAsync  1.678 ms
             21.057884 ms  1.678 ms  8.389 MB  5.000 GB/s  H2D        pageable        7  cudaMemcpyAsync  1.678 ms
             25.808605 ms  1.678 ms  8.389 MB  5.000 GB/s  H2D        pageable        7  cudaMemcpyAsync  1.678 ms
            (34 more: --all)
  see       #finding=pageable_copies in the page of millrace timeline

Cannot tell:
  link_rate, because no page-locked copy of 1 MiB or more was recorded in the steps

Fine: allocation_in_loop, blocking_async, context_switches, copy_on_compute_stream, critical_path,
      data_starvation, gpu_gaps, launch_bound, low_use, memset_sync, pinning_in_loop,
      same_direction_copies, small_copies, sync_in_loop, tensor_cores
$ millrace analyze good.sqlite
not data-bound: the GPU waited 0.2% of the step (0.005 of 2.931 ms) for data (0.000 ms for the
loader, 0.005 ms for copies to the device), computed 100% and was idle 0%; 39 steps after warming
up, from one NVTX range "step" to the next

Fine: allocation_in_loop, blocking_async, context_switches, copy_on_compute_stream, critical_path,
      data_starvation, gpu_gaps, launch_bound, link_rate, low_use, memset_sync, pageable_copies,
      pinning_in_loop, same_direction_copies, small_copies, sync_in_loop, tensor_cores
$ millrace analyze good.sqlite --rule tensor_cores
not data-bound: the GPU waited 0.2% of the step (0.005 of 2.931 ms) for data (0.000 ms for the
loader, 0.005 ms for copies to the device), computed 100% and was idle 0%; 39 steps after warming
up, from one NVTX range "step" to the next

Fine:
  tensor_cores: kernels named as matrix products or convolutions, without a mark of tensor cores
    (s16816, hmma, tensorop, ...): 0.000 ms a step. Counted: that x (1 - 1/2), because tensor cores
    are at least twice as fast; needs 5% of kernel time or more. Names are only a hint. Counters of
    the tensor pipe were not recorded (--gpu-metrics). Threshold: 1% of the time.
# Waiting for the loader, and how many workers would do.
$ millrace analyze starved.sqlite --rule data_starvation --cores 64 | head -14
data-bound: the GPU waited 50% of the step (2.924 of 5.849 ms) for data: 2.757 ms for the loader,
0.167 ms for copies to the device; most of the idle time is waiting for the loader (47% of the
step); 39 steps after warming up, from one NVTX range "step" to the next; fix first: data_starvation
(saves 47.1%)

data_starvation: the device waits for data 47.1% of the time
  saves     2.757 ms a step, 47.1% (confidence 0.72)
  why       the device idles 2.760 ms a step, of it 2.757 ms while the launching thread is in the
            range "data". The saving assumes that the program never waits for its loader. Threshold:
            1% of the time.
  do        Load ahead on more threads or processes (in PyTorch DataLoader(num_workers=N,
            prefetch_factor=4, persistent_workers=True)), or make samples cheaper: decode at the
            size that is used, resize and normalise on the device, pack small files. 2 worker
            processes are in the recording: 2 x 5.849 ms / (5.849 - 2.757 ms) = 4 workers would keep
$ millrace analyze starved.sqlite --rule data_starvation --cores 3 --json | grep -o 'has 3 cores only'
has 3 cores only
# Nothing recorded: nothing is made up.
$ millrace analyze empty.sqlite
cannot tell: this recording has no device work: the program used no GPU, or it was recorded without
--trace cuda or outside the capture range
$ millrace analyze empty.sqlite --rule gpu_gaps | tail -2
Cannot tell:
  gpu_gaps, because this recording has no device work
$ millrace analyze pageable.sqlite --step step --json | sed -n '/"config"/,/}/p' | grep -e '"step"' -e '"link_gbps"'
    "step": "step",
    "link_gbps": 0,
$ millrace analyze pageable.sqlite --step step --range data --link-gbps 25 --rule pageable_copies --json | grep -o '25.0 GB/s, as given'
25.0 GB/s, as given
$ millrace analyze pageable.sqlite --json | grep -e '"summary"' -e '"rule": "pageable' -A 2 | cut -c1-80
  "summary": "data-bound: the GPU waited 36% of the step (1.693 of 4.751 ms) for
  "findings": [
    {
      "rule": "pageable_copies",
      "verdict": "found",
      "title": "39 of 39 copies of more than 64 KiB use pageable memory (5.0 GB/
# Names that are not there.
$ millrace analyze good.sqlite --step epok
millrace analyze: step epok: no NVTX range has this name; expected one of "data", "step"
[2]
$ millrace analyze good.sqlite --range epok
millrace analyze: range epok: the process that is looked at has no NVTX range of this name; leave it out, or see the names in the report nvtx_sum
[2]
$ millrace analyze good.sqlite --rule pageable_copys
millrace analyze: --rule pageable_copys: no such rule; did you mean pageable_copies?
[2]
$ millrace analyze none.sqlite
millrace analyze: none.sqlite: cannot be read: No such file or directory
[1]
$ echo no recording > text && millrace analyze text
millrace analyze: text: is not a recording: it is neither a SQLite database nor JSON; `millrace profile` makes recordings, `nsys export --type sqlite` makes them of .nsys-rep files, and torch.profiler's export_chrome_trace() writes JSON
[1]
$ : > nothing && millrace analyze nothing
millrace analyze: nothing: is empty: expected a recording or a trace
[1]
$ millrace analyze
millrace analyze: an argument is missing: millrace analyze FILE... | FOLDER [options]
[2]
# A report of what was traced without being there.
$ millrace report empty.sqlite -r nvtx_sum | tail -1
no NVTX ranges in this recording: they were traced, but none occurred

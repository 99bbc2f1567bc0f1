$ "$RECORDING_MAKE" run.sqlite 1000
1000 records
$ millrace report run.sqlite -n 3 | cut -c1-70
NVTX ranges (nvtx_sum)

 Time  Total Time  Instances       Avg       Med       Min       Max  
-----  ----------  ---------  --------  --------  --------  --------  
52.0%    3.900 ms         10  390.0 us  390.0 us  390.0 us  390.0 us  
48.0%    3.600 ms         30  120.0 us  100.0 us  100.0 us  160.0 us  

OS runtime calls (osrt_sum)

  Time  Total Time  Num Calls       Avg       Med       Min       Max 
------  ----------  ---------  --------  --------  --------  -------- 
100.0%    800.0 us         20  40.00 us  40.00 us  30.00 us  50.00 us 

CUDA API calls (cuda_api_sum)

 Time  Total Time  Num Calls       Avg       Med       Min       Max  
-----  ----------  ---------  --------  --------  --------  --------  
83.2%    1.606 ms        400  4.016 us  4.057 us  3.000 us  4.997 us  
11.6%    224.4 us         10  22.44 us  22.22 us  20.26 us  24.75 us  
 5.2%    100.0 us         50  2.000 us  2.000 us  2.000 us  2.000 us  

Kernels (cuda_gpu_kern_sum)

Time  Total Time  Instances       Avg       Med       Min       Max   
----  ----------  ---------  --------  --------  --------  --------  -
3.1%    213.1 us         12  17.76 us  16.19 us  4.634 us  30.44 us  7
3.1%    212.7 us         10  21.27 us  19.43 us  11.18 us  30.67 us  7
2.7%    182.6 us         11  16.60 us  17.75 us  2.005 us  28.47 us  8

Memory operations by time (cuda_gpu_mem_time_sum)

 Time  Total Time  Count       Avg       Med       Min       Max    St
-----  ----------  -----  --------  --------  --------  --------  ----
84.7%    2.129 ms     53  40.18 us  43.70 us  1.312 us  80.49 us  23.0
14.1%    353.6 us      7  50.51 us  58.25 us  6.073 us  73.34 us  22.6
 1.2%    30.00 us     20  1.500 us  1.500 us  1.500 us  1.500 us      

Memory operations by size (cuda_gpu_mem_size_sum)

   Total  Count       Avg       Med       Min       Max    StdDev  Ope
--------  -----  --------  --------  --------  --------  --------  ---
103.8 MB     53  1.959 MB  2.135 MB  15.61 kB  3.975 MB  1.152 MB  [CU
17.33 MB      7  2.476 MB  2.863 MB  253.7 kB  3.617 MB  1.132 MB  [CU
81.92 kB     20  4.096 kB  4.096 kB  4.096 kB  4.096 kB       0 B  [CU
$ millrace report run.sqlite -r mem_ops --sort duration -n 1 --full-names | sed 1,3d
-----------  --------  --------  ----------  -------  --------------  --------  --------  ---  ----  ------  ---------------  -----------  ------------  ---  -----------  ------------
0.511000 ms  80.49 us  3.975 MB  49.38 GB/s   100.0%  Host-to-Device  Pinned    Device      0    13      60  cudaMemcpyAsync  0.505000 ms      2.000 us  100  -            no

Of Link: of the recording's fastest copy of the same kind that has 1 MiB or more; --link-gbps gives the link's measured rate (millrace bench transfer)
# Names are cut on terminals alone.
$ for f in "run.sqlite -r cuda_gpu_kern_sum" "--diff run.sqlite run.sqlite -r all"; do millrace report $f | grep -c 'void at::native::vectorized_elementwise_kernel<4, functor_0>(int, functor_0)$'; done
1
1
$ millrace report run.sqlite -r cuda_api_sum -f csv | tr -d '\r'
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
83.1984,1606253,400,4015.6,4056.5,3000,4997,593.7,cudaLaunchKernel
11.6219,224376,10,22437.6,22215,20255,24747,1766.3,cudaStreamSynchronize
5.1797,100000,50,2000,2000,2000,2000,0,cudaMemcpyAsync
$ millrace report run.sqlite -r cuda_api_sum -f json
[
 {"Time (%)": 83.1984, "Total Time (ns)": 1606253, "Num Calls": 400, "Avg (ns)": 4015.6, "Med (ns)": 4056.5, "Min (ns)": 3000, "Max (ns)": 4997, "StdDev (ns)": 593.7, "Name": "cudaLaunchKernel"},
 {"Time (%)": 11.6219, "Total Time (ns)": 224376, "Num Calls": 10, "Avg (ns)": 22437.6, "Med (ns)": 22215, "Min (ns)": 20255, "Max (ns)": 24747, "StdDev (ns)": 1766.3, "Name": "cudaStreamSynchronize"},
 {"Time (%)": 5.1797, "Total Time (ns)": 100000, "Num Calls": 50, "Avg (ns)": 2000, "Med (ns)": 2000, "Min (ns)": 2000, "Max (ns)": 2000, "StdDev (ns)": 0, "Name": "cudaMemcpyAsync"}
]
# Several reports as JSON are one document.
$ millrace report run.sqlite -r cuda_api_sum,osrt_sum -n 1 -f json | python3 -c 'import json, sys; print([(r["report"], len(r["rows"])) for r in json.load(sys.stdin)])'
[('cuda_api_sum', 1), ('osrt_sum', 1)]
$ millrace report run.sqlite -r cuda_gpu_kern_sum,osrt_sum -n 2 --from 1ms --to 2ms | cut -c1-40
Kernels (cuda_gpu_kern_sum)

Time  Total Time  Instances       Avg   
----  ----------  ---------  --------  -
7.8%    134.6 us          6  22.43 us  2
5.2%    90.56 us          6  15.09 us  1

OS runtime calls (osrt_sum)

  Time  Total Time  Num Calls       Avg 
------  ----------  ---------  -------- 
100.0%    160.0 us          4  40.00 us 
$ millrace report run.sqlite -r nvtx_sum --json -n 1 | tr -d ' \n' | sed 's/"config".*//; s/"version":"[^"]*",//'
{"command":"report","recording":"run.sqlite","reports":[{"report":"nvtx_sum","note":null,"columns":[{"name":"Time","unit":"percent"},{"name":"TotalTime","unit":"ns"},{"name":"Instances","unit":null},{"name":"Avg","unit":"ns"},{"name":"Med","unit":"ns"},{"name":"Min","unit":"ns"},{"name":"Max","unit":"ns"},{"name":"StdDev","unit":"ns"},{"name":"Style","unit":null},{"name":"Range","unit":null}],"rows":[[52,3900000,10,390000,390000,390000,390000,0,"PushPop",":step"]]}],
$ millrace report run.sqlite -r osrt_sum --range forward
OS runtime calls (osrt_sum): begun inside range forward

  Time  Total Time  Num Calls       Avg       Med       Min       Max    StdDev  Name
------  ----------  ---------  --------  --------  --------  --------  --------  ----
100.0%    800.0 us         20  40.00 us  40.00 us  30.00 us  50.00 us  10.26 us  read
$ millrace report run.sqlite -r osrt_sum --range nowhere
millrace report: range "nowhere": run.sqlite has no NVTX range of this name; the report nvtx_sum lists them
[2]
$ millrace report --diff run.sqlite run.sqlite -r all -n 1
Before and after

Change  Change Time  Total Before  Total After  Count Before  Count After  Avg Before  Avg After  Verdict  Category  Name
------  -----------  ------------  -----------  ------------  -----------  ----------  ---------  -------  --------  ----------------
  0.0%         0 ns      1.606 ms     1.606 ms           400          400    4.016 us   4.016 us  same     CUDA_API  cudaLaunchKernel

0 got slower by more than 10%; changes below 0.1% of their category's time are ignored
$ "$RECORDING_MAKE" longer.sqlite 1500
1500 records
$ millrace report --diff run.sqlite longer.sqlite -r all -n 2 | cut -c1-60; millrace report --diff run.sqlite longer.sqlite -r all >/dev/null
Before and after

Change  Change Time  Total Before  Total After  Count Before
------  -----------  ------------  -----------  ------------
 50.0%     1.950 ms      3.900 ms     5.850 ms            10
 50.0%     1.800 ms      3.600 ms     5.400 ms            30

66 got slower by more than 10%; changes below 0.1% of their 
[1]
$ millrace report --diff run.sqlite longer.sqlite -r all --threshold 60 >/dev/null
[1]
$ millrace report --diff longer.sqlite run.sqlite -r all >/dev/null
# By steps
$ millrace report --diff longer.sqlite run.sqlite --json | tr -d ' \n' | sed 's/,"reports".*//; s/"version":"[^"]*",//'
{"command":"report","before":"longer.sqlite","after":"run.sqlite","summary":"same:asteptook0.399msbeforeand0.399msafter(-0.1%),withinnoise(p=1.0000;14and9steps);waitingfordata6.8%->6.7%ofthestep;pageablecopies0->0,pinned90->60;findings:0gone,0new,0remaining","step":{"change":"same","n_before":14,"n_after":9,"before_ns":399285.71428571426,"after_ns":398888.8888888889,"p":1}
$ millrace report --diff run.sqlite run.sqlite | head -3
same: a step took 0.399 ms before and 0.399 ms after (+0.0%), within noise (p = 1.0000; 9 and 9
steps); waiting for data 6.7% -> 6.7% of the step; findings: 0 gone, 0 new, 0 remaining

# misuse
$ millrace report
millrace report: expected a recording, as `millrace profile` or `nsys export --type sqlite` makes it
[2]
$ millrace report run.sqlite longer.sqlite
millrace report: longer.sqlite: holds neither a rank nor collectives, so nothing shows that it is of the same job as the others: expected recordings of ranks of one job, or one recording (--diff compares two)
[1]
$ millrace report --ranks . -o ranks.txt
millrace report: --ranks: expected no --report, --format or --output; --json and --metrics are its other forms
[2]
$ millrace report --diff run.sqlite
millrace report: --diff: expected two recordings, before and after
[2]
$ millrace report --diff run.sqlite run.sqlite -r osrt_sum
millrace report: report "osrt_sum" can't be compared: expected cuda_gpu_kern_sum, cuda_gpu_mem_time_sum, cuda_gpu_sum, cuda_api_sum, nvtx_sum or all
[2]
$ millrace report --diff run.sqlite run.sqlite --sort duration
millrace report: --sort: with --diff only for --report, which compares row by row
[2]
$ millrace report --diff run.sqlite run.sqlite --range step
millrace report: --diff compares whole recordings: expected no --range, --from or --to
[2]
$ millrace report run.sqlite -r cuda_gpu_kernel_sum
millrace report: --report cuda_gpu_kernel_sum: no such report; did you mean cuda_gpu_kern_sum?
[2]
$ millrace report run.sqlite -r something_else_entirely
millrace report: --report something_else_entirely: no such report; `millrace report --list` lists them
[2]
$ millrace report run.sqlite -r ,
millrace report: --report: expected names of reports; `millrace report --list` lists them
[2]
$ millrace report run.sqlite -r mem_ops --sort duraton
millrace report: Copies and memsets in order (mem_ops): no column "duraton"; did you mean "Duration"; there are: Start, Duration, Bytes, Throughput, Of Link, Operation, SrcMemKd, DstMemKd, Dev, Strm, CorrId, API Call, API Start, API Duration, Tid, Thread Name, Host Blocked
[2]
$ millrace report missing.sqlite
millrace report: missing.sqlite: cannot be read: No such file or directory
[1]
$ echo no recording, but long enough that it could be one >text.sqlite; millrace report text.sqlite
millrace report: text.sqlite: is not a recording: it is neither a SQLite database nor JSON; `millrace profile` makes recordings, `nsys export --type sqlite` makes them of .nsys-rep files, and torch.profiler's export_chrome_trace() writes JSON
[1]
$ head -c 40000 run.sqlite >cut.sqlite; millrace report cut.sqlite 2>&1 | grep -c .
1
$ millrace report --list | grep -c '^[a-z_]*_\(sum\|trace\|ops\)  *[A-Z]'
22

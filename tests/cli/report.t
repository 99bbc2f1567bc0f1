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
2.6%    174.5 us          9  19.39 us  18.53 us  3.039 us  29.60 us  1
2.6%    174.2 us         10  17.42 us  16.94 us  7.048 us  27.43 us  6
2.5%    168.9 us         10  16.89 us  18.42 us  7.328 us  31.97 us  8
2.5%    168.8 us         11  15.35 us  17.93 us  2.328 us  30.28 us  1
2.4%    164.5 us          8  20.56 us  19.95 us  13.81 us  25.25 us  3
2.3%    158.8 us          9  17.65 us  19.50 us  7.644 us  30.94 us  7
2.3%    158.7 us          8  19.83 us  19.13 us  8.924 us  30.84 us  9
2.3%    155.7 us         10  15.57 us  13.60 us  5.538 us  29.33 us  8
2.2%    151.2 us          6  25.21 us  26.11 us  13.45 us  31.92 us  6
2.2%    148.4 us          8  18.55 us  18.80 us  3.451 us  31.92 us  1
2.1%    142.0 us         10  14.20 us  11.48 us  3.363 us  28.04 us  7
2.1%    139.5 us          6  23.26 us  23.89 us  15.67 us  28.39 us  4
2.0%    134.1 us         10  13.41 us  13.66 us  4.327 us  24.65 us  6
2.0%    133.6 us          7  19.08 us  20.26 us  10.60 us  27.36 us  6
2.0%    133.2 us          8  16.65 us  15.82 us  5.903 us  30.16 us  7
2.0%    133.1 us          8  16.64 us  19.81 us  3.432 us  26.71 us  8
2.0%    132.4 us          6  22.07 us  25.89 us  11.00 us  29.06 us  7
1.9%    131.0 us          7  18.71 us  21.13 us  5.165 us  29.28 us  9
1.9%    129.5 us          6  21.58 us  27.82 us  3.612 us  29.47 us  1
1.9%    127.4 us          8  15.93 us  17.24 us  3.927 us  29.69 us  9
1.8%    124.7 us          9  13.85 us  9.685 us  3.637 us  24.20 us  7
1.8%    121.4 us          7  17.34 us  12.15 us  6.836 us  31.46 us  9
1.7%    117.9 us          6  19.65 us  22.31 us  12.99 us  23.01 us  4
1.7%    116.3 us          7  16.61 us  16.37 us  2.883 us  28.55 us  1
1.7%    114.4 us          8  14.30 us  12.58 us  4.367 us  28.74 us  9
1.7%    113.4 us          5  22.68 us  20.96 us  15.22 us  31.17 us  6
1.7%    112.0 us          5  22.40 us  26.94 us  8.701 us  31.28 us  1
1.6%    110.0 us          5  22.00 us  21.16 us  17.72 us  30.35 us  5
1.6%    109.5 us          7  15.64 us  13.69 us  6.909 us  30.59 us  8
1.6%    105.9 us          7  15.13 us  19.96 us  2.245 us  26.26 us  9
1.5%    103.5 us          5  20.69 us  22.51 us  11.28 us  26.29 us  5
1.4%    98.22 us          7  14.03 us  10.59 us  5.769 us  29.90 us  8
1.4%    98.03 us          5  19.61 us  23.49 us  3.651 us  30.64 us  1
1.4%    96.75 us          5  19.35 us  17.11 us  8.118 us  30.05 us  8
1.4%    94.38 us          7  13.48 us  10.41 us  2.221 us  29.45 us  1
1.4%    92.87 us          5  18.57 us  16.56 us  8.258 us  29.01 us  9
1.3%    91.12 us          6  15.19 us  13.36 us  4.922 us  30.25 us  9
1.3%    90.15 us          6  15.03 us  15.09 us  3.961 us  27.21 us  9
1.3%    88.71 us          6  14.79 us  12.54 us  6.449 us  28.88 us  8
1.3%    86.40 us          6  14.40 us  15.69 us  5.486 us  21.41 us  7
1.3%    85.39 us          3  28.46 us  27.71 us  27.70 us  29.98 us  1
1.2%    81.05 us          5  16.21 us  14.34 us  6.806 us  28.53 us  8
1.2%    78.18 us          8  9.772 us  10.11 us  3.686 us  20.41 us  5
1.1%    77.76 us          5  15.55 us  18.29 us  2.150 us  22.87 us  7
1.1%    75.44 us          5  15.09 us  13.73 us  7.727 us  23.54 us  6
1.0%    68.56 us          4  17.14 us  18.55 us  2.112 us  29.34 us  1
0.9%    62.94 us          4  15.73 us  16.11 us  3.274 us  27.43 us  1
0.9%    61.80 us          5  12.36 us  9.925 us  3.205 us  27.48 us  9
0.9%    59.36 us          4  14.84 us  16.16 us  5.611 us  21.42 us  6
0.8%    57.35 us          4  14.34 us  11.35 us  8.094 us  26.56 us  8
0.8%    55.92 us          2  27.96 us  27.96 us  26.61 us  29.31 us  1
0.8%    51.39 us          4  12.85 us  8.360 us  2.728 us  31.94 us  1
0.6%    43.54 us          2  21.77 us  21.77 us  17.96 us  25.58 us  5
0.6%    43.00 us          5  8.600 us  7.003 us  2.763 us  16.57 us  5
0.6%    42.87 us          2  21.43 us  21.43 us  15.59 us  27.28 us  8
0.6%    40.63 us          5  8.126 us  8.830 us  3.390 us  10.01 us  2
0.5%    35.99 us          3  12.00 us  5.609 us  3.481 us  26.91 us  1
0.5%    31.13 us          2  15.56 us  15.56 us  12.68 us  18.45 us  4
0.4%    28.73 us          2  14.36 us  14.36 us  13.47 us  15.26 us  1
0.4%    24.31 us          2  12.15 us  12.15 us  8.801 us  15.51 us  4
0.3%    17.88 us          2  8.939 us  8.939 us  4.195 us  13.68 us  6

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
OS runtime calls (osrt_sum)

  Time  Total Time  Num Calls       Avg       Med       Min       Max    StdDev  Name
------  ----------  ---------  --------  --------  --------  --------  --------  ----
100.0%    800.0 us         20  40.00 us  40.00 us  30.00 us  50.00 us  10.26 us  read
$ millrace report run.sqlite -r osrt_sum --range nowhere
millrace report: range "nowhere": run.sqlite has no NVTX range of this name; the report nvtx_sum lists them
[2]
$ millrace report --diff run.sqlite run.sqlite -n 1
Before and after

Change  Change Time  Total Before  Total After  Count Before  Count After  Avg Before  Avg After  Verdict  Category  Name
------  -----------  ------------  -----------  ------------  -----------  ----------  ---------  -------  --------  ----------------
  0.0%         0 ns      1.606 ms     1.606 ms           400          400    4.016 us   4.016 us  same     CUDA_API  cudaLaunchKernel

0 got slower by more than 10%; changes below 0.1% of their category's time are left alone
$ "$RECORDING_MAKE" longer.sqlite 1500
1500 records
$ millrace report --diff run.sqlite longer.sqlite -n 2 | cut -c1-60; millrace report --diff run.sqlite longer.sqlite >/dev/null
Before and after

Change  Change Time  Total Before  Total After  Count Before
------  -----------  ------------  -----------  ------------
 43.8%     933.1 us      2.129 ms     3.063 ms            53
 49.4%     793.2 us      1.606 ms     2.399 ms           400

64 got slower by more than 10%; changes below 0.1% of their 
[1]
$ millrace report --diff run.sqlite longer.sqlite --threshold 60 >/dev/null
[1]
$ millrace report --diff longer.sqlite run.sqlite >/dev/null
# misuse
$ millrace report
millrace report: want a recording, as `millrace profile` or `nsys export --type sqlite` makes it
[2]
$ millrace report run.sqlite longer.sqlite
millrace report: one recording at a time; --diff compares two, --report names reports
[2]
$ millrace report --diff run.sqlite
millrace report: --diff: want two recordings, before and after
[2]
$ millrace report run.sqlite -r cuda_gpu_kernel_sum
millrace report: --report cuda_gpu_kernel_sum: no such report; did you mean cuda_gpu_kern_sum?
[2]
$ millrace report run.sqlite -r something_else_entirely
millrace report: --report something_else_entirely: no such report; `millrace report --list` lists them
[2]
$ millrace report run.sqlite -r ,
millrace report: --report: want names of reports; `millrace report --list` lists them
[2]
$ millrace report run.sqlite -r mem_ops --sort duraton
millrace report: Copies and memsets in order (mem_ops): no column "duraton"; did you mean "Duration"; there are: Start, Duration, Bytes, Throughput, Of Link, Operation, SrcMemKd, DstMemKd, Dev, Strm, CorrId, API Call, API Start, API Duration, Tid, Thread Name, Host Blocked
[2]
$ millrace report missing.sqlite
millrace report: missing.sqlite: cannot be read: No such file or directory
[1]
$ echo no recording, but long enough that it could be one >text.sqlite; millrace report text.sqlite
millrace report: text.sqlite: is no recording: it is not a SQLite database; `millrace profile` makes recordings, and `nsys export --type sqlite` makes them of .nsys-rep files
[1]
$ head -c 40000 run.sqlite >cut.sqlite; millrace report cut.sqlite 2>&1 | grep -c .
1
$ millrace report --list | grep -c '^[a-z_]*_\(sum\|trace\|ops\)  *[A-Z]'
cuda_api_sum
cuda_api_trace
cuda_gpu_kern_sum
cuda_gpu_mem_size_sum
cuda_gpu_mem_time_sum
cuda_gpu_sum
cuda_gpu_trace
cuda_kern_exec_sum
mem_ops
nvtx_sum
osrt_sum

# A profile without a GPU: a run on the simulated device, its longest copy, page-locked memory instead, the comparison.
$ feed() { millrace profile -q -t cuda,millrace -o $1 -- millrace feed synthetic:n=480,shape=16384 -b 16 -w 1 --device sim:h2d=1,pageable=0.05,step=1ms $2 >/dev/null; }; feed before --no-pin && feed after && ls
after.sqlite
before.sqlite
$ millrace analyze before.sqlite
data-bound: the GPU waited .* (re)
...
pageable_copies: 2[89] of 2[89] copies of more than 64 KiB use pageable memory .* (re)
  saves .* (re)
  why       exposed time .* (re)
            of the simulated device\), for each copy, .* (re)
...
  tensor_cores, because the device is simulated
...
$ millrace analyze before.sqlite | tr '\n' ' ' | grep -c 'the device is simulated: a GPU.s times differ'
1
$ millrace analyze after.sqlite | grep -c '^pageable_copies:'
0
[1]
# The longest copy and its call.
$ for run in before after; do millrace report $run.sqlite -r mem_ops --sort duration -n 1 -f csv | tail -1 | cut -d, -f3,6-10,12; done
1.048576,Host-to-Device,Pageable,Device,0,2,simMemcpyAsync
1.048576,Host-to-Device,Pinned,Device,0,2,simMemcpyAsync
$ millrace report before.sqlite -r mem_ops -n 1 | tail -1 | grep -o 'device 0 is .*'
device 0 is simulated (h2d=1 d2h=55 pageable=0.05 GB/s), not a GPU
$ millrace report before.sqlite -r osrt_sum,nvtx_sum | grep -c 'is simulated'
0
[1]
$ millrace report --diff before.sqlite after.sqlite | tr '\n' ' ' | grep -o '^faster: \|pageable copies 30 -> 0, pinned 0 -> 30'
faster: 
pageable copies 30 -> 0, pinned 0 -> 30
# Pictures: the device's rows are there, and nothing of them a second time as ranges.
$ millrace timeline -o a.svg before.sqlite >/dev/null && grep -o 'simulated (h2d=1[^<]*' a.svg && grep -c 'sim H2D engine' a.svg
simulated (h2d=1 d2h=55 pageable=0.05 GB/s)
0
[1]
$ millrace timeline -o a.html before.sqlite && millrace timeline -o a.pftrace before.sqlite
a.html: .* events, .* (re)
a.pftrace: .* events, .* (re)
# A slow loader, and one that keeps up.
$ millrace profile -q -t cuda,millrace -o slow -- millrace feed synthetic:n=160,shape=64,work=4ms -b 8 -w 1 --device sim:step=1ms >/dev/null; millrace analyze slow.sqlite | grep -e '^[a-z-]*bound:' -e '^data_starvation:'
data-bound: the GPU waited .* (re)
data_starvation: the device waits for data .*% of the time (re)
$ millrace profile -q -t cuda,millrace -o fast -- millrace feed synthetic:n=480,shape=64 -b 8 -w 1 --device sim:step=20ms >/dev/null; millrace analyze fast.sqlite | grep -e '^[a-z -]*bound:' -e '^data_starvation:'
not data-bound: .* (re)
# Without any device: the loader's time against the program's own.
$ millrace profile -q -t cuda,nvtx,millrace -o cpu -- millrace feed synthetic:n=160,shape=64,work=4ms -b 8 -w 1 --device cpu --sink-ms 1 >/dev/null; millrace analyze cpu.sqlite | grep -e '^[a-z -]*bound:' -e '^data_starvation:' -e '^Cannot'
data-bound: no device was used, and the program's thread was .* (re)
data_starvation: the program loads .*% of the time (re)
$ millrace report cpu.sqlite -r step_breakdown,overlap,mem_ops,idle_breakdown >/dev/null

# A CUDA program, with a CUPTI that is not there.
$ millrace profile -t cuda -o a -- fake_app steps 200
millrace profile: warning: 2 device records have lost their times
millrace profile: a.sqlite: 1,.* records of 1 process in .* (re)
$ FAKE_CUPTI_REFUSE=39 millrace profile -t cuda -o b -- fake_app steps 1 2>&1 | grep -c 'no CUDA activity is recorded: another profiler'
1
$ FAKE_CUPTI_DROP=5 millrace profile -t cuda -o c -- fake_app steps 1 2>&1 | grep -c '5 records were dropped'
1
# GPU metrics: sampled, or a line that says why not.
$ millrace profile -q -t cuda --gpu-metrics -o m -- fake_app pause 1000
$ millrace profile -q -t none --gpu-metrics --gpu-metrics-frequency 100 -o n -- fake_app pause 1000
$ FAKE_CUPTI_PM_ENABLE=35 millrace profile -t cuda --gpu-metrics -o o -- fake_app pause 1000 2>&1 | grep -c 'no GPU metrics are recorded: .*cuptiPmSamplingEnable: .*, 35)'
1
$ FAKE_CUPTI_NO_DEVICE=1 millrace profile -t cuda --gpu-metrics -o q -- fake_app pause 50 2>&1 | grep metrics
millrace profile: warning: no GPU metrics are recorded: no process of the program made a context on a GPU
# A killed program's records are there.
$ millrace profile -t cuda -o k -- fake_app kill 3000 2>&1 | sed 's/[0-9.]* s, .*//'
millrace profile: warning: 1 device record has lost its times
millrace profile: k.sqlite: .* records of 1 process in  (re)
millrace profile: the program was killed by signal 9: at most the last 500 ms are missing
# fork, exec, capture range.
$ millrace profile -q -t cuda -o f -- fake_app fork; millrace profile -q -t cuda -o e -- fake_app exec fake_app steps 3
$ millrace profile -q -t cuda -c cudaProfilerApi -o p -- fake_app capture
$ ls -d *
a.sqlite
b.sqlite
c.sqlite
e.sqlite
f.sqlite
k.sqlite
m.sqlite
n.sqlite
o.sqlite
p.sqlite
q.sqlite

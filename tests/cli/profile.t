# Errors come before the program runs, and leave nothing behind.
$ millrace profile -o x
millrace profile: expected "--" before the program: millrace profile [options] -- CMD...
[2]
$ millrace profile -o x sh -- true
millrace profile: sh: expected "--" before the program: millrace profile [options] -- CMD...
[2]
$ millrace profile -f true -o x -- touch ran
millrace profile: true: -f, --stats and other flags take no value: remove it
[2]
$ millrace profile --
millrace profile: a program is missing after "--"
[2]
$ millrace profile -t cuda,gpu -- touch ran
millrace profile: --trace cuda,gpu: gpu: expected a list of cuda, cuda-light, nvtx, osrt, millrace, or none
[2]
$ millrace profile -t cuda,cuda-light -- touch ran
millrace profile: --trace cuda,cuda-light: cuda includes cuda-light: give only one
[2]
$ millrace profile -c nvtx: -- touch ran
millrace profile: --capture-range nvtx:: expected none, cudaProfilerApi or nvtx:NAME
[2]
$ touch there.sqlite; millrace profile -o there -- touch ran
millrace profile: there.sqlite: exists; --force-overwrite replaces it
[1]
$ millrace profile -o nowhere/x -- touch ran
millrace profile: --output nowhere/x.sqlite: folder nowhere does not exist; create it first
[1]
$ for f in x.nsys-rep dir.d/y.qdrep z.ncu-rep; do millrace profile -f -o $f -- touch ran; done
millrace profile: --output x.nsys-rep: .nsys-rep is the format of NVIDIA's own tool, and a recording is SQLite: expected -o x or -o x.sqlite
millrace profile: --output dir.d/y.qdrep: .qdrep is the format of NVIDIA's own tool, and a recording is SQLite: expected -o dir.d/y or -o dir.d/y.sqlite
millrace profile: --output z.ncu-rep: .ncu-rep is the format of NVIDIA's own tool, and a recording is SQLite: expected -o z or -o z.sqlite
[2]
# Names of nsys profile: what they are here, or that there is no such thing.
$ for o in --gpu-metrics-device=all --backtrace=fp -s --show-output=true -e --stop-on-exit=true --export=sqlite --session-new=a; do millrace profile $o -- touch ran; done
millrace profile: --gpu-metrics-device: no such option; --gpu-metrics, which takes no value, samples the GPUs that the program uses
millrace profile: --backtrace: no such option; --sample process-tree samples stacks, by the unwind tables of the code, at even times
millrace profile: --sample: needs a value: none or process-tree
millrace profile: --show-output: no such option; the program's output is always shown
millrace profile: -e: no such option; the program inherits the environment: millrace profile -- env A=1 CMD
millrace profile: --stop-on-exit: no such option; --wait primary or all says when the recording ends
millrace profile: --export: no such option; the recording is SQLite already; --output names it
millrace profile: --session-new: no such option; recordings are not started and stopped from outside; --delay and --duration, or --capture-range, say when to record
[2]
$ millrace report nothing.sqlite --sample=none; millrace report nothing.sqlite --num-workers=4
millrace report: --sample: no such option; --help lists them
millrace report: --num-workers: no such option; --help lists them
[2]
$ MILLRACE_RECORD_MODULE=/nowhere.so millrace profile -o x -- touch ran
millrace profile: MILLRACE_RECORD_MODULE: /nowhere.so: No such file or directory
[1]
$ millrace profile -o x -- ./no-such-program
millrace profile: ./no-such-program: no such program
[127]
$ touch plain; millrace profile -o x -- ./plain
millrace profile: ./plain: Permission denied
[126]
$ ls
plain
there.sqlite
# The program's output, input and exit status are its own; a program without CUDA makes an empty recording.
$ echo in | millrace profile -t cuda,nvtx -o a -- sh -c 'cat; echo err >&2; exit 7'
in
err
millrace profile: warning: nothing was recorded: the program made none of the calls that --trace cuda,nvtx records
millrace profile: a.sqlite: 0 records of 0 processes in .* (re)
[7]
$ millrace profile -q -t cuda -f -o a -- sh -c 'kill -TERM $$'
[143]
$ millrace profile -t none -o b --json -- true | grep -e '"file"' -e exit_status -e '"records"'
millrace profile: warning: nothing was recorded: the program made none of the calls that --trace none records
millrace profile: b.sqlite: 0 records of 0 processes in .* (re)
  "file": "b.sqlite",
  "exit_status": 0,
  "records": 0,
# A window may be shorter than a millisecond: 0 would mean "to the end".
$ millrace profile -q -t none -f -o a --delay 250us --duration 500us -- sh -c 'echo $MILLRACE_RECORD_DELAY_NS $MILLRACE_RECORD_DURATION_NS' 2>/dev/null
250000 500000
# A capture range that never came, and counters that are not sampled, are told of.
$ millrace profile -t cuda,nvtx -f -o a -c nvtx:step -- true 2>&1 | head -1
millrace profile: warning: nothing was recorded: --capture-range nvtx:step never began (an NVTX range of this very name, of the DOMAIN or none), or nothing happened inside
$ millrace profile -t none -f -o a --gpu-metrics -- true 2>&1 | grep metrics
millrace profile: warning: no GPU metrics are recorded: no process of the program made a context on a GPU
# A reader of our messages that goes away takes nothing with it; the program has SIGPIPE as it was.
$ millrace profile -t none -f -o gone --wait all -- sh -c 'yes | head -1; sleep 0.2' 2>&1 >/dev/null | true; ls gone*
gone.sqlite
# What a full disk or a kill left becomes a recording.
$ millrace profile -q -t osrt -f -o a --keep-parts -- sh -c 'sleep 0.2' 2>/dev/null; mv a.sqlite.parts-?????? left
$ millrace profile --merge left -o merged 2>&1 | sed 's/ [0-9]* records/ N records/'
millrace profile: warning: the parts are still in left
millrace profile: merged.sqlite: N records of .* (re)
$ millrace report merged.sqlite -r osrt_sum -f csv | cut -d, -f3,9 | grep -c wait
1
$ rm -r left merged.sqlite gone.sqlite; mkdir left; millrace profile --merge left -o merged; rmdir left; ls merged.sqlite 2>/dev/null || echo none
millrace profile: --merge left: expected a folder of parts, FILE.parts-XXXXXX
none
$ millrace profile --merge left -o merged
millrace profile: --merge left: expected a folder of parts, FILE.parts-XXXXXX
[1]
$ millrace profile --merge left -- true
millrace profile: --merge left: runs no program: remove --
[2]
# What a killed millrace profile left is told of the next time, and becomes a recording, too.
$ sh -c 'millrace profile -q -t osrt -o k -- sh -c "sleep 0.1; kill -9 \$PPID; sleep 0.1"; echo $?' 2>/dev/null; ls | grep -c '^k.sqlite.parts-'
137
1
$ millrace profile -t none -o k -- true 2>&1 | sed 's/parts-[A-Za-z0-9]*/parts-N/g' | grep left; ls | grep -c '^k.sqlite.part-'
millrace profile: warning: k.sqlite.parts-N: is left of a millrace profile that was killed: millrace profile --merge k.sqlite.parts-N -o FILE makes a recording of it; then remove it
0
[1]
$ millrace profile -q --merge k.sqlite.parts-?????? -o merged 2>/dev/null; millrace report merged.sqlite -r osrt_sum -f csv | cut -d, -f3,9 | grep -c wait; rm -r k.* merged.sqlite
1
# Names are counted up when none is given; no parts stay.
$ millrace profile -q -t none -- true; millrace profile -q -t none -- true; ls
a.sqlite
b.sqlite
plain
report1.sqlite
report2.sqlite
there.sqlite
# What the user injects himself stays.
$ CUDA_INJECTION64_PATH=/mine.so millrace profile -t cuda -f -o a -- sh -c 'echo $MILLRACE_RECORD_NEXT_CUDA; basename $CUDA_INJECTION64_PATH' 2>/dev/null
/mine.so
libmillrace-record.so
$ NVTX_INJECTION64_PATH=/mine.so millrace profile -t nvtx -f -o a -- sh -c 'basename $NVTX_INJECTION64_PATH' 2>&1 | grep -v nothing.was | head -2
millrace profile: warning: NVTX_INJECTION64_PATH=/mine.so is set: it is not loaded, because NVTX supports one tool; to keep it, remove nvtx from --trace
libmillrace-record.so
$ NVTX_INJECTION64_PATH=/mine.so millrace profile -q -t cuda -f -o a -- sh -c 'echo $NVTX_INJECTION64_PATH' 2>/dev/null
/mine.so
# A range of NVTX opens the capture though its ranges are not recorded.
$ millrace profile -q -t cuda -c nvtx:step -f -o a -- sh -c 'basename "$NVTX_INJECTION64_PATH"' 2>/dev/null
libmillrace-record.so
# A recorder that the dynamic linker cannot be told of is not preloaded, and the program's output stays its own.
$ mkdir "a b"; cp "$MILLRACE_RECORD_MODULE" "a b/c.so"; MILLRACE_RECORD_MODULE="a b/c.so" millrace profile -t osrt -f -o a -- sh -c 'echo out; ls "a b"' 2>&1 | grep -v -e nothing.was -e 0.records | sed 's,[^ ]*/a b/,,' | sort
c.so
millrace profile: warning: operating system calls and stacks are not recorded: LD_PRELOAD cannot hold c.so, which has a space or a colon; set MILLRACE_RECORD_MODULE=FILE to a copy elsewhere
out
$ rm -r "a b"
# A process that stays is told of, and not waited for; or is waited for.
$ millrace profile -t none -f -o a -- sh -c 'sleep 30 >/dev/null 2>&1 &' 2>&1 | grep still
millrace profile: warning: 1 process of the program still runs: what happens from now on is not recorded
$ millrace profile -q -t none -f -o a --wait all -- sh -c '(sleep 2; touch late) >/dev/null 2>&1 &'; ls late
late
# What is sent to us alone is for the program.
$ millrace profile -q -t none -f -o a -- sh -c 'trap "exit 9" TERM; kill -TERM $PPID; while :; do sleep 0.1; done'
[9]

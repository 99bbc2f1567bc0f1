# Locks memory.
# Copies: what is printed, the JSON's members, a chart that is XML.
$ millrace bench transfer -d sim:h2d=2,d2h=2,latency=2us --max 64KiB --repeats 3 --plot t.svg
sim; limit 2.00 GB/s to the device, 2.00 GB/s back
medians of 3; .* (re)
...
Host to device, GB/s
  size +pageable  pageable, blocking  pinned  pinned, blocking  pinned, batch of 64  pinned, graph of 64  pinned, kernel  registered  huge pages (re)
  64 B( +[0-9.]+)+ (re)
...
Both ways at once \(total\), GB/s (re)
...
Within the device, GB/s
...
One copy takes latency \+ bytes / bandwidth, fitted; .* (re)
...
  h2d +pinned +([0-9.]+ [mu]?s +[0-9.]+ GB/s +|0 ns +[0-9.]+ GB/s +)?[0-9.]+ GB/s +2.00 GB/s +[0-9.]+% .* (re)
...
  left out: peer: there is one device: give another by --peer sim; write_combined: device sim: it has no allocator of its own for host memory
Host to device: [0-9.]+ GB/s from page-locked memory, [0-9]+% of the limit; Device to host: .* (re)
$ xml() { if command -v xmllint >/dev/null; then xmllint --noout "$1"; else python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$1"; fi; }; xml t.svg && grep -c '<polyline' t.svg
24
$ millrace bench transfer -d sim --max 1KiB --repeats 2 --directions d2h,d2d --json --plot t.html > t.json; for k in device model link series notes; do grep -q "^  \"$k\":" t.json || echo "missing: $k"; done; for k in direction memory way clock limit_gb_per_s points; do grep -q "^      \"$k\":" t.json || echo "missing: $k"; done; for k in bytes copies gb_per_s variation of_limit; do grep -q "^          \"$k\":" t.json || echo "missing: $k"; done; grep -c '"direction": "h2d"' t.json; head -n 1 t.html; grep -c '<th>variation, at most</th>\|<td class="text">Within the device</td>' t.html
0
<!DOCTYPE html>
5
# A second device, and the slower one's limit.
$ millrace bench transfer -d sim --peer sim:peer=2,h2d=2 --max 1KiB --repeats 2 --directions peer --plot p.svg
sim; limit 55.00 GB/s to the device, 55.00 GB/s back; peer sim, reached directly
...
From the peer device, GB/s
  size +device (re)
  64 B +[0-9.]+ (re)
...
  peer +device .* 2.00 GB/s .* (re)
...
$ millrace bench transfer -d sim --peer sim --max 256 --repeats 1 --directions peer --json | grep -e '"peer' -e direction
  "peer": "sim",
  "peer_direct": true,
      "direction": "peer",
$ millrace bench transfer -d sim --peer cpu --max 256 --directions peer
millrace bench transfer: mr_device_reach: there are no copies between devices sim and cpu: copy to host memory, and on from there
[1]
$ millrace bench transfer -d cpu
millrace bench transfer: --device cpu: its memory is the host's, so nothing is copied; give --device cuda or sim
[2]
$ millrace bench transfer -d sim --plot t.png
millrace bench transfer: --plot t.png: expected a name that ends in .svg or .html
[2]
$ millrace bench transfer -d sim --directions h2d,up
millrace bench transfer: --directions h2d,up: expected a list of h2d, d2h, both, d2d, peer
[2]
$ millrace bench transfer -d sim --min 1MiB --max 1KiB
millrace bench transfer: --min is larger than --max
[2]
$ millrace bench transfer -d sim:mem=64KiB --max 1MiB 2>&1 | cut -c 1-60
millrace bench transfer: sim: out of device memory: asked fo
# Streams: the ring overlaps what one stream does not.
$ millrace bench streams -d sim:h2d=2,d2h=2,tflops=0.2 --size 256 -n 12 --repeats 3 --plot s.svg
sim: 12 times copy a 256 x 256 f32 matrix, multiply, copy back; medians of 3
alone: copies to the device [0-9.]+ ms, matrix products [0-9.]+ ms \(0.[012] Tflop/s\), copies back [0-9.]+ ms (re)
lower bound: [0-9.]+ ms, the (matrix products|copies to the device|copies back) (re)
...
  one stream +[0-9.]+ +1.00x +[0-9.]+% +[0-9.]+x .* 0.000 +0.000 +768 KiB (re)
  a stream for each input +[0-9.]+ +[0-9.]+x .* +6.25 MiB (re)
  ring of 3 buffers +[0-9.]+ +[0-9.]+x .* +1.75 MiB (re)
...
  This device is simulated: products take their time and compute nothing.
The ring is [0-9.]+x as fast as one stream and takes .* for [0-9.]+ [num]s from page-locked and for [0-9.]+ [num]s from pageable memory. (re)
$ python3 -c 'import sys, xml.dom.minidom as m; m.parse("s.svg")' && grep -c 'lower bound' s.svg
1
$ millrace bench streams -d sim:tflops=0.2 --size 128 -n 5 --repeats 2 --json > s.json; for k in device model alone_ms lower_bound_ms ways checked config; do grep -q "^  \"$k\":" s.json || echo "missing: $k"; done; for k in way wall_ms variation of_bound busy_ms copies_under_compute_ms both_copies_ms device_bytes; do grep -q "^      \"$k\":" s.json || echo "missing: $k"; done; grep '"way"' s.json
      "way": "one",
      "way": "each",
      "way": "ring",
      "way": "same_direction",
      "way": "both_directions",
      "way": "copy_product",
      "way": "pageable_copy_product",
      "way": "products",
      "way": "small_products",
      "way": "pinned",
      "way": "pageable",
# Load only adds to the time of 16 copies: two in one direction take turns whatever the streams, and so do all in one
# stream. By the simulated device's own clock copies there and back overlap in streams, never in one. The call of a
# pageable copy lasts as long as moving its bytes.
$ millrace bench streams -d sim:h2d=0.2,d2h=0.2,pageable=0.02,tflops=0.2 --size 256 -n 8 --repeats 3 --json -q | python3 -c 'import json, sys; w = {x["way"]: x for x in json.load(sys.stdin)["ways"]}; size = 256 * 256 * 4; ms = 1e3 * size / 0.2e9; print(w["same_direction"].keys() >= {"variation"}, "busy_ms" not in w["pinned"], w["same_direction"]["two_streams_ms"] >= 16 * ms, w["both_directions"]["one_stream_ms"] >= 16 * ms, w["one"]["both_copies_ms"] == 0, w["each"]["both_copies_ms"] > 0, w["ring"]["both_copies_ms"] > 0, w["pageable"]["call_us"] >= 1e6 * size / 0.02e9 > w["pinned"]["call_us"])'
True True True True True True True True
$ millrace bench streams -d cpu
millrace bench streams: --device cpu: its memory is the host's, so nothing is copied; give --device cuda or sim
[2]
$ millrace bench streams -d sim -n 0
millrace bench streams: --n 0: expected .* (re)
[2]
# Workers: every cell of the grid, also on the CPU, where nothing is copied.
$ millrace bench workers -d sim:h2d=2 -w 1,2 --time 20ms --samples 1024 -b 64 --plot w.svg
sim: batches of 64, 100 us of the device's work on each; medians of 3
limit of the link: 488,281 samples/s
limit of the work: 640,000 samples/s
1024 floats a sample, in memory
  workers  memory, host               transfer us/batch  step us/batch  samples/s  variation  of limit (re)
        1  page-locked, host goes on +[0-9.]+ +[0-9.]+ .* [0-9.]+% (re)
        1  page-locked, host waits .* (re)
        1  pageable, host goes on .* (re)
        1  pageable, host waits .* (re)
        2  page-locked, host goes on .* (re)
...
2 ms of latency a sample
...
$ python3 -c 'import sys, xml.dom.minidom as m; m.parse("w.svg")' && grep -c '<polyline' w.svg
8
$ millrace bench workers -d cpu -w 2 --time 10ms --samples 512 --json > w.json; for k in device model link_limit_samples_per_s step_limit_samples_per_s cells config; do grep -q "^  \"$k\":" w.json || echo "missing: $k"; done; for k in set workers pinned host_waits step_us samples_per_s variation; do grep -q "^      \"$k\":" w.json || echo "missing: $k"; done; grep '"blocking"' w.json; grep -c '"set"' w.json
8
$ millrace bench workers -d cpu -w 1,,2
millrace bench workers: --workers-list 1,,2: expected at most 16 numbers of 0..512 with commas between
[2]
# Workers of one data set: two rows a number, and a last line that names a number of the list.
$ millrace bench workers synthetic:n=1000,shape=16,delay=1ms -t 'scale(2)' -d sim -w 1,2 --time 20ms -b 8 --step 0 --repeats 2 --plot n.svg
synthetic: 1000 samples of x f32[16]; device sim: batches of 8, 0 ns of the device's work on each; medians of 2

  workers  reads +samples/s +lowest +highest +ideal +speed-up  bottleneck (re)
        1  many in flight +[0-9,]+ +[0-9,]+ +[0-9,]+ +1.00x +1.00x  [a-z]+ (re)
        1  one per worker +[0-9,]+ +[0-9,]+ +[0-9,]+ +1.00x +1.00x  [a-z]+ (re)
        1  many, pageable +[0-9,]+ +[0-9,]+ +[0-9,]+ +1.00x +1.00x  [a-z]+ (re)
        2  many in flight +[0-9,]+ +[0-9,]+ +[0-9,]+ +2.00x +[0-9.]+x  [a-z]+ (re)
        2  one per worker +[0-9,]+ +[0-9,]+ +[0-9,]+ +2.00x +[0-9.]+x  [a-z]+ (re)
        2  many, pageable +[0-9,]+ +[0-9,]+ +[0-9,]+ +2.00x +[0-9.]+x  [a-z]+ (re)

fewest workers within 5% of the best rate: (1|2, the most tried: more may be faster); bottleneck: [a-z]+: .*; page-locked (memory: [0-9.]+x the rate of pageable memory|and pageable memory: no difference beyond the spread) (re)
$ grep -c '<polyline' n.svg
7
$ millrace bench workers synthetic:n=100,shape=4 -d cpu -w 2,1 --time 5ms -b 8 --repeats 3 --json > n.json; python3 -c 'import json; d = json.load(open("n.json")); c = d["cells"]; m = [x["samples_per_s"] for x in c if x["reads"] == "many"]; print(len(c), all(x["lowest_samples_per_s"] <= x["samples_per_s"] <= x["highest_samples_per_s"] for x in c), [x["ideal_speed_up"] for x in c], d["enough_workers"] == (1 if m[1] >= 0.95 * max(m) else 2), d["most_tried"] == (d["enough_workers"] == 2), d["bottleneck"] != "")'
4 True [2, 2, 1, 1] True True True
$ millrace bench workers -t 'scale(2)'
millrace bench workers: --transform scale\(2\): expected a DATASET, too (re)
[2]
# 0 workers load while the consumer waits; latency and processor time of any data set.
$ millrace bench workers synthetic:n=100,shape=4 --delay 1ms..2ms --work 100us -d cpu -w 0,1 --time 5ms -b 4 --step 0 --repeats 1 --json > z.json; python3 -c 'import json; d = json.load(open("z.json")); c = d["cells"]; print([(x["workers"], x["reads"], x["pinned"]) for x in c], all(x["samples_per_s"] < 1000 for x in c if x["workers"] == 0), "pinned_speed_up" in d, d["config"]["delay"], d["config"]["work_ns"])'
[(0, 'one_per_worker', True), (1, 'many', True), (1, 'one_per_worker', True)] True False 1ms..2ms 100000
$ millrace bench workers synthetic:n=100,shape=4 -d cpu --delay 2ms..1ms
millrace bench workers: --delay 2ms..1ms: expected a time such as 2ms, or two such as 18ms..600ms, the smaller one first
[2]
$ millrace bench workers --work 1ms
millrace bench workers: --work: expected a DATASET, too
[2]
$ millrace bench workers -d cpu -w 0,1 --time 5ms --samples 512 --plot g.html | tail -n 1 && grep -c 'class="verdict"\|class="learn"\|<code>millrace bench workers -d cpu' g.html
Nothing is copied on cpu, so page-locked and pageable memory are the same here; --device sim simulates a link. A host that goes on instead of waiting: .* the rate \(in memory, best number of workers each\)\. (re)
3
# Disk: tables of what is measured, a last line, a chart; the user's own file; a data set's samples.
$ millrace bench disk --bytes 1MiB --max 32KiB --max-depth 4 --time 2ms --plot d.html > d.txt; head -n 1 d.txt; grep -c '^ *[0-9.]* KiB ' d.txt; tail -n 1 d.txt; grep -o 'docs/learn/[a-z_]*.md' d.html | head -n 1
8.00 MiB of a temporary file in ., read for 0.002 s each; medians of 3
(16|32) (re)
(Random|Sequential) reads, (O_DIRECT|cold page cache): [0-9,.]+ a second of 4.00 KiB one at a time, [0-9,.]+ with [14] in flight( \(1 would do: no difference beyond the spread\))?; at most [0-9.]+ [MG]B/s (re)
docs/learn/queue_depth.md
$ head -c 300000 /dev/zero > zeros; millrace bench disk --path zeros --max 4KiB --max-depth 1 --mode cold --storage pread --time 2ms --json | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["file"], d["file_bytes"], [(c["mode"], c["order"], c["read_bytes"], c["depth"], c["storage"]) for c in d["cells"]], all(c["reads_per_s"] > 0 and c["p50_ms"] <= c["p99_ms"] for c in d["cells"]))'
zeros 300000 [('cold', 'random', 4096, 1, 'pread'), ('cold', 'sequential', 4096, 1, 'pread')] True
$ millrace bench disk raw:zeros,shape=1000,dtype=u8 --bytes 1MiB --max 4KiB --max-depth 2 --mode cold --order random --storage pread --time 2ms --json | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["sample_bytes"], d["most_samples_per_s"] == max(c["reads_per_s"] for c in d["cells"] if c["read_bytes"] == 1000))'
1000 True
# Fewer reads in flight are enough where the rate differs by no more than it varies, or by 5%.
$ millrace bench disk --bytes 1MiB --max 4KiB --max-depth 4 --mode cold --order random --time 10ms --json | python3 -c 'import json, sys; d = json.load(sys.stdin); c = d["cells"]; best = max(c, key=lambda x: x["reads_per_s"]); same = [x for x in c if best["reads_per_s"] / x["reads_per_s"] - 1 <= max(0.05, x["variation"], best["variation"]) and x["storage"] == best["storage"]]; print(d["config"]["repeats"], sorted({x["depth"] for x in c}), d["enough_depth"] == min(x["depth"] for x in same))'
3 [1, 4] True
$ millrace bench disk synthetic:n=10
millrace bench disk: synthetic: 10 samples of x f32[1024]: has no local files, so no disk limits it
[1]
$ millrace bench disk --path zeros --max 8MiB
millrace bench disk: zeros has 300000 bytes, less than one read of 2.00 MiB: lower --max
[2]
$ millrace bench workers nodir/ -d cpu
millrace bench workers: nodir/: No such file or directory .* (re)
[1]
# Host memory: locking where the system allows it, and the peak of two copies at once.
$ millrace bench hostmem -d sim --bytes 8MiB --plot h.svg
sim: 8.00 MiB of host memory, ready for use; medians of 3
...
  not pinned +[0-9.]+ +[0-9.]+% +- +1.00x .* (re)
  pinned: pool .* (re)
...
  pinned: driver left out: device sim: it has no allocator of its own for host memory
...
limits: as much memory as was asked for \(8.00 MiB\), in the time .* (re)
page-locked by the pool: [0-9.]+x the time of ordinary memory; by a copy: [0-9.]+x .* (re)
$ python3 -c 'import sys, xml.dom.minidom as m; m.parse("h.svg")' && grep -c 'asked for' h.svg
1
$ millrace bench hostmem -d cpu --bytes 1MiB --json > h.json; for k in device model ways config; do grep -q "^  \"$k\":" h.json || echo "missing: $k"; done; for k in way s_per_gib variation locked_bytes left_out; do grep -q "^      \"$k\":" h.json || echo "missing: $k"; done
# Memory is the process's own: what it asked for, and twice that while one copy is made of another.
# (A sanitizer's shadow memory counts, too.)
$ if [ "$SANITIZED" ]; then echo 4; else millrace bench hostmem -d cpu --bytes 16MiB --json | awk -v b=16777216 '/"way"/ {way = $2} /"(peak|resident)_bytes"/ {x = $2 / b; want = /peak/ && way ~ /copy/ ? 2 : 1; if (x < want - 0.1 || x > want + 0.1) print way, $0} /"resident_bytes"/ {n++} END {print n}'; fi
[345] (re)
$ millrace bench hostmem --bytes 12
millrace bench hostmem: --bytes 12: expected .* (re)
[2]
# The loader beside memcpy: each case with its own number of workers.
$ millrace bench loader --cases memory_f32,delay_2ms,dataset --dataset synthetic:n=1000,shape=1024 --samples 512 --rounds 1 --time 20ms --workers 3 | awk '/^ *(case|memory_f32|delay_2ms|dataset) / {print $1, $2}'
case workers
memory_f32 3
delay_2ms 3
dataset 3
# Its page has the limits beside the rates, and a start is a sentence.
$ millrace bench loader --cases memory_f32,billion --samples 512 --rounds 2 --time 10ms -q --plot ld.html | tail -n 1; grep -o 'docs/learn/[a-z_]*.md' ld.html | head -n 1; grep -c '<rect [^>]*fill="#' ld.html; grep -c '<li>10^9 samples, shuffled: state saved in\|class="verdict"><b>The loader reaches\|<code>millrace bench loader' ld.html
The loader reaches [0-9]+% of the best gather for memory_f32.* (re)
docs/learn/loader.md
4
3
$ millrace bench loader --cases delay_2ms --rounds 1 --time 20ms --json | grep '"workers": 2,'
      "workers": 2,
# Optimizers on J = 100 x^2 + y^2: above 2/200 plain descent diverges, which is said, and just below it arrives.
$ millrace bench surface --optimizers 'sgd:lr=0.0101|sgd:lr=0.0099' -n 3000 --plot p.html | awk '/^  sgd/ {print $1, /diverges: lr is above its limit, 0.01$/, / [0-9,]+ steps$/}'
sgd:lr=0.0101 1 0
sgd:lr=0.0099 0 1
# The limits with momentum, classical and Nesterov's, by either name: 0.019 and 0.00679.
$ m=momentum=0.9; millrace bench surface --optimizers "momentum:lr=0.0189|momentum:lr=0.0191|sgd:lr=0.0189,$m|sgd:lr=0.0191,$m|nesterov:lr=0.0067|nesterov:lr=0.0069|sgd:lr=0.0067,$m,nesterov|sgd:lr=0.0069,$m,nesterov" -n 20000 --plot p.html --json > p.json; grep -c '"arrived"' p.json; grep '"diverged"' p.json | tr -d ' ,\n'; echo
4
"diverged":false"diverged":true"diverged":false"diverged":true"diverged":false"diverged":true"diverged":false"diverged":true
# Momentum needs fewer steps than plain descent, and Nesterov's fewer crossings than the classical. An adaptive step is as long in x as in y.
$ millrace bench surface --json > p.json; sed -n 's/.*"optimizer": "\([a-z]*\):.*/\1/p; s/.*"\(arrived\|crossings\)": \([0-9]*\),*$/\1 \2/p' p.json | awk '!/ / {o = $1; next} {v[o, $1] = $2} END {print (v["momentum", "arrived"] < v["sgd", "arrived"]), (v["nesterov", "arrived"] < v["momentum", "arrived"]), (v["nesterov", "crossings"] < v["momentum", "crossings"])}'; awk '/"optimizer"/ {o = $2} /"first_dx"/ {x = $2} /"first_dy"/ && o ~ /ada|rms/ && o !~ /radam/ {n++; if ($2 + 0 < x * 0.999 || $2 + 0 > x * 1.001) print o, x, $2} END {print n}' p.json
1 1 1
6
$ mv p.json q.json; millrace bench surface --json > p.json; cmp p.json q.json; for t in svg figure ellipse polyline; do grep -o "<$t" surface.html | wc -l; done
14
13
78
26
$ python3 -c 'import re, xml.dom.minidom as m; [m.parseString(s) for s in re.findall("<svg.*?</svg>", open("surface.html").read(), re.S)]'
$ millrace bench surface --optimizers 'adam|nosuch'
millrace bench surface: optimizer "nosuch": no such optimizer; there are .* (re)
[2]
$ millrace bench surface --tolerance 0
millrace bench surface: --tolerance 0: expected .* (re)
[2]
# The time of a step is given once.
$ millrace bench story synthetic:n=10,shape=4 -d sim:step=2ms --step 3ms
millrace bench story: --step and --device sim:step=2ms: give the time of a step once
[2]
$ millrace bench story synthetic:n=1000,shape=4 -d sim:step=20ms --time 50ms -b 8 --repeats 1 --json | awk '/"step_ms"/ {n++; ok += $2 >= 20} END {print n, ok}'
3 3
$ millrace bench workers -d sim:step=2ms --samples 100
millrace bench workers: --device sim:step=2ms: bench workers has --step for the time of a step
[2]
# Steps in turn. The last line calls a difference one only if it is more than the rates vary, and than 5%.
$ millrace bench story synthetic:n=1000,shape=4,delay=1ms -d sim:step=1ms --time 50ms -b 8 --repeats 2 --plot v.html --json > v.json; python3 -c 'import html, json; d = json.load(open("v.json")); s = [x for x in d["steps"] if x["measured"]]; page = html.unescape(open("v.html").read()); differ = lambda x, y: abs(y["samples_per_s"] / x["samples_per_s"] - 1) > max(0.05, x["variation"], y["variation"]); said = page.split("class=\"verdict\"")[1].split("</p>")[0]; print(len(s), d["config"]["repeats"], ("no difference beyond" in said) == (not differ(s[0], s[2])), [("\"" + y["step"] + "\"" in said.split("no gain by")[-1] and "no gain by" in said) == (not differ(x, y) or y["samples_per_s"] < x["samples_per_s"]) for x, y in zip(s, s[1:])])'
3 2 True [True, True]
# A time's help says what a bare number is.
$ for c in 'bench workers' 'bench story' feed; do millrace $c --help | tr '\n' ' ' | grep -oE -- '--(time|step) TIME[^-]*bare number is [a-z]*' | sed 's/ TIME.* / /'; done
--step ms
--time s
--time s
--time s
# An interrupt ends the wait for a batch that takes minutes.
$ timeout -k 60 -s INT 1 millrace bench workers synthetic:n=1e6,shape=16 --delay 300s -b 1024 --workers-list 2 -q; echo $?
millrace bench workers: interrupted
124
# Layout: each way is measured or says why not; a net only where one computes.
$ millrace bench layout -d cpu --shape 8x8x3 -b 16 --model 'conv:4,p=1,relu,avgpool:4,flatten,linear:10' --net-shape 8x8x3 --time 20ms --repeats 1 --plot l.html --json > l.json; python3 -c 'import json; d = json.load(open("l.json")); w = d["ways"]; m = [x for x in w if "samples_per_s" in x]; print([x["way"] for x in m], all(x["samples_per_s"] > 0 for x in m))'; grep -c '<rect' l.html | awk '{print ($1 > 0)}'
['NHWC as it is', 'to NCHW', 'to f32', 'to f32, NCHW', 'stored NHWC', 'stored NCHW', 'NHWC, to NCHW'] True
1
$ millrace bench layout -d sim --shape 8x8x3 -b 16 --time 20ms --repeats 1 | grep -c 'Training a net'
0
[1]
$ millrace bench layout -d cpu --shape 8x8x3 -b 16 -m none --time 20ms --repeats 1 | grep -E 'to NCHW|left out'
  to NCHW +host .* - (re)
  to f32 on the device; to f32, NCHW on the device left out: cpu has no kernels of its own
  stored NHWC; stored NCHW; NHWC, to NCHW left out: --model none
$ millrace bench layout --shape 8x8
millrace bench layout: --shape: expected height, width and channels, as 224x224x3
[2]
# Passing through the minimum at the last step is not arriving.
$ millrace bench surface --optimizers 'lion:lr=0.05|adam:lr=0.3' --plot p.html | awk '/^  (lion|adam)/ {print $1, /not in 2,000 steps/}'
lion:lr=0.05 1
adam:lr=0.3 0
# An interrupted grid shows what was measured until then, fails, and leaves an earlier page alone.
$ millrace bench hostmem -d cpu --bytes 1MiB --repeats 1 --plot p.html -q >/dev/null; cp p.html before.html; timeout -s INT 3 millrace bench layout -w 1 -m none --shape 4x4x3 --time 100ms --repeats 1000 --plot p.html -q > out; echo $?; grep -c 'NHWC as it is' out; sed -E 's/[0-9]+/N/' out | tail -n 1; cmp p.html before.html && echo "same page"
124
1
Interrupted: N of 9000 measurements were made. p.html was not written.
same page
$ millrace synth digits digits --n 500 -q >/dev/null; timeout -s INT 3 millrace bench optimizers digits --models softmax --optimizers 'sgd:lr=0.1' -n 100000000 -d cpu --plot p.html -q > out; echo $?; tail -n 1 out; cmp p.html before.html && echo "same page"
124
Interrupted: p.html was not written.
same page
$ timeout -s INT 2 millrace bench layout -w 1 -m none --shape 4x4x3 --time 100ms --repeats 1000 --json -q | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["interrupted"], sum("samples_per_s" in w for w in d["ways"]) > 0)'
True True
$ millrace bench loader --cases mnist,foo; millrace bench loader --cases dataset
millrace bench loader: --cases: "foo" is no case; expected memory_f32, mnist, delay_2ms, first_batch, first_large, billion, dataset
millrace bench loader: --cases: dataset needs --dataset
[2]
# Devices in one table: each net on each; one that is not here is left out, a wrong name is an error.
$ millrace bench devices -d 'cpu|cpu' -m 'softmax|mlp:8s' --shape 6x6x1 -b 16 --time 10ms --repeats 1 --json -q --plot dev.html | python3 -c 'import json, sys; r = json.load(sys.stdin)["rows"]; print(len(r), all(x["samples_per_s"] > 0 for x in r), [x["speed_up"] for x in r][0::4], sorted({x["does"] for x in r}))'; grep -c '<svg' dev.html
8 True [1, 1] ['inference', 'training']
2
$ millrace bench devices -d 'cpu|nosuch' -m softmax; millrace bench devices --shape 5x5x2
millrace bench devices: device "nosuch": not known to this build; known are auto, cuda, cpu, sim
millrace bench devices: --shape: expected height, width and 1 or 3 channels, as 28x28x1
[2]
# With one device there is nothing to compare, which is said; each page leads to its own subject.
$ millrace bench devices -d cpu -m softmax --shape 6x6x1 -b 16 --time 10ms --repeats 1 -q --plot one.html | tail -n 1
Nothing to compare: only cpu was measured
$ millrace bench processes --python none --starts 1 --resident 4KiB --max 4KiB --time 1ms --items 16 --chunks 1 --repeats 1 -q --plot pr.html >/dev/null; grep -o 'docs/learn/[a-z_]*.md' one.html pr.html | sort -u
one.html:docs/learn/devices.md
pr.html:docs/learn/processes.md
# Labels below eight groups of bars, of 57 pixels each, stay apart: a letter takes 0.58 of the font's size.
$ millrace bench devices -d 'cpu|cpu' -m 'mlp:100s|mlp:200s|mlp:300s|mlp:400s' --shape 6x6x1 -b 16 --time 10ms --repeats 1 -q --plot bars.svg >/dev/null; python3 -c 'import re; t = [(x[1] or 12, x[2]) for x in re.findall("<text [^>]*middle\"( font-size=\"([0-9]+)\")? ?>(mlp:[^<]*|cpu)<", open("bars.svg").read())]; print(len(t), all(0.58 * float(size) * len(text) < 57 for size, text in t))'
32 True

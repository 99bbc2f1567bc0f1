# Limits of the model that need no simulation: sums, a store, one rank.
$ millrace plan --step 40ms --params 25000000 --ranks 16 --sweep --per-node 8 --link node=400GB/s,net=50GB/s,alpha=10us/25us --no-overlap
ranks  step, ms  data, ms  spread, ms  sums, ms  efficiency  samples/s  from the store
    1    40.000     0.000       0.000     0.000      100.0%
    2    40.260     0.000       0.000     0.260       99.4%
    4    40.385     0.000       0.000     0.385       99.0%
    8    40.447     0.000       0.000     0.447       98.9%
   16    43.785     0.000       0.000     3.785       91.4%

With 16 ranks a step takes 43.8 ms, with one 40.0 ms: an efficiency of 91.4%. Waiting for data takes
0.0% of it, sums that are not hidden 8.6%. Most is lost in sums. --wire bf16, larger batches, or
links of a higher bandwidth help.
$ millrace plan --step 40ms --make 25ms --ranks 512 --batch-bytes 25e6 --batch-size 256 --samples 1000000000 --requests 0.01 --store 100GB/s
ranks  step, ms  data, ms  spread, ms  sums, ms  efficiency  samples/s  from the store        epoch  cost
  512   128.000    88.000       0.000     0.000       31.2%  1,024,000        100 GB/s  16 min 16 s   351

With 512 ranks a step takes 128 ms, with one 40.0 ms: an efficiency of 31.2%. Waiting for data takes
68.8% of it, sums that are not hidden 0.0%. The store is the limit: it gives 100 GB/s, and the ranks
could use 320 GB/s. A cache on the nodes, smaller samples or a faster store help. An epoch takes 16
min 16 s and costs 347.22 for the ranks and 4.00 for requests.
# From what one machine measured: the loader's rate, and the steps' time. The last batch is short. (On a busy machine plan may warn.)
$ millrace synth digits d --n 2000 -q >/dev/null; millrace feed d -b 300 -q --json >feed.json; millrace train d -b 300 -e 1 --model mlp:9r,10s -d cpu -q --json >train.json; millrace plan feed.json train.json --ranks 8 --json >plan.json 2>/dev/null; python3 -c "import json; f, t, p = (json.load(open(n + '.json')) for n in ('feed', 'train', 'plan')); m = p['model']; print(m['samples'], m['grad_bytes'] == 4 * t['parameters'], abs(m['make_ms'] * (f['warm_samples_per_s'] or f['samples_per_s']) / 300e3 - 1) < 1e-9, abs(m['step_ms'] * t['steps'] / t['times']['steps'] / 1000 - 1) < 1e-9, p['rows'][0]['ranks'])"
300 True True True 8
# Links from bench comm: of one machine, and of two with 4 ranks each, whose smallest sum contains the former's. --link goes first.
$ sums() { echo "{\"command\": \"bench comm\", \"world\": $1, \"local_world\": $2, \"sums\": [{\"order\": \"tree\", \"way\": \"graph\", \"bytes\": 4096, \"time_us\": 99, \"bus_bytes_per_s\": 1e9}, {\"order\": \"fast\", \"way\": \"launched\", \"bytes\": 4096, \"time_us\": $3, \"bus_bytes_per_s\": 1e8}, {\"order\": \"fast\", \"way\": \"launched\", \"bytes\": $5, \"time_us\": 900, \"bus_bytes_per_s\": $4}]}"; }; sums 4 4 10 400e9 67108864 >node.json; sums 8 4 35 50e9 67108864 >net.json; sums 2 null 5 1e9 65536 >short.json; sums 1 1 5 1e9 1e8 >alone.json; for o in '' '--link net=25GB/s,alpha=1us/2us'; do millrace plan --step 40ms net.json node.json $o --json | python3 -c "import json, sys; m = json.load(sys.stdin)['model']; print(*(m[n] for n in ('node_bytes_per_s', 'net_bytes_per_s', 'node_alpha_us', 'net_alpha_us')))"; done
400000000000 50000000000 10 25
400000000000 25000000000 1 2
$ millrace plan --step 4ms short.json; millrace plan --step 4ms alone.json
millrace plan: short.json: the largest sum has 65536 bytes, which says nothing of the bandwidth: measure with --max-bytes of 1 MiB or more
millrace plan: alone.json: no sums: expected the whole object of a run that was not interrupted
[1]
$ millrace train d -b 100 -e 1 --model mlp:9r,10s -d cpu -q --json >other.json; millrace plan feed.json other.json
millrace plan: other.json: a rank's batch has 100 samples, in the other file 300: measure both with the same --batch-size
[1]
$ millrace plan --step 1ms --sweep -n 4 --plot p.svg >/dev/null && grep -ci 'efficiency' p.svg; echo mine >q.svg; millrace plan --step 1ms --plot q.svg
3
millrace plan: q.svg: exists and is not a chart of millrace: name another file; --force replaces it
[1]
$ millrace plan; millrace plan --step 4ms --store 5GB; millrace plan --step 4ms --link net=5; millrace plan --step 4ms --link speed=5GB/s; millrace plan --step 4ms --link alpha=x
millrace plan: expected what feed or train printed with --json, or --step and --make
millrace plan: --store: 5GB: expected a rate, such as 45GB/s
millrace plan: --link net: 5: expected a rate, such as 45GB/s
millrace plan: --link speed=5GB/s: expected node=RATE, net=RATE, alpha=TIME/TIME
millrace plan: --link alpha: expected one or two times, such as 8us/25us
[2]
$ millrace plan --samples 5 --step 4ms; millrace plan nothing.json; echo '{"command": "feed"}' >x.json; millrace plan x.json; echo '{"command": "train", "parameters": 1e999}' >x.json; millrace plan x.json; echo '[' >x.json; millrace plan x.json
millrace plan: --samples: expected --batch-size, or feed's or train's file, too
millrace plan: nothing.json: No such file or directory
millrace plan: x.json: no batches: expected the whole object of a run that was not interrupted
millrace plan: x.json: no steps: expected the whole object of a run that was not interrupted
millrace plan: x.json: expected what millrace feed, train or bench comm prints with --json
[1]

# What tuning changes never shows in the batches; what it found can be kept.
$ millrace synth digits d --n 4000 -q >/dev/null; d() { millrace feed d -s -e 4 --digest -q "$@" | sed -n 's/^digest: //p'; }; [ "$(d)" = "$(d --tune)" ] && [ "$(d)" = "$(d --tune --max-workers 9 --max-prefetch 3)" ] && echo "with --tune: same"
with --tune: same
$ millrace tune d -s --time 0.3 --save o -q | sed -E 's/[0-9][0-9.]*/N/g' | tail -n 1; sed -E 's/[0-9]+/N/g' o; millrace feed d -q $(cat o) | grep -c '^bottleneck'
options: --workers N --prefetch N
--workers N --prefetch N
1
$ millrace tune d -w 2 -p 3 --time 0.3 -q | tail -n 1; millrace tune d -w 2 --time 0.3 --json -q | grep -c '"reason": '
options: --workers 2 --prefetch 3
1
$ echo mine >o; millrace tune d --time 0.1 --save o; echo $?; cat o
millrace tune: o: exists and is not a file of tuned options of millrace: name another file; --force replaces it
1
mine
$ millrace feed d --save o2; echo $?; ls o2
millrace feed: --save o2: there is nothing to save without --tune
2
ls: cannot access 'o2': No such file or directory
[2]
$ millrace feed d --tune --no-in-order; millrace feed d -w 4 --max-workers 2
millrace feed: tune: expected batches in order, not in_order = 0
millrace feed: max_workers 2: expected at least workers, 4
[2]
# Limits, and what the loader finds by itself.
$ millrace feed d -q --max-cpus 1 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["config"]["resolved"]["workers"])'; millrace tune d -s --time 0.3 --json -q | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["command"], sorted(d["tuning"]))'
1
tune ['done', 'first_prefetch', 'first_samples_per_s', 'first_workers', 'gpu_decode', 'prefetch', 'queue_depth', 'read_ahead', 'reason', 'samples_per_s', 'seconds', 'tried', 'workers']
# What is read ahead is bounded by the options, however many workers may begin.
$ millrace tune d -s -w 1 --max-workers 256 --read-ahead 512 --queue-depth 64 --time 0.3 --json -q | python3 -c 'import json, sys; t = json.load(sys.stdin)["tuning"]; print(t["read_ahead"] <= 512, t["queue_depth"] <= 64)'; for n in 1 256; do millrace feed d -s --tune -w 1 --max-workers $n --batches 9 --json -q | python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"]["pageable_bytes"] < 64 << 20)'; done
True True
True
True
# The batches are the same with each option that only makes loading faster or slower, on and off.
$ chain='cast(f32),scale(1/255),random_crop(24,24),hflip(0.5)'; d() { millrace feed d -s -e 2 -b 48 -t "$chain" --seed 5 --digest -q -d sim "$@" | sed -n 's/^digest: //p'; }; want=$(d -w 1 -p 1); n=0; for options in '--tune' '--tune --max-cpus 1 --max-workers 3 --max-prefetch 5' '--tune --max-memory 8MiB' '--tune --queue-depth 1 --read-ahead 1' '-w 7 -p 9' '-w 3 --queue-depth 2 --read-ahead 5' '--storage pread' '--direct' '--cache host' '--no-pin' '--blocking' '--streams 3' '--shared' '--sandbox' '--device-transforms on' '--device-transforms on --tune' '--on-host' '--device cpu' '--device cpu --tune' '--max-memory 4MiB' '--sink-ms 1 --batches 1000'; do n=$((n + 1)); [ "$(d $options)" = "$want" ] || echo "other batches: $options"; done; echo "$n compared, $(echo $want | wc -c)"
21 compared, 33

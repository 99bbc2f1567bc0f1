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

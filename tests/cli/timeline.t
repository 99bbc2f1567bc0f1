# What a recording is drawn as; a name that is taken is kept.
$ $MAKE_RECORDING good a.sqlite && millrace timeline a.sqlite
a.html: .* events, .* KiB (re)
$ millrace timeline a.sqlite
millrace timeline: a.html: exists; --force replaces it
[1]
$ millrace timeline --force --title 'A & B <x>' a.sqlite > /dev/null && grep -c '<title>A &amp; B &lt;x&gt; ' a.html
1
$ millrace timeline -o a.svg a.sqlite && head -c 4 a.svg
a.svg: .* events, .* KiB (re)
<svg
$ millrace timeline -o a.pftrace a.sqlite
a.pftrace: .* events, .* KiB; ui.perfetto.dev opens it (re)
$ millrace timeline --format perfetto --json -f a.sqlite | grep -v -e version -e bytes -e events | sed '/"config"/,/}/d'
{
  "command": "timeline",
  "path": "a.pftrace",
  "format": "perfetto",
}
$ millrace timeline --json --from 10ms --to 20ms -o part.html a.sqlite | grep -e '"format"' -e '"config"' -e '"to_ns"'
  "format": "html",
  "config": {
    "format": "auto",
    "to_ns": 20000000,
# Two recordings in one picture.
$ $MAKE_RECORDING good b.sqlite && millrace timeline --diff a.sqlite b.sqlite
b.html: .* events, .* KiB (re)
$ grep -c 'A: .*B: ' b.html; millrace timeline --diff a.sqlite b.sqlite -o ab.svg -q; grep -c 'A: a.sqlite, B: b.sqlite' ab.svg; rm b.html b.sqlite ab.svg
1
ab.svg: .* events, .* KiB (re)
2
$ millrace timeline --diff a.sqlite
millrace timeline: --diff: expected two recordings, before and after
[2]
$ millrace timeline a.sqlite a.sqlite
millrace timeline: a.html: exists; --force replaces it
[1]
$ millrace timeline --diff a.sqlite missing.sqlite
millrace timeline: missing.sqlite: cannot be read: No such file or directory
[1]
# A page asks no network for anything.
$ grep -c -e 'https\?://' -e '@import' -e ' src=' a.html
0
[1]
# What cannot be drawn.
$ millrace timeline -o a.folded a.sqlite 2>&1 | head -1; rm a.folded
millrace timeline: warning: a.folded: is empty: no stacks were sampled (millrace profile --sample, --python-sampling), or none within --from and --to
$ millrace timeline -o a.txt a.sqlite
millrace timeline: -o a.txt: expected a name that ends in .html, .svg, .pftrace or .folded, or --format
[2]
$ millrace timeline -o a.png a.sqlite
millrace timeline: -o a.png: PNG is no longer written: expected .svg or .html
[2]
$ millrace timeline -f -o a.sqlite --format html a.sqlite
millrace timeline: a.sqlite: this run reads it: write to another file
[1]
$ mkdir folder; millrace timeline --format html -o folder a.sqlite
millrace timeline: folder: exists and is not a regular file
[1]
$ millrace timeline -o no/where.html a.sqlite
millrace timeline: no/where.html: cannot be made: No such file or directory
[1]
$ millrace timeline -o late.html --from 100s a.sqlite
millrace timeline: a.sqlite: from 100.000000 s: the recording ends at .* s (re)
[2]
$ echo no > plain; millrace timeline plain 2>&1 | cut -d: -f1-4
millrace timeline: plain: is not a recording: it is neither a SQLite database nor JSON; `millrace profile` makes recordings, `nsys export --type sqlite` makes them of .nsys-rep files, and torch.profiler's export_chrome_trace() writes JSON
$ millrace timeline missing.sqlite
millrace timeline: missing.sqlite: cannot be read: No such file or directory
[1]
$ ls
a.html
a.pftrace
a.sqlite
a.svg
folder
part.html
plain
# A recording of nothing.
$ $MAKE_RECORDING empty e.sqlite && millrace timeline e.sqlite
e.html: 0 events, .* KiB (re)

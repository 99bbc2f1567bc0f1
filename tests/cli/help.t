# Help goes to standard output when it was asked for, to standard error when nothing was.
$ millrace --help 2>/dev/null
millrace keeps a GPU fed with training data, and shows where the time goes when it starves.
usage: millrace COMMAND [arguments] [options]
...
  inspect +Show what is in a data set (re)
...
Exit status: 0 done, 1 failed, 2 misused, 4 a rank failed or hung. With --json a failure also prints
an object; its member error says what failed.
$ millrace >/dev/null
millrace keeps .* (re)
...
[2]
$ millrace --version
millrace [0-9]+\.[0-9]+\.[0-9]+ (re)
$ millrace help synth | head -n 1
usage: millrace synth digits|npy|raw|photos|words|tfrecord PATH [options]
$ millrace synth --help | head -n 1
usage: millrace synth digits|npy|raw|photos|words|tfrecord PATH [options]
# --help wins over missing arguments, and over those that follow.
$ millrace inspect -h x | head -n 1
usage: millrace inspect DATASET [options]
# No line of help is wider than 100 columns.
$ for c in $(millrace --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do millrace $c --help; done | awk 'length > 100 && !/^  millrace /'
# Who takes a DATASET says what one is, of which formats.
$ millrace inspect --formats | grep -o '^[a-z]*:' | tr -d : > formats; for c in feed train predict inspect pack 'bench story' 'bench batch-size' 'bench optimizers'; do millrace $c --help > text; grep -q '^DATASET is ' text || echo "$c: does not say"; while read -r f; do grep -qw "$f" text || echo "$c: $f"; done < formats; done; grep -c . formats; millrace synth --help | grep -c 'DATASET is'; rm formats text
14
0
# Misuse: exit status 2, the message on standard error.
$ millrace insepct >/dev/null
millrace: insepct: no such command; did you mean inspect?
[2]
$ millrace qqq
millrace: qqq: no such command; millrace --help lists them
[2]
# Commands of two words.
$ millrace bench
millrace: bench: expected one of its commands
Commands:
...
  millrace bench loader .* (re)
...
[2]
$ millrace bench qqq 2>&1 | head -n 1
millrace: bench qqq: no such command
$ millrace bench loadr
millrace: bench loadr: no such command; did you mean bench loader?
[2]
$ millrace bench --help | head -n 3; millrace help bench | head -n 1
usage: millrace bench loader|transfer|streams|layout|devices|workers|disk|hostmem|processes|comm|surface|optimizers|batch-size|story|split [options]
Commands:
usage: millrace bench loader|transfer|streams|layout|devices|workers|disk|hostmem|processes|comm|surface|optimizers|batch-size|story|split [options]
# With --json a failure is an object on standard output, and a message on standard error as ever.
$ millrace inspect nowhere.npy --json 2>/dev/null; echo "$?"; millrace feed --json --wrokers 2 synthetic:n=4,shape=2 2>/dev/null
{
  "command": "inspect",
  "version": .* (re)
  "error": "nowhere.npy.*", (re)
  "exit_status": 1
}
1
{
  "command": "feed",
  "version": .* (re)
  "error": "--wrokers: no such option; did you mean --workers\?", (re)
  "exit_status": 2
}
[2]
$ millrace qqq --json 2>&1 >/dev/null; millrace qqq --json 2>/dev/null | grep -c '"error": "qqq: no such command'
millrace: qqq: no such command; millrace --help lists them
1
$ millrace help bench loader | head -n 1
usage: millrace bench loader .* (re)
$ millrace --verson
millrace: --verson: no such option; millrace --help lists the commands
[2]
$ millrace synth digits x --noize 1
millrace synth: --noize: no such option; did you mean --noise?
[2]
$ millrace synth digits x --size 7
millrace synth: --size 7: expected 8..1024 pixels
[2]
$ millrace synth digits x --size
millrace synth: --size: needs a value: 8..1024 pixels
[2]
$ millrace synth digits
millrace synth: an argument is missing: millrace synth digits|npy|raw|photos|words|tfrecord PATH [options]
[2]
$ millrace synth digits a b
millrace synth: b: one argument too many: millrace synth digits|npy|raw|photos|words|tfrecord PATH [options]
[2]
$ ls
# A full disk is a failure.
$ millrace --help >/dev/full
millrace: standard output: No space left on device
[1]

# One page a command and one for all, without anything a linter would say.
$ mkdir pages && millrace man pages
$ ls pages | grep -v -e '-feed' -e '-bench'
millrace-analyze.1
millrace-doctor.1
millrace-inspect.1
millrace-pack.1
millrace-plan.1
millrace-predict.1
millrace-profile.1
millrace-report.1
millrace-synth.1
millrace-timeline.1
millrace-train.1
millrace-tune.1
millrace.1
$ if command -v mandoc >/dev/null; then mandoc -T lint -W warning pages/*.1; fi
$ grep -c 'SH ' pages/millrace-synth.1
8
$ for c in $(millrace --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do test -s pages/millrace-$c.1 || echo $c; done
$ sed -n 1p pages/millrace-synth.1
.TH MILLRACE\\-SYNTH 1 "1970-01-01" "millrace [0-9.]*" "User Commands" (re)
# Every long option of the help is in the page.
$ millrace synth --help | grep -o -e '--[a-z-]*' | sort -u | while read -r o; do sed 's/\\-/-/g' pages/millrace-synth.1 | grep -q -e "$o" || echo "$o"; done
$ millrace man nowhere
millrace man: nowhere/millrace.1: cannot be made: No such file or directory
[1]

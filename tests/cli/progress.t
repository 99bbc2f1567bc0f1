# A bar on a terminal only, with rate and time left, and gone at the end; no colours under NO_COLOR; none at all for dumb
# terminals, --no-progress and --quiet.
$ command -v script >/dev/null || echo 'SKIP: no script(1) to make a terminal with'
$ printf '%s\n' 'if command -v script >/dev/null; then TERM=$1 script -qec "$2" /dev/null; else cat /dev/null; fi' >on-terminal
$ test -s on-terminal
$ sh on-terminal xterm 'millrace synth digits a --n 40000' >out; if command -v script >/dev/null; then tr '\r' '\n' <out | grep -q 'drawing digits \[.*=.*\] .*% .* images, .*/s, .* left' || cat -v out; fi
$ tr '\r' '\n' <out | tail -n 1 | grep -c 'drawing'
0
[1]
$ NO_COLOR=1 sh on-terminal xterm 'millrace synth digits b --n 40000' >out; grep -c '\[36m' out
0
[1]
$ for o in '--no-progress' '--quiet' '--json'; do sh on-terminal xterm "millrace synth digits c$o --n 20000 $o" >out; case $o in --json) ;; *) grep drawing out ;; esac; done
$ sh on-terminal dumb 'millrace synth digits d --n 20000' >out; grep drawing out
[1]
# Not on what is no terminal.
$ TERM=xterm millrace synth digits e --n 20000 2>&1 | grep -c drawing
0
[1]

#!/bin/sh
# Takes a fault out of a freshly started openNDS; $1 is its process id.
#
# Each of its threads, before it runs a program, saves the process's SIGCHLD
# handler and sets the default one, and afterwards puts the saved one back. When
# two threads overlap, the handler comes back too early, takes the exit status
# of the other thread's program, and that thread sees a failure. The periodic
# check then says that routing is broken and openNDS exits: with a hundred
# clients logging in, in one run out of ten.
#
# A thread that saved the default handler during such an overlap and puts it
# back while no other runs a program has put it back for good: from then on
# nothing can take a status. So overlaps are arranged here until that happens,
# between two threads whose failures do no harm, and before the periodic check
# comes round again.
pid=$1 mac=02:67:77:00:00:01
caught() {
	mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status")
	[ $((0x$mask >> 16 & 1)) -eq 1 ] # bit 16 is SIGCHLD
}
settle() { # until no thread has run a program for a while
	for look in 1 2 3; do
		while [ -n "$(cat /proc/"$pid"/task/*/children)" ]; do
			kill -0 "$pid" || exit 1
			sleep 0.01
		done
		sleep 0.01
	done
}
settle # the first periodic check
try=0
while caught && [ $try -lt 15 ]; do
	# The web server asks the routing table about each request; these come from
	# the router itself, which it turns away. Meanwhile the control thread adds
	# a firewall rule and removes it.
	(while :; do wget -q -t 1 -T 2 -O /dev/null 'http://{{.Gateway}}:2050/'; done) &
	requests=$!
	ndsctl block $mac >/dev/null
	ndsctl unblock $mac >/dev/null
	kill $requests
	wait
	settle
	try=$((try + 1))
done
# Not settled is no error: a version without the fault stays as it is.
exit 0

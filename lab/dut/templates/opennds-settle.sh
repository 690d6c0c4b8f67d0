#!/bin/sh
# Takes a fault out of a freshly started openNDS; $1 is its process id.
#
# Each of its threads, before it runs a program, saves the process's SIGCHLD
# handler and sets the default one, and afterwards puts the saved one back. When
# two threads overlap, the handler comes back too early, takes the exit status
# of the other thread's program, and that thread sees a failure: the portal's
# page is refused, or the periodic check says that routing is broken and openNDS
# exits. On a slow CPU programs run longer, and threads overlap more often.
#
# A thread that saved the default handler during such an overlap and puts it
# back last has put it back for good: from then on nothing can take a status.
# Here the web server's thread saves first and the control thread second, and
# they put back in the same order. Programs that come first on openNDS's PATH
# hold them until then, and hold other threads' programs meanwhile, whose
# statuses the handler could take.
pid=$1 dir={{.Dir}} mac=02:67:77:00:00:01
gates=$dir/gates
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
put() { # a program of this name for openNDS, at once
	chmod 755 "$dir/$1.new"
	mv -f "$dir/$1.new" "$dir/bin/$1"
}
reached() { # until a gate's program has started, or the request has ended without
	until [ -e "$gates/$1.in" ] || [ -e "$gates/$1.out" ]; do sleep 0.01; done
}
overlap() {
	mkdir "$gates"
	: >"$gates/web"
	: >"$gates/control"
	: >"$gates/others"
	# The web server asks the routing table about each request; this one comes
	# from the router itself, which it turns away.
	(wget -q -t 1 -T 20 -O /dev/null 'http://{{.Gateway}}:2050/'; : >"$gates/web.out") &
	web=$!
	reached web
	(ndsctl block $mac >/dev/null; : >"$gates/control.out") &
	control=$!
	reached control
	rm "$gates/web"
	wait $web
	rm "$gates/control"
	wait $control
	rm -r "$gates"
	ndsctl unblock $mac >/dev/null
}
trap 'rm -rf "$gates"' EXIT # which opens them
ip=$(command -v ip) iptables=$(command -v iptables)
cat >"$dir/ip.new" <<GATE
#!/bin/sh
case "\$*" in "route get {{.Gateway}}") gate=web ;; *) gate=others ;; esac
[ ! -d $gates ] || : >$gates/\$gate.in
while [ -e $gates/\$gate ]; do sleep 0.01; done
exec $ip "\$@"
GATE
cat >"$dir/iptables.new" <<GATE
#!/bin/sh
case "\$*" in *$mac*) ;; *) exec $iptables "\$@" ;; esac
[ ! -d $gates ] || : >$gates/control.in # the rule itself is not needed
while [ -e $gates/control ]; do sleep 0.01; done
GATE
put ip
put iptables
settle # the first periodic check
try=0
while caught && [ $try -lt 15 ]; do
	overlap
	settle
	try=$((try + 1))
done
# Scripts that run now may remember the gates' places.
ln -s "$ip" "$dir/bin/ip.new" && mv -f "$dir/bin/ip.new" "$dir/bin/ip"
ln -s "$iptables" "$dir/bin/iptables.new" && mv -f "$dir/bin/iptables.new" "$dir/bin/iptables"
# Not settled is no error: a version without the fault stays as it is.
echo "$try overlaps"
exit 0

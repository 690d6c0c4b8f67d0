#!/bin/sh
# Takes a fault out of a freshly started openNDS; $1 is its process id.
#
# The fault: before one of its threads runs a program, it saves the process's
# SIGCHLD handler and sets the default one. Afterwards it restores the saved one.
# When two threads do so at the same time, the first one restores the handler
# while the second one's program still runs. The handler then takes the exit
# status of that program, and the second thread sees a failure: the portal's page
# is refused, or the periodic check says that routing is broken and openNDS
# exits. On a slow CPU programs run longer, so this happens more often.
#
# The cure: a second thread that begins while a first one runs its program saves
# the default handler. If it also ends last, it restores the default handler, and
# nobody restores the other one any more: from then on no handler takes a status.
# This script makes that happen once. The web server's thread begins first and
# the control thread second, and they end in the same order. Programs ("gates")
# that come first on openNDS's PATH keep each thread waiting until its turn. They
# also keep programs of other threads waiting meanwhile, because the handler
# could take the statuses of these.
pid=$1 dir={{.Dir}} mac=02:67:77:00:00:01
gates=$dir/gates
caught() {
	mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status")
	[ $((0x$mask >> 16 & 1)) -eq 1 ] # bit 16 is SIGCHLD
}
settle() { # waits until no thread has run a program for a while
	for look in 1 2 3; do
		while [ -n "$(cat /proc/"$pid"/task/*/children)" ]; do
			kill -0 "$pid" || exit 1
			sleep 0.01
		done
		sleep 0.01
	done
}
put() { # makes $1.new the program $1 of openNDS's PATH, in one step
	chmod 755 "$dir/$1.new"
	mv -f "$dir/$1.new" "$dir/bin/$1"
}
reached() { # waits until gate $1 has started, or until its request has ended without it
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
trap 'rm -rf "$gates"' EXIT # a gate that is removed is open
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
settle # until the first periodic check has ended
try=0
while caught && [ $try -lt 15 ]; do
	overlap
	settle
	try=$((try + 1))
done
# Shells that run now may remember the paths of the gates, so these stay, as links to the real programs.
ln -s "$ip" "$dir/bin/ip.new" && mv -f "$dir/bin/ip.new" "$dir/bin/ip"
ln -s "$iptables" "$dir/bin/iptables.new" && mv -f "$dir/bin/iptables.new" "$dir/bin/iptables"
# It is no error if the handler is still set: a version without the fault keeps its handler.
echo "$try overlaps"
exit 0

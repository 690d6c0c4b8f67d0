#!/bin/bash
# unshare --kill-child does not end a daemon that has changed its user.
#
# Expected: with `unshare --pid --fork --kill-child PROGRAM` "SIGKILL is sent to the forked child when unshare terminates"
# (its manual), so that whoever ends unshare, by SIGKILL too, ends PROGRAM and with it all of its namespace. Tests of
# gateways and lab scripts start daemons so, to leave nothing behind.
#
# What happens: dnsmasq, started so with --user=nobody, goes on without a parent. With --user=root --group=root it ends. A shell
# between both, which stays and is process 1 of the namespace, ends, and dnsmasq with it.
#
# Why: unshare asks the kernel for the signal (PR_SET_PDEATHSIG) in the child. The kernel forgets the wish when a process
# changes its credentials (prctl(2)); daemons do that when they have their sockets: dnsmasq, systemd-networkd.
#
# Seen with: util-linux 2.38.1-5+deb12u3, dnsmasq-base 2.90-4~deb12u2 (Debian 12, amd64), Linux 6.18:
#   dnsmasq as root                        ends
#   dnsmasq as nobody                      goes on
#   dnsmasq as nobody, behind a shell      ends
# Needs: root, Debian 12 with lists of packages (apt-get update). Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

if [ "${1-}" != inside ]; then
	self=$(realpath "$0")
	tmp=$(mktemp -d)
	child=
	trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || true; rm -rf "$tmp"' EXIT
	trap 'exit 2' HUP INT TERM
	cd "$tmp"
	timeout 60 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		download util-linux=2.38.1-5+deb12u3 dnsmasq-base=2.90-4~deb12u2 libdbus-1-3 libidn2-0 \
		libnetfilter-conntrack3 libnettle8 libhogweed6 libgmp10 libnftables1 libunistring2 libnfnetlink0 libmnl0 libnftnl11 \
		libjansson4 libxtables12 >log 2>&1 & child=$!
	wait $child || { cat log >&2; exit 2; }
	child=
	for deb in *.deb; do dpkg-deb -x "$deb" x; done
	rc=0
	# The outer shell stays as process 1, so that all ends with it.
	timeout -k 2 60 unshare --net --pid --fork --kill-child --mount-proc bash "$self" inside & child=$!
	wait $child || rc=$?
	child=
	[ $rc -le 1 ] || rc=2
	exit $rc
fi

set -E
trap 'exit 2' ERR
ip link set lo up
export LD_LIBRARY_PATH=$PWD/x/usr/lib/x86_64-linux-gnu:$PWD/x/lib/x86_64-linux-gnu
unshare=$PWD/x/usr/bin/unshare dnsmasq=$PWD/x/usr/sbin/dnsmasq

# fate starts dnsmasq as a user behind unshare, and kills unshare. It prints whether dnsmasq goes on.
fate() { # LABEL USER GROUP PORT BEFORE…
	label=$1 user=$2 group=$3 port=$4
	shift 4
	"$unshare" --pid --fork --kill-child --mount-proc "$@" "$dnsmasq" --keep-in-foreground --conf-file=/dev/null \
		--pid-file= --no-resolv --port="$port" --listen-address=127.0.0.1 --bind-interfaces --user="$user" --group="$group" 2>>log &
	parent=$!
	pid=
	for _ in $(seq 200); do # until it has its user
		pid=$(pgrep -f "dnsmasq --keep-in-foreground .*--port=$port" -u "$user" | while read -r p; do
			[ "$(readlink "/proc/$p/exe")" != "$dnsmasq" ] || echo "$p"
		done || true)
		[ -z "$pid" ] || ! ss -Hlun "sport = :$port" | grep -q . || break
		sleep 0.05
	done
	[ -n "$pid" ]
	kill -KILL $parent
	wait $parent 2>/dev/null || true
	state='goes on'
	for _ in $(seq 40); do # an end takes some milliseconds
		[ -e "/proc/$pid" ] || { state=ends; break; }
		sleep 0.05
	done
	printf '%-38s %s\n' "$label" "$state"
}

uname -r
"$unshare" --version
"$dnsmasq" --version | head -1
a=$(fate 'dnsmasq as root' root root 5301)
b=$(fate 'dnsmasq as nobody' nobody nogroup 5302)
# shellcheck disable=SC2016
c=$(fate 'dnsmasq as nobody, behind a shell' nobody nogroup 5303 sh -c '"$@"; exit' sh)
printf '%s\n' "$a" "$b" "$c"
case "$a/$b/$c" in
*ends/*'goes on'/*ends) echo "as described: a daemon that has changed its user goes on" ;;
*) echo "no longer as described" >&2; exit 1 ;;
esac

#!/bin/bash
# kea-dhcp6 that starts while its interface's link-local address is tentative opens no socket, stays without one when the
# address is good, and goes on running as if it served.
#
# Expected: duplicate address detection takes one or two seconds after a link comes up (RFC 4862, section 5.4), which is when a
# service manager starts servers. A server without any socket waits for an address, or ends with an error, so that it is
# started again.
#
# What happens: the log has one warning about the interface and one that no socket is open; then "server started". The
# process stays, its exit status never tells, and no socket for port 547 is opened when the address is no longer tentative.
# With service-sockets-max-retries in interfaces-config, which is 0 unless it is given, it tries again and serves.
#
# Why: sockets are opened once, when the configuration is applied (IfaceMgr::openSockets6); binding to a tentative address is
# refused by the kernel (EADDRNOTAVAIL), which counts as a warning for this interface.
#
# Seen with: kea-dhcp6 2.2.0-6 (Debian 12, amd64), Linux 6.18:
#   started while         sockets at once  when the address is good  process
#   good                  2                2                         running
#   tentative             0                0                         running
#   tentative, retries    0                2                         running
# Needs: root, Debian 12 with lists of packages (apt-get update), libssl3. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

if [ "${1-}" != inside ]; then
	self=$(realpath "$0")
	tmp=$(mktemp -d)
	child=
	trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || true; rm -rf "$tmp"' EXIT
	trap 'exit 2' HUP INT TERM
	cd "$tmp"
	timeout 60 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= download \
		kea-dhcp6-server=2.2.0-6 kea-common=2.2.0-6 liblog4cplus-2.0.5=2.0.8-1 \
		libmariadb3=1:10.11.19-0+deb12u1 libpq5=15.20-0+deb12u1 libldap-2.5-0=2.5.13+dfsg-5 \
		libsasl2-2=2.1.28+dfsg-10+deb12u1 iproute2=6.1.0-3 libbpf1=1:1.1.2-0+deb12u1 libelf1=0.188-2.1 libmnl0=1.0.4-3 >log 2>&1 &
	child=$!
	wait $child || { cat log >&2; exit 2; }
	child=
	for deb in *.deb; do dpkg-deb -x "$deb" x; done
	rc=0
	timeout -k 2 120 unshare --net --mount --pid --fork --kill-child bash "$self" inside & child=$!
	wait $child || rc=$?
	child=
	[ $rc -le 1 ] || rc=2
	exit $rc
fi

set -E
trap 'exit 2' ERR
mount -t tmpfs none /run
mkdir -p /run/kea /run/lock/kea
export LD_LIBRARY_PATH=$PWD/x/usr/lib/x86_64-linux-gnu:$PWD/x/lib/x86_64-linux-gnu
export KEA_LOCKFILE_DIR=$PWD KEA_PIDFILE_DIR=$PWD
ip=x/bin/ip ss=x/bin/ss
echo "kea-dhcp6 $(x/usr/sbin/kea-dhcp6 -v)"
$ip link set dev lo up

# Detection takes 3 s here, as the number of its solicitations says; by default it takes one.
sysctl -qw net.ipv6.conf.default.dad_transmits=3
tentative() { $ip -6 addr show dev "$1" scope link | grep -q tentative; }
good() { $ip -6 addr show dev "$1" scope link | grep inet6 | grep -qv tentative; }
sockets() { $ss -Hlun "sport = :547" | wc -l; }
until_true() { for _ in $(seq 200); do if "$@"; then return; fi; sleep 0.05; done; return 1; }

configure() { # FILE INTERFACE MORE
	cat >"$1" <<end
{"Dhcp6": {"data-directory": "$PWD", "interfaces-config": {"interfaces": ["$2"]$3}, "lease-database": {"type": "memfile", "persist": false},
"subnet6": [{"subnet": "2001:db8::/64", "interface": "$2", "pools": [{"pool": "2001:db8::10-2001:db8::20"}]}],
"loggers": [{"name": "kea-dhcp6", "output_options": [{"output": "$PWD/$1.log"}], "severity": "INFO"}]}}
end
}

as_described=true
try() { # NAME INTERFACE MORE AT-ONCE LATER
	$ip link add "$2" type veth peer name "$2p"
	$ip link set "$2p" up
	$ip link set "$2" up
	until_true tentative "$2"
	[ "$1" != good ] || until_true good "$2"
	configure "$2" "$2" "$3"
	x/usr/sbin/kea-dhcp6 -c "$2" >"$2.out" 2>&1 & pid=$!
	until_true grep -qs DHCP6_STARTED "$2.log" || { cat "$2.out" "$2.log" >&2; exit 2; }
	at_once=$(sockets)
	if [ "$1" != good ] && ! tentative "$2"; then
		echo "the machine was too slow: the address was good before the server" >&2
		exit 2
	fi
	until_true good "$2"
	sleep 4
	later=$(sockets) state=running
	kill -0 $pid 2>/dev/null || state=ended
	printf '%-21s %-16s %-25s %s\n' "$1" "$at_once" "$later" $state
	[ "$at_once $later $state" = "$4 $5 running" ] || as_described=false
	kill $pid
	wait $pid || true
	$ip link del "$2"
}
printf '%-21s %-16s %-25s %s\n' "started while" "sockets at once" "when the address is good" process
try good lan1 "" 2 2
try tentative lan2 "" 0 0
try "tentative, retries" lan3 ', "service-sockets-max-retries": 20, "service-sockets-retry-wait-time": 500' 0 2
if ! $as_described; then
	echo "no longer as described" >&2
	exit 1
fi
echo "as described: without retries it never serves"

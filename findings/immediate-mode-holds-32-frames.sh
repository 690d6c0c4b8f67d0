#!/bin/bash
# tcpdump --immediate-mode has place for 32 frames, however small, where without it thousands fit.
#
# Expected: --immediate-mode delivers frames sooner and else changes nothing. The buffer has 2 MiB (tcpdump's default), so
# 1000 frames of 60 bytes (60 kB) fit while tcpdump is not scheduled for a moment.
#
# What happens: tcpdump is stopped, 1000 frames of 60 bytes arrive on a veth, and tcpdump continues. It has all 1000 by
# default, 32 with --immediate-mode, and again 1000 with --immediate-mode and a shorter snapshot length (-s 128).
# Printing to a terminal implies immediate mode (tcpdump(8)).
#
# Why: in immediate mode libpcap takes TPACKET_V2 instead of TPACKET_V3 (prepare_tpacket_socket in pcap-linux.c), whose ring
# has slots of one size, one frame each. create_ring in that file makes a slot for the largest frame possible: the snapshot
# length (262144 by default), on Ethernet at most MTU + 18, but 65535 + 18 where an offload like GSO, TSO or GRO is on, as on
# a veth: 2 MiB / some 65.6 kB, rounded up, is 32. tcpdump(8) names neither; packet(7) has the versions.
#
# Seen with: tcpdump 4.99.3-1, libpcap0.8 1.10.3-1, iproute2 6.1.0-3 (Debian 12, amd64), kernel 6.18.44:
#   options                      sent  captured  lost
#   (none)                       1000      1000     0
#   --immediate-mode             1000        32   968
#   --immediate-mode -s 128      1000      1000     0
#
# Needs: root, Debian 12 with lists of packages (apt-get update), python3. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

if [ "${1-}" != inside ]; then
	self=$(realpath "$0")
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 2' HUP INT TERM
	cd "$tmp"
	timeout 25 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		download tcpdump=4.99.3-1 libpcap0.8=1.10.3-1 iproute2=6.1.0-3 >log 2>&1 || { cat log >&2; exit 2; }
	for deb in *.deb; do dpkg-deb -x "$deb" x; done
	rc=0
	timeout -k 2 30 unshare --net --pid --fork --kill-child bash "$self" inside || rc=$?
	[ $rc -le 1 ] || rc=2
	exit $rc
fi

set -E
trap 'exit 2' ERR
n=1000
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(echo "$PWD"/x/usr/lib/*-linux-gnu)
tcpdump=$(echo x/usr/*bin/tcpdump) ip=x/bin/ip
"$tcpdump" --version 2>&1 | sed -n 1,2p
echo "kernel $(uname -r)"

# Without IPv6 the two ends send nothing of their own.
[ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
"$ip" link add name va type veth peer name vb
"$ip" link set dev va up
"$ip" link set dev vb up

failed=0
row='%-24s  %5s  %8s  %5s\n'
# shellcheck disable=SC2059
printf "$row" options sent captured lost
try() { # CAPTURED OPTION...
	local expected=$1 captured lost pid
	shift
	rm -f err
	"$tcpdump" -Z root -i vb -w capture "$@" 2>err &
	pid=$!
	for _ in {1..50}; do ! grep -qs '^tcpdump: listening' err || break; sleep 0.1; done
	sleep 0.3
	kill -STOP $pid
	python3 -c '
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("va", 0))
for _ in range(int(sys.argv[1])):
    s.send(b"\xff" * 6 + b"\2\0\0\0\0\1\x88\xb5" + bytes(46))' $n
	kill -CONT $pid
	sleep 2 # a block of TPACKET_V3 that is not full is handed over after one second
	kill -INT $pid
	wait $pid || true
	captured=$(awk '/packets? captured/ { print $1 }' err) lost=$(awk '/dropped by kernel/ { print $1 }' err)
	# shellcheck disable=SC2059
	printf "$row" "${*:-(none)}" $n "$captured" "$lost"
	[ "$captured $lost" = "$expected $((n - expected))" ] || failed=1
}
try $n
try 32 --immediate-mode
try $n --immediate-mode -s 128
[ $failed = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo "as described: in immediate mode 32 frames fill the buffer"

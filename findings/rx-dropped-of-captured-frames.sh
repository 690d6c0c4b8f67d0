#!/bin/bash
# rx_dropped counts frames that a capture got whole, and a running capture changes what it counts.
#
# Expected: rx_dropped of an interface counts frames that were lost. Where tcpdump got all N frames it did not grow, and
# whether somebody captures makes no difference to it.
#
# What happens: N frames arrive for whose ethertype the kernel has no protocol handler.
#   - Without a VLAN tag (0x88b5, local experimental): rx_dropped grows by N while nobody captures and by 0 beside tcpdump.
#   - With tags (0x88a8 and 0x8100, QinQ, no VLAN device for them): rx_dropped grows by N in both cases, though tcpdump
#     got all N and reports none dropped.
# A check that takes rx_dropped from the capture's count, or for loss, is wrong in both directions.
#
# Why: __netif_receive_skb_core (net/core/dev.c) counts a frame in rx_dropped when at its end no receiver is left to be given
# it. A packet socket for all protocols is such a receiver and remains so for untagged frames. With a tag the function
# delivers to it earlier, before it looks for a VLAN device, and afterwards has none. struct rtnl_link_stats64 in
# linux/if_link.h allows it: rx_dropped is for frames not processed, e.g. for lack of resources or unsupported protocol.
#
# Seen with: tcpdump 4.99.3-1, libpcap0.8 1.10.3-1, iproute2 6.1.0-3 (Debian 12, amd64), kernel 6.18.44:
#   frames  tcpdump  rx_packets  captured  lost by tcpdump  rx_dropped
#   0x88b5  no             +100         -                -        +100
#   0x88b5  yes            +100       100                0          +0
#   QinQ    no             +100         -                -        +100
#   QinQ    yes            +100       100                0        +100
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
n=100
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(echo "$PWD"/x/usr/lib/*-linux-gnu)
tcpdump=$(echo x/usr/*bin/tcpdump) ip=x/bin/ip
"$tcpdump" --version 2>&1 | sed -n 1,2p
echo "iproute2 $("$ip" -V | sed 's/.*iproute2-//'), kernel $(uname -r)"

# Without IPv6 the two ends send nothing of their own.
[ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
"$ip" link add name va type veth peer name vb
"$ip" link set dev va up
"$ip" link set dev vb up

counter() { # NAME: of what vb received
	"$ip" -s -j link show dev vb | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["stats64"]["rx"][sys.argv[1]])' "$1"
}
send() { # HEX: n broadcast frames with this after the addresses, and 46 bytes of zeros
	python3 -c '
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("va", 0))
for _ in range(int(sys.argv[2])):
    s.send(b"\xff" * 6 + b"\2\0\0\0\0\1" + bytes.fromhex(sys.argv[1]) + bytes(46))' "$1" $n
}

failed=0
row='%-6s  %-7s  %10s  %8s  %15s  %10s\n'
# shellcheck disable=SC2059
printf "$row" frames tcpdump rx_packets captured 'lost by tcpdump' rx_dropped
try() { # NAME HEX TCPDUMP EXPECTED
	local captured=- lost=- packets dropped pid
	packets=$(counter packets) dropped=$(counter dropped)
	if [ "$3" = yes ]; then
		# Few bytes of each frame, so that the ring has place for all.
		rm -f err
		timeout 5 "$tcpdump" -Z root -i vb --immediate-mode -s 128 -c $n -w capture 'ether src 02:00:00:00:00:01' 2>err &
		pid=$!
		for _ in {1..50}; do ! grep -qs '^tcpdump: listening' err || break; sleep 0.1; done
		send "$2"
		wait $pid || true
		captured=$(awk '/packets? captured/ { print $1 }' err) lost=$(awk '/dropped by kernel/ { print $1 }' err)
	else
		send "$2"
	fi
	for _ in {1..20}; do [ $(($(counter packets) - packets)) -lt $n ] || break; sleep 0.1; done
	sleep 0.2
	packets=$(($(counter packets) - packets)) dropped=$(($(counter dropped) - dropped))
	# shellcheck disable=SC2059
	printf "$row" "$1" "$3" +$packets "$captured" "$lost" +$dropped
	[ $packets = $n ] && [ $dropped = "$4" ] && { [ "$3" = no ] || [ "$captured $lost" = "$n 0" ]; } || failed=1
}
try 0x88b5 88b5 no $n
try 0x88b5 88b5 yes 0
try QinQ 88a800648100000a88b5 no $n
try QinQ 88a800648100000a88b5 yes $n
[ $failed = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo "as described: rx_dropped is no loss of the capture"

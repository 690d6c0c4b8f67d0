#!/bin/bash
# The bytes nfdump shows for a protocol or an address depend on what the list is ordered by, where records have both directions.
#
# Expected: what a list is ordered by changes the order of its lines. Its column "Bytes" holds the same numbers in each, and
# without a limit they add up to the "total bytes" below.
#
# What happens: a collector gets three IPFIX records of biflows (RFC 5103): one of TCP with 1000 bytes there and 900000 back,
# two of UDP with 5000 there and 200 back.
#   - -s proto, that is by flows, counts what the initiator sent; -s proto/bytes, packets, pps, bps and bpp count both
#     directions; -s proto/obyte counts what came back. The text's columns are called Packets and Bytes each time (CSV's names
#     differ between the first two).
#   - -A proto prints the initiator's bytes in each order. With -O bytes it sorts by both directions, so that the list is
#     not sorted by the column it shows.
#   - "total bytes" below each has both directions, and the percentages of -s refer to it: of by flows they add up to 0.7.
#   - -I prints a total of both directions beside sums by protocol of one, of the same file.
# A report of who downloads most, made with -s's own order, has requests in it.
#
# Why: each order has a direction (order_mode in src/nfdump/nfstat.c), by which lines are printed as well: flows is "in", bytes
# and its like are "in and out". -A compares by such a list too (in nflowcache.c), and prints "in" (output_fmt.c). nfdump(1)
# calls bytes "(in)bytes" at -O and does not speak of directions at -s.
#
# Seen with: nfdump 1.7.1-2+deb12u1 (Debian 12, amd64), bytes:
#   asked                   order     TCP     UDP     sum   total bytes
#   -s proto              UDP TCP    1000    5000    6000        906200
#   -s proto/flows        UDP TCP    1000    5000    6000        906200
#   -s proto/bytes        TCP UDP  901000    5200  906200        906200
#   -s proto/bps          TCP UDP  901000    5200  906200        906200
#   -s proto/obyte        TCP UDP  900000     200  900200        906200
#   -A proto -O ibyte     UDP TCP    1000    5000    6000        906200
#   -A proto -O bytes     TCP UDP    1000    5000    6000        906200
#   -I                          -    1000    5000    6000        906200
#
# Needs: root, Debian 12 with lists of packages (apt-get update), python3. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

if [ "${1-}" != inside ]; then
	self=$(realpath "$0")
	tmp=$(mktemp -d)
	child=
	trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || true; rm -rf "$tmp"' EXIT
	trap 'exit 2' HUP INT TERM
	cd "$tmp"
	timeout 25 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		download nfdump=1.7.1-2+deb12u1 libbz2-1.0=1.0.8-5+b1 iproute2=6.1.0-3 libbpf1=1:1.1.2-0+deb12u1 libelf1=0.188-2.1 \
		libmnl0=1.0.4-3 >log 2>&1 & child=$!
	wait $child || { cat log >&2; exit 2; }
	child=
	for deb in *.deb; do dpkg-deb -x "$deb" x; done
	rc=0
	timeout -k 2 30 unshare --net --pid --fork --kill-child bash "$self" inside & child=$!
	wait $child || rc=$?
	child=
	[ $rc -le 1 ] || rc=2
	exit $rc
fi

set -E
trap 'exit 2' ERR
unset NFCONF NFGEODB
export TZ=UTC LD_LIBRARY_PATH
LD_LIBRARY_PATH=$PWD/x/lib/x86_64-linux-gnu:$PWD/x/usr/lib/x86_64-linux-gnu
nfdump() { x/usr/bin/nfdump -C none "$@"; }
nfdump -V
x/bin/ip link set dev lo up

mkdir flows
x/usr/bin/nfcapd -b 127.0.0.1 -p 9995 -w flows >log 2>&1 &
collector=$!
for _ in {1..50}; do ! grep -qs '^Startup nfcapd' log || break; sleep 0.1; done
python3 -c '
import socket, struct, time

now = int(time.time())
reverse = 29305
# Elements and sizes: start and end in milliseconds, addresses, protocol, ports, bytes and packets there and back.
elements = [(152, 8, 0), (153, 8, 0), (8, 4, 0), (12, 4, 0), (4, 1, 0), (7, 2, 0), (11, 2, 0),
            (1, 8, 0), (2, 8, 0), (1, 8, reverse), (2, 8, reverse)]
template = struct.pack("!HH", 256, len(elements))
for element, size, enterprise in elements:
    template += struct.pack("!HHI", element | 0x8000, size, enterprise) if enterprise else struct.pack("!HH", element, size)

def flow(source, port, protocol, to, *counters):
    return struct.pack("!QQ4s4sBHHQQQQ", (now - 2) * 1000, (now - 1) * 1000, socket.inet_aton(source),
                       socket.inet_aton("203.0.113.9"), protocol, port, to, *counters)

def part(number, content):
    return struct.pack("!HH", number, 4 + len(content)) + content

body = part(2, template) + part(256, flow("10.1.0.1", 40001, 6, 443, 1000, 10, 900000, 700) +
                                   flow("10.1.0.2", 40002, 17, 53, 3000, 12, 80, 1) +
                                   flow("10.1.0.2", 40003, 17, 53, 2000, 8, 120, 1))
header = struct.pack("!HHIII", 10, 16 + len(body), now, 0, 1)
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(header + body, ("127.0.0.1", 9995))'
for _ in {1..50}; do ! grep -qs 'New ipfix exporter' log || break; sleep 0.1; done
kill $collector # it writes the file
wait $collector || true
file=$(echo flows/nfcapd.2*)
[ -f "$file" ] && grep -q ' Flows: 3,' log || { cat log >&2; exit 2; }

failed=0
row='%-20s  %7s  %6s  %6s  %6s  %12s\n'
# shellcheck disable=SC2059
printf "$row" asked order TCP UDP sum 'total bytes'
check() { # NAME ORDER TCP UDP TOTAL, and what is expected of ORDER TCP UDP
	# shellcheck disable=SC2059
	printf "$row" "$1" "$2" "$3" "$4" $(($3 + $4)) "$5"
	[ "$2 $3 $4 $5" = "$6 906200" ] || failed=1
}
try() { # EXPECTED COLUMN OPTION...: its lines name a protocol, and have bytes in the column behind it
	local expected=$1 column=$2 order
	shift 2
	# Numbers as they are, without percentages.
	nfdump -r "$file" -N "$@" | sed -E 's/\([ 0-9.]+\)//g' >out
	awk -v c="$column" '/^20/ { print $4 == 6 ? "TCP" : "UDP", $c }' out >lines
	order=$(cut -d' ' -f1 lines | paste -sd' ')
	check "$*" "$order" "$(awk '/TCP/ { print $2 }' lines)" "$(awk '/UDP/ { print $2 }' lines)" \
		"$(sed -nE 's/^Summary:.* total bytes: ([0-9]+),.*/\1/p' out)" "$expected"
	grep -q '^Date first seen.* Bytes' out || failed=1
}
try 'UDP TCP 1000 5000' 8 -s proto
try 'UDP TCP 1000 5000' 8 -s proto/flows
try 'TCP UDP 901000 5200' 8 -s proto/bytes
try 'TCP UDP 901000 5200' 8 -s proto/bps
try 'TCP UDP 900000 200' 8 -s proto/obyte
try 'UDP TCP 1000 5000' 6 -A proto -O ibyte
try 'TCP UDP 1000 5000' 6 -A proto -O bytes
nfdump -r "$file" -I >out
of() { sed -n "s/^$1: //p" out; }
check -I - "$(of Bytes_tcp)" "$(of Bytes_udp)" "$(of Bytes)" '- 1000 5000'
[ $failed = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo 'as described: the order changes the numbers'

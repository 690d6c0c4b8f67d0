#!/bin/bash
# netfilter's output hook counts fewer packets and fewer bytes of TCP than leave, also with TSO and GSO switched off on the
# interface by ethtool.
#
# Expected: with `ethtool -K IF tso off gso off` the stack makes packets of the size of the MTU, so that a counter in the
# output hook has the packets and bytes that the interface then sends. Who compares a gateway's accounting with a
# server's own count of what it sent relies on it.
#
# What happens: a sender of 2,000,000 bytes over a veth with both switched off. nft counts packets of up to 64 KiB, each of which
# leaves as some thirty frames. Each frame has its own headers, and of a large packet nft counts one set: the bytes differ
# too. With gso_max_segs of 1 (ip link) nft and the interface agree.
#
# Why: since Linux 4.17 TCP makes such packets whatever the interface can do, and the device layer cuts them behind
# netfilter. ethtool shows both features as off all the time.
#
# Seen with: nftables 1.0.6-2+deb12u2, ethtool 1:6.1-1, iproute2 6.1.0-3 (Debian 12, amd64), Linux 6.18; packets with the
# handshake:
#   offloads                    nft  frames sent
#   on                           45           47
#   tso off gso off              45         1388
#   off, gso_max_segs 1        1386         1388
# Needs: root, Debian 12 with lists of packages (apt-get update), python3. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

if [ "${1-}" != inside ]; then
	self=$(realpath "$0")
	tmp=$(mktemp -d)
	child=
	trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || true; rm -rf "$tmp"' EXIT
	trap 'exit 2' HUP INT TERM
	cd "$tmp"
	timeout 60 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		download ethtool=1:6.1-1 nftables=1.0.6-2+deb12u2 \
		libnftables1=1.0.6-2+deb12u2 libnftnl11 libjansson4 libedit2 libmnl0 iproute2=6.1.0-3 libbpf1 libelf1 >log 2>&1 & child=$!
	wait $child || { cat log >&2; exit 2; }
	child=
	for deb in *.deb; do dpkg-deb -x "$deb" x; done
	rc=0
	timeout -k 2 60 unshare --net --pid --fork --kill-child --mount-proc bash "$self" inside & child=$!
	wait $child || rc=$?
	child=
	[ $rc -le 1 ] || rc=2
	exit $rc
fi

set -E
trap 'exit 2' ERR
mount -t sysfs sysfs /sys # that of this network namespace
export LD_LIBRARY_PATH=$PWD/x/usr/lib/x86_64-linux-gnu:$PWD/x/lib/x86_64-linux-gnu
export PATH=$PWD/x/sbin:$PWD/x/bin:$PWD/x/usr/sbin:$PWD/x/usr/bin:$PATH
unshare --net sleep 50 & peer=$!
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add near0 type veth peer name far0
ip link set far0 netns $peer
ip addr add 192.0.2.1/24 dev near0
ip link set near0 up
nsenter -t $peer -n ip addr add 192.0.2.2/24 dev far0
nsenter -t $peer -n ip link set far0 up
nsenter -t $peer -n python3 -c '
import socket
s = socket.create_server(("192.0.2.2", 5000))
while True:
    c, _ = s.accept()
    n = 0
    while True:
        d = c.recv(1 << 20)
        if not d:
            break
        n += len(d)
    c.sendall(b"%d" % n)
    c.close()
' &
nft add table ip t
nft 'add chain ip t out { type filter hook output priority 0; }'

# send sends 2,000,000 bytes and sets of_nft and sent to the packets that nft counted and the frames that left.
send() {
	nft flush chain ip t out
	nft add rule ip t out tcp dport 5000 counter
	before=$(cat /sys/class/net/near0/statistics/tx_packets)
	for _ in $(seq 200); do
		got=$(python3 -c '
import socket, time
try:
    c = socket.create_connection(("192.0.2.2", 5000))
except OSError:
    raise SystemExit
c.sendall(bytes(2000000))
c.shutdown(socket.SHUT_WR)
print(c.recv(100).decode())')
		[ -z "$got" ] || break
		sleep 0.05
	done
	[ "$got" = 2000000 ]
	sent=$(($(cat /sys/class/net/near0/statistics/tx_packets) - before))
	of_nft=$(nft list chain ip t out | sed -n 's/.*counter packets \([0-9]*\).*/\1/p')
	printf '%-24s %6d %12d\n' "$1" "$of_nft" "$sent"
}

uname -r
echo 'offloads                    nft  frames sent'
send 'on'
ethtool -K near0 tso off gso off
ethtool -k near0 | grep -q '^tcp-segmentation-offload: off'
ethtool -k near0 | grep -q '^generic-segmentation-offload: off'
send 'tso off gso off'
large=$((sent > 1300 && of_nft * 4 < sent))
ip link set near0 gso_max_segs 1
send 'off, gso_max_segs 1'
small=$((of_nft * 10 > sent * 9))
if [ $large = 1 ] && [ $small = 1 ]; then
	echo "as described: large packets pass the hook with the offloads off"
else
	echo "no longer as described" >&2
	exit 1
fi

#!/bin/sh
# Runs CoovaChilli in this network, with private copies of what it writes: coovachilli.sh LAN GATEWAY CLIENT MAC NAMESPACE KBIT WAN. It
# admits the client, of a namespace, with a rate each way, says "ready", and ends with its input.
set -eu
lan=$1 gateway=$2 client=$3 mac=$4 namespace=$5 kbit=$6 wan=$7
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir -p /mnt/run/netns
mount --rbind /run/netns /mnt/run/netns
mount --rbind /mnt/run /run
mount -t tmpfs none /tmp
# Without aggregation: its packet socket cuts large frames off, and does not complete checksums.
ip link set "$lan" gro_max_size 1500 gso_max_size 1500
ethtool -K "$lan" tx off >/dev/null
ip -n "$namespace" link set c0 gso_max_size 1500
ip netns exec "$namespace" ethtool -K c0 tx off >/dev/null
ip addr flush dev "$lan"
for chain in INPUT FORWARD; do
	iptables -A $chain -i "$lan" -j DROP
done
iptables -A FORWARD -o "$lan" -j DROP
echo "$mac $client" >/tmp/ethers
cat >/tmp/chilli.conf <<EOF
net 10.1.0.0/24
uamlisten $gateway
dhcpif $lan
tundev tun0
dns1 $gateway
lease 86400
ethers /tmp/ethers
uamport 3990
uamserver http://$gateway/
uamsecret peer
radiusserver1 127.0.0.1
radiusserver2 127.0.0.1
radiussecret peer
cmdsocket /tmp/chilli.sock
unixipc /tmp/chilli.ipc
pidfile /tmp/chilli.pid
statedir /tmp
interval 0
EOF
chilli -f -c /tmp/chilli.conf >/tmp/log 2>&1 </dev/null &
daemon=$!
trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; ip addr add "$gateway/24" dev "$lan"; exit' EXIT
printf '#!/bin/sh\n[ "$1" = bound ] && echo "$ip" >/tmp/leased\nexit 0\n' >/tmp/leased.sh
chmod 755 /tmp/leased.sh
tries=0
until chilli_query -s /tmp/chilli.sock list 2>/dev/null | grep -q ' pass '; do
	if [ $((tries += 1)) -gt 60 ] || ! kill -0 $daemon 2>/dev/null; then
		cat /tmp/log
		chilli_query -s /tmp/chilli.sock list || :
		exit 1
	fi
	ip netns exec "$namespace" busybox udhcpc -i c0 -n -q -t 2 -T 1 -s /tmp/leased.sh >/dev/null 2>&1 || :
	chilli_query -s /tmp/chilli.sock authorize mac "$(echo "$mac" | tr : -)" username client \
		maxbwup $((kbit * 1000)) maxbwdown $((kbit * 1000)) >/dev/null 2>&1 || :
done
[ "$(cat /tmp/leased)" = "$client" ] || { echo "it leased $(cat /tmp/leased)"; exit 1; }
echo ready
cat >/dev/null

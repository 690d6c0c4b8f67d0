#!/bin/sh
# Runs openNDS in this network, with private copies of what it writes: opennds.sh LAN GATEWAY CLIENT MAC NAMESPACE KBIT. It admits the
# client, of a namespace, with a rate each way, says "ready", and ends with its input.
set -eu
lan=$1 gateway=$2 client=$3 mac=$4 namespace=$5 kbit=$6
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir -p /mnt/bin /mnt/run/netns /mnt/run/tmpfiles.d
cp -a /etc /mnt/etc
cp /usr/lib/opennds/libopennds.sh /mnt/
mount --rbind /run/netns /mnt/run/netns
mount --rbind /mnt/run /run
mount --bind /mnt/etc /etc
mount -t tmpfs none /tmp
chmod 1777 /tmp
# iptables-nft refuses to work at a chain of the packaged script's priority, and the script restarts the machine's services.
sed -i 's/priority -100/priority filter/g' /mnt/libopennds.sh
mount --bind /mnt/libopennds.sh /usr/lib/opennds/libopennds.sh
printf '#!/bin/sh\nexit 0\n' >/mnt/bin/systemctl
chmod 755 /mnt/bin/systemctl
export PATH="/mnt/bin:$PATH"
echo "$(($(date +%s) + 86400)) $mac $client client *" >/tmp/dhcp.leases
cat >/etc/opennds/opennds.conf <<EOF
gatewayinterface $lan
gatewayname peer
checkinterval 5
ratecheckwindow 2
sessiontimeout 0
preauthidletimeout 0
authidletimeout 0
downloadrate $kbit
uploadrate $kbit
faskey peer
FirewallRuleSet authenticated-users {
    FirewallRule allow all
}
FirewallRuleSet preauthenticated-users {
}
FirewallRuleSet users-to-router {
    FirewallRule allow all
}
EOF
opennds -f -d 1 -c /etc/opennds/opennds.conf >/tmp/log 2>&1 </dev/null &
daemon=$!
trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; exit' EXIT
tries=0
until ndsctl json 2>/dev/null | grep -q '"state":"Authenticated"'; do
	if [ $((tries += 1)) -gt 100 ] || ! kill -0 $daemon 2>/dev/null; then
		tail -40 /tmp/log
		ndsctl json || :
		exit 1
	fi
	sleep 0.5
	nft list chain ip filter FORWARD 2>/dev/null | grep -q ndsNET || continue
	ip netns exec "$namespace" wget -q -t 1 -T 5 -O /dev/null "http://$gateway:2050/" 2>/dev/null || :
	ndsctl auth "$client" >/dev/null 2>&1 || :
done
echo ready
cat >/dev/null

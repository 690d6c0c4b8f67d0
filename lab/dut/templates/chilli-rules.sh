#!/bin/sh
# Firewall rules of a CoovaChilli router: $1 is -I to insert or -D to delete
# them. They are those its packaged start script sets. Frames from the clients
# reach CoovaChilli through a packet socket; the kernel sees them too and must
# neither answer nor forward them.
lan={{.Port "lan"}} tun=tun0 wan={{.Port "wan"}} gw={{.Gateway}}
iptables "$1" INPUT -i $tun -d $gw -j DROP
iptables "$1" INPUT -i $tun -d $gw -p tcp --dport {{.WebPort}} -j ACCEPT
iptables "$1" INPUT -i $tun -d $gw -p udp --dport 67:68 -j ACCEPT
iptables "$1" INPUT -i $tun -d $gw -p udp --dport 53 -j ACCEPT
iptables "$1" INPUT -i $tun -d $gw -p icmp -j ACCEPT
iptables "$1" INPUT -i $lan -j DROP
iptables "$1" FORWARD -i $lan -j DROP
iptables "$1" FORWARD -o $lan -j DROP
iptables "$1" FORWARD -i $tun -j ACCEPT
iptables "$1" FORWARD -o $tun -j ACCEPT
iptables "$1" FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
iptables -t mangle "$1" FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
iptables "$1" FORWARD -i $tun ! -o $wan -j DROP
iptables "$1" FORWARD -i $tun -o $wan -j ACCEPT

#!/bin/bash
# dnsmasq leaves a relay's option 82 out of its answer where the request is long, though the answer has place for it.
#
# Expected: a server that supports option 82 returns it whole in each answer to a relay (RFC 3046, 2.2). The answers below have
# 50 bytes of cookie and other options, and 312 fit into any (RFC 2131, 2), so each has place for those 202 bytes.
#
# What happens: the OFFER goes to the relay without option 82, and dnsmasq logs it as any other. Whether it is there depends
# on the request: what it has before End, from the cookie on, and option 82 a second time have to be below 312 bytes together.
#   - Of a client with two short options, option 82 comes back up to 149 bytes, and of 150 or more does not.
#   - One of 43 bytes does not come back either, where the client has a vendor class of 212 bytes.
#   - All come back whole when the client names a maximum message size (option 57) of 1500, on which a relay has no influence.
# A relay that finds the client's port by option 82 drops such an answer.
#
# Why: dnsmasq writes the answer over the request. It first copies option 82 to the end of that space, unless it would there
# lie on the request's options (dhcp_reply in src/rfc2131.c); then it goes on without, and without a line in the log. The
# space is that of a message with 312 bytes of options, or of the size in option 57. dnsmasq(8) does not speak of it.
#
# Seen with: dnsmasq-base 2.90-4~deb12u2 (Debian 12, amd64), kernel 6.18.44; bytes:
#   option 82  option 57  vendor class  before End  with option 82  answer  beside option 82  option 82
#          22          -             -          34              56   OFFER                50         22
#         149          -             -         161             310   OFFER                50        149
#         150          -             -         162             312   OFFER                50          -
#         202          -             -         214             416   OFFER                50          -
#         202       1500             -         218             420   OFFER                50        202
#          43          -           212         269             312   OFFER                50          -
#          43       1500           212         273             316   OFFER                50         43
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
	timeout 25 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= download \
		dnsmasq-base=2.90-4~deb12u2 libdbus-1-3=1.14.10-1~deb12u1 libnetfilter-conntrack3=1.0.9-3 libnfnetlink0=1.0.2-2 \
		libmnl0=1.0.4-3 libnftables1=1.0.6-2+deb12u2 libnftnl11=1.2.4-2 libxtables12=1.8.9-2 libjansson4=2.14-2 \
		iproute2=6.1.0-3 libbpf1=1:1.1.2-0+deb12u1 libelf1=0.188-2.1 >log 2>&1 &
	child=$!
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
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$PWD/x/usr/lib/x86_64-linux-gnu:$PWD/x/lib/x86_64-linux-gnu
ip=x/bin/ip
x/usr/sbin/dnsmasq --version | sed -n 1p
echo "kernel $(uname -r)"

cat >relay.py <<'end'
import socket, struct, sys, time

relay = socket.inet_aton("192.0.2.2")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("192.0.2.2", 67))
s.settimeout(1)

def option(code, content):
    return bytes([code, len(content)]) + content

def ask(number, options):
    """sends a DISCOVER until an answer to it comes, and returns what follows the fixed fields"""
    message = struct.pack("!BBBBIHH4s4s4s4s16s192x", 1, 1, 6, 1, number, 0, 0, b"", b"", b"", relay,
                          bytes([2, 0, 0, 0, 0, number])) + options
    for _ in range(5):
        s.sendto(message.ljust(300, b"\0"), ("192.0.2.1", 67))
        try:
            while True:
                answer = s.recv(2000)
                if answer[4:8] == message[4:8]:
                    return answer[236:]
        except TimeoutError:
            pass
    sys.exit(2)

def read(options):
    """returns contents by code, and the bytes up to End with it"""
    at, contents = 4, {}
    while options[at] != 255:
        if options[at] == 0:
            at += 1
            continue
        contents[options[at]] = options[at + 2:at + 2 + options[at + 1]]
        at += 2 + options[at + 1]
    return contents, at + 1

row = "{:>9}  {:>9}  {:>12}  {:>10}  {:>14}  {:>6}  {:>16}  {:>9}"
print(row.format("option 82", "option 57", "vendor class", "before End", "with option 82", "answer", "beside option 82", "option 82"))
failed = False
number = 0
for size, limit, vendor, expected in [
    (22, 0, 0, True), (149, 0, 0, True), (150, 0, 0, False), (202, 0, 0, False), (202, 1500, 0, True),
    (43, 0, 212, False), (43, 1500, 212, True),
]:
    number += 1
    agent = option(82, option(1, b"p" * (size - 4))) # a circuit-id
    sent = b"\x63\x82\x53\x63" + option(53, b"\1") + option(55, b"\1\3\6")
    if limit:
        sent += option(57, struct.pack("!H", limit))
    if vendor:
        sent += option(60, b"v" * vendor)
    sent += agent
    got, length = read(ask(number, sent + b"\xff"))
    back = agent[2:] == got.get(82)
    if 82 in got:
        length -= 2 + len(got[82])
    print(row.format(size, limit or "-", vendor or "-", len(sent), len(sent) + size,
                     "OFFER" if got[53] == b"\2" else "other", length, len(got[82]) + 2 if 82 in got else "-"))
    if got[53] != b"\2" or length != 50 or back != expected or (82 in got) != expected:
        failed = True
sys.exit(1 if failed else 0)
end

# The relay has a network namespace of its own, and makes the link to that of this process, which is the first one here.
unshare --net bash -c "
	$ip link add name relay type veth peer name server netns 1
	$ip address add 192.0.2.2/24 dev relay
	$ip link set dev relay up
	until [ -e ready ]; do sleep 0.1; done
	exec python3 relay.py" &
relay=$!
for _ in {1..50}; do ! "$ip" link show dev server >/dev/null 2>&1 || break; sleep 0.1; done
"$ip" address add 192.0.2.1/24 dev server
"$ip" link set dev server up
# A log file of its own, for it has no syslog here; nothing of the machine's configuration.
x/usr/sbin/dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --interface=server --bind-interfaces --user=root --group=root \
	--pid-file= --leasefile-ro --no-ping --log-facility="$PWD/log" --dhcp-range=192.0.2.100,192.0.2.200,1h &
for _ in {1..50}; do ! grep -qs 'DHCP, IP range' log || break; sleep 0.1; done
touch ready
rc=0
wait $relay || rc=$?
[ $rc -le 1 ] || { cat log >&2; exit 2; }
# Besides lines of its start dnsmasq logs each request and its answer.
[ "$(grep -cE 'DHCP(DISCOVER|OFFER)\(server\)' log)" -ge 14 ] || rc=1
! grep -iE 'warn|option|agent|too ' log | grep -v 'compile time options' || rc=1
[ $rc = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo 'as described: the length of the request decides'

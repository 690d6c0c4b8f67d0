#!/bin/bash
# nft lists elements of a set with their bytes swapped where the set was made without nft's own user data, and a rule set
# that is saved and loaded again then means other values.
#
# Expected: the kernel keeps the type of a set's key (NFTA_SET_KEY_TYPE), and the types below are in the host's byte order
# for nft (iface_index, mark, gid, uid, ifname). A set that any program makes over netlink with such a type is listed as one
# that nft made. User data is what a program adds for itself: the kernel does not look at it.
#
# What happens, on a little-endian machine: elements of a set without user data are read in network byte order.
#   - mark 0x51 is listed as 0x51000000, group 1000 as 3892510720, interface index 1 as 16777216, interface "lo" as "".
#   - nft list, flush, load: the kernel afterwards has these values, so other packets match. No line warns of it.
#   - With 6 bytes of user data (type 0, length 4, then 1 in the host's order) the same sets are listed right.
# So a program that makes such sets has to add nft's user data, or its users must not save rules with nft.
#
# Why: libnftables takes the byte order of keys from user data alone (NFTNL_UDATA_SET_KEYBYTEORDER) and treats elements of
# sets without it as big-endian. Neither nft(8) nor linux/netfilter/nf_tables.h says that user data carries this.
#
# Seen with: nftables 1.0.6-2+deb12u2, libnftables1 1.0.6-2+deb12u2, libnftnl11 1.2.4-2 (Debian 12, amd64), kernel 6.18.44:
#   set          made with    listed by nft  in the kernel after list, flush, load
#   iface_index  1            16777216       16777216
#   mark         81           0x51000000     1358954496
#   gid          1000         3892510720     3892510720
#   ifname       lo           ""             not loaded: "Empty string is not allowed"
#   each of them, with user data: as it was made
#
# Needs: root, a little-endian machine, Debian 12 with lists of packages (apt-get update), python3. Exit: 0 as described, 1 no longer
# so, 2 not run.
set -euo pipefail

if [ "${1-}" != inside ]; then
	self=$(realpath "$0")
	tmp=$(mktemp -d)
	child=
	trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || true; rm -rf "$tmp"' EXIT
	trap 'exit 2' HUP INT TERM
	cd "$tmp"
	timeout 25 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= download \
		nftables=1.0.6-2+deb12u2 libnftables1=1.0.6-2+deb12u2 libnftnl11=1.2.4-2 libmnl0=1.0.4-3 libxtables12=1.8.9-2 \
		libjansson4=2.14-2 libedit2=3.1-20221030-2 libbsd0=0.11.7-2 libmd0=1.0.4-2 >log 2>&1 &
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

export LD_LIBRARY_PATH=$PWD/x/usr/lib/x86_64-linux-gnu:$PWD/x/lib/x86_64-linux-gnu
x/usr/sbin/nft --version
echo "kernel $(uname -r)"
cat >sets.py <<'end'
import os, re, socket, struct, subprocess, sys

sequence = 0

def attribute(kind, content):
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)

def nested(kind, *attributes):
    return attribute(kind | 0x8000, b"".join(attributes))

def message(kind, flags, family, body=b"", resource=0):
    global sequence
    sequence += 1
    body = struct.pack("=BBH", family, 0, socket.htons(resource)) + body
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body

def nftables(kind, body):
    """a message of nf_tables that creates something in an inet table, and asks for an answer"""
    return message(10 << 8 | kind, 0x405, 1, body)

def send(*messages):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) # NETLINK_NETFILTER
    s.bind((0, 0))
    s.settimeout(2)
    s.send(message(16, 1, 0, resource=10) + b"".join(messages) + message(17, 1, 0, resource=10)) # one batch
    for _ in messages:
        error = struct.unpack_from("=i", s.recv(65536), 16)[0]
        if error:
            sys.exit(os.strerror(-error))
    s.close()

def make(name, kind, key, data):
    table, set_name = attribute(1, b"t\0"), name.encode() + b"\0"
    body = table + attribute(2, set_name) + attribute(3, bytes(4)) + attribute(4, struct.pack("!I", kind))
    body += attribute(5, struct.pack("!I", len(key))) + attribute(10, struct.pack("!I", sequence + 1))
    send(nftables(9, body + (attribute(13, data) if data else b""))) # NFT_MSG_NEWSET
    send(nftables(12, table + attribute(2, set_name) + nested(3, nested(1, nested(1, attribute(1, key)))))) # NEWSETELEM

def nft(*arguments, **more):
    return subprocess.run(["x/usr/sbin/nft", *arguments], capture_output=True, text=True, **more)

def in_kernel(name):
    """the first word of the set's element, as the kernel has it"""
    words = re.search("@" + name + r"\n\s*element ([0-9a-f]+)", nft("--debug=netlink", "list", "ruleset").stdout)
    return int(words[1], 16) if words else None

def listed(name):
    return re.search("set " + name + r" \{[^}]*elements = \{ ([^}]*) \}", nft("list", "ruleset").stdout)[1]

host = lambda value: struct.pack("=I", value)
sets = [ # nft's name and number of the type, key, as it is listed and loaded without user data, and with
    ("iface_index", 20, host(1), "16777216", 16777216, '"lo"', 1),
    ("mark", 19, host(0x51), "0x51000000", 0x51000000, "0x00000051", 0x51),
    ("gid", 25, host(1000), "3892510720", 3892510720, "1000", 1000),
    ("ifname", 41, b"lo".ljust(16, b"\0"), '""', None, '"lo"', 0x6f6c),
]
as_described = True
for data in (b"", b"\0\4" + host(1)):
    for name, kind, key, plain, plain_again, right, right_again in sets:
        nft("flush", "ruleset")
        send(nftables(0, attribute(1, b"t\0")))
        make("s", kind, key, data)
        first, shown = in_kernel("s"), listed("s")
        saved = nft("list", "ruleset").stdout
        nft("flush", "ruleset")
        load = nft("-f", "-", input=saved)
        again = in_kernel("s")
        print(f"{name:12} {'with' if data else 'no':>4} user data  made with {first:5}  listed {shown:12}  loaded again {again}")
        if load.returncode:
            print("             " + load.stderr.splitlines()[0])
        warned = load.stderr != "" and load.returncode == 0
        want = (right, right_again) if data else (plain, plain_again)
        # An index that has no name any more is listed as a number, and a name may be listed as one of this machine.
        if (shown, again) != want or warned or first != struct.unpack_from("=I", key)[0]:
            as_described = False
sys.exit(0 if as_described else 1)
end
rc=0
python3 sets.py || rc=$?
[ $rc = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo 'as described: without user data elements are read in network byte order'

#!/bin/bash
# FreeRADIUS that signs Access-Accept and Access-Reject as told sends Access-Challenge without a signature, and says nothing.
#
# Expected: clients are told to believe no answer without a Message-Authenticator, so the server is told in post-auth, and for
# rejects in Post-Auth-Type REJECT, to add one. As it knows three answers to an Access-Request, it signs three, or says at
# start that one is left out.
#
# What happens: Access-Challenge (here of a login in two steps, without EAP) bears none, though the request does. The server
# checks its configuration without complaint and logs nothing; only -X says that a section was not found and is ignored.
# A client that believes signed answers alone waits in vain for those of accounts with a second step.
# The statement in a section for challenges, too, signs all three; and so does a single one in authorize, which neither
# Debian's example configuration nor the manuals mention.
#
# Why: rad_postauth (src/main/auth.c) chooses one section by the answer: Post-Auth-Type Challenge, Post-Auth-Type Reject, or
# post-auth's own statements, which are thus for Access-Accept alone. A section that does not exist is none to miss. The
# example configuration has the first of them, among filters, with nothing in it. What authorize puts into the reply stays
# there whatever the answer becomes, unless a filter removes it.
#
# Seen with: freeradius 3.2.1+dfsg-4+deb12u1 (Debian 12, amd64); lines in its log besides those of start and end:
#   statement in                                  Access-Accept  Access-Reject  Access-Challenge  log
#   post-auth                                     signed         -              -                   0
#   post-auth, REJECT                             signed         signed         -                   0
#   post-auth, REJECT, Challenge                  signed         signed         signed              0
#   authorize                                     signed         signed         signed              0
#
# Needs: root, Debian 12 with lists of packages (apt-get update), libssl3. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

if [ "${1-}" != inside ]; then
	self=$(realpath "$0")
	tmp=$(mktemp -d)
	child=
	trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || true; rm -rf "$tmp"' EXIT
	trap 'exit 2' HUP INT TERM
	cd "$tmp"
	timeout 25 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= download \
		freeradius=3.2.1+dfsg-4+deb12u1 freeradius-common=3.2.1+dfsg-4+deb12u1 freeradius-utils=3.2.1+dfsg-4+deb12u1 \
		libfreeradius3=3.2.1+dfsg-4+deb12u1 libtalloc2=2.4.0-f2 libpcre3=2:8.39-15 libpcap0.8=1.10.3-1 \
		libdbus-1-3=1.14.10-1~deb12u1 iproute2=6.1.0-3 libbpf1=1:1.1.2-0+deb12u1 libelf1=0.188-2.1 libmnl0=1.0.4-3 >log 2>&1 &
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
LD_LIBRARY_PATH=$PWD/x/usr/lib/freeradius:$PWD/x/usr/lib/x86_64-linux-gnu:$PWD/x/lib/x86_64-linux-gnu
dictionary=$PWD/x/usr/share/freeradius
server=(x/usr/sbin/freeradius -D "$dictionary" -d configuration)
"${server[@]}" -v | sed -n 1p
x/bin/ip link set dev lo up

mkdir configuration
cat >configuration/users <<'end'
one-step Cleartext-Password := "right"
two-steps Auth-Type := Ask
end
sign='update reply {
Message-Authenticator := 0x00
}'
configure() { # IN-AUTHORIZE IN-POST-AUTH
	cat >configuration/radiusd.conf <<end
prefix = $PWD/x/usr
libdir = $PWD/x/usr/lib/freeradius
logdir = $PWD
run_dir = $PWD
pidfile = $PWD/pid
log {
	destination = stdout
	auth = no
}
security {
	reject_delay = 0
}
client here {
	ipaddr = 127.0.0.1
	secret = shared
	require_message_authenticator = yes
}
modules {
	files {
		usersfile = $PWD/configuration/users
	}
	pap {
	}
	always handled {
		rcode = handled
	}
}
server default {
	listen {
		type = auth
		ipaddr = 127.0.0.1
		port = 1812
	}
	authorize {
		$1
		files
		pap
	}
	authenticate {
		Auth-Type PAP {
			pap
		}
		Auth-Type Ask {
			update reply {
				State := 0x01
				Reply-Message := "Which code?"
			}
			update control {
				Response-Packet-Type := Access-Challenge
			}
			handled
		}
	}
	post-auth {
		$2
	}
}
end
}
answer() { # USER PASSWORD CODE: whether the answer is signed
	echo "User-Name=$1,User-Password=$2,Message-Authenticator=0x00" |
		x/usr/bin/radclient -D "$dictionary" -x -r 3 -t 2 127.0.0.1 auth shared >answer 2>&1 || true # it reports what is no Access-Accept
	sed -n '/^Received/,$p' answer >received
	grep -q "^Received $3 " received || { cat answer >&2; exit 2; }
	if grep -q 'Message-Authenticator = 0x[0-9a-f]\{32\}$' received; then echo signed; else echo -; fi
}

failed=0
row='%-44s  %-13s  %-13s  %-16s  %3s\n'
# shellcheck disable=SC2059
printf "$row" 'statement in' Access-Accept Access-Reject Access-Challenge log
try() { # NAME EXPECTED IN-AUTHORIZE IN-POST-AUTH
	local pid accept reject challenge lines
	configure "$3" "$4"
	"${server[@]}" -C >log 2>&1 && ! grep -qiE 'warn|challenge' log || { cat log >&2; failed=1; }
	"${server[@]}" -f >log 2>&1 &
	pid=$!
	for _ in {1..50}; do ! grep -qs 'Ready to process requests' log || break; sleep 0.1; done
	accept=$(answer one-step right Access-Accept)
	reject=$(answer one-step wrong Access-Reject)
	challenge=$(answer two-steps right Access-Challenge)
	kill $pid
	wait $pid || true
	lines=$(sed -n '/Ready to process requests/,$p' log | grep -cvE 'Ready to process requests|Signalled to terminate|Exiting normally' || true)
	# shellcheck disable=SC2059
	printf "$row" "$1" "$accept" "$reject" "$challenge" "$lines"
	[ "$accept $reject $challenge $lines" = "$2 0" ] || { cat log >&2; failed=1; }
}
of_reject="Post-Auth-Type REJECT {
$sign
}"
of_challenge="Post-Auth-Type Challenge {
$sign
}"
try post-auth 'signed - -' '' "$sign"
try 'post-auth, REJECT' 'signed signed -' '' "$sign
$of_reject"
try 'post-auth, REJECT, Challenge' 'signed signed signed' '' "$sign
$of_reject
$of_challenge"
try authorize 'signed signed signed' "$sign" ''
[ $failed = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo 'as described: post-auth signs no Access-Challenge'

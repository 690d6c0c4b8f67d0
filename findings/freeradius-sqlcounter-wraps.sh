#!/bin/bash
# FreeRADIUS's counters of data (rlm_sqlcounter) tell a gateway what is left of a quota modulo 4 GiB.
#
# Expected: a counter has 64 bits, so that it counts bytes, and its limit may be an integer64. Where the attribute of the
# answer has 32 bits, what is left is cut to the largest value, 4294967295, or the module refuses such a combination at its
# start.
#
# What happens: of 6,000,000,000 bytes left the answer has 1705032704, the lower 32 bits, and there is neither a warning at
# the start nor a line in the log. Somebody with more left may use less at once than somebody with little: with
# 4,294,968,296 left it is 1000 bytes. An integer64 in the answer has the right value; attributes that gateways know have 32
# bits, with a second one for what is beyond.
#
# Why: mod_authorize computes the rest as a uint64_t, and assigns it to vp_integer, a uint32_t, of a reply item that is no
# integer64.
#
# Seen with: freeradius 3.2.1+dfsg-4+deb12u1 (Debian 12, amd64), its SQLite driver:
#   limit        used  left        in 32 bits   in 64 bits
#   1000000000      0  1000000000  1000000000   1000000000
#   6000000000      0  6000000000  1705032704   6000000000
#   6000000000   5000  5999995000  1705027704   5999995000
#   4294968296      0  4294968296  1000         4294968296
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
cat >configuration/dictionary <<'end'
ATTRIBUTE Data-Limit 3010 integer64
ATTRIBUTE Data-Left 3011 integer64
end
counter() { # NAME REPLY
	cat <<end
	sqlcounter $1 {
		sql_module_instance = sql
		dialect = sqlite
		counter_name = Data-$1
		check_name = Data-Limit
		reply_name = $2
		key = User-Name
		reset = never
		query = "SELECT %{control:Tmp-Integer64-0}"
	}
end
}
cat >configuration/radiusd.conf <<end
prefix = $PWD/x/usr
libdir = $PWD/x/usr/lib/freeradius
logdir = $PWD
run_dir = $PWD
pidfile = $PWD/pid
modconfdir = $PWD
log {
	destination = stdout
	auth = no
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
	expr {
	}
	sql {
		driver = rlm_sql_sqlite
		dialect = sqlite
		sqlite {
			filename = $PWD/empty.db
			bootstrap = $PWD/configuration/schema.sql
		}
		pool {
			start = 1
			min = 1
			max = 1
		}
	}
$(counter 32 ChilliSpot-Max-Total-Octets)
$(counter 64 Data-Left)
}
server default {
	listen {
		type = auth
		ipaddr = 127.0.0.1
		port = 1812
	}
	authorize {
		files
		32
		64
		update reply {
			Reply-Message := "%{reply:Data-Left}"
		}
		pap
	}
	authenticate {
		Auth-Type PAP {
			pap
		}
	}
}
end
echo 'CREATE TABLE radacct (username TEXT);' >configuration/schema.sql
cases='1000000000 0 1000000000 1000000000
6000000000 0 1705032704 6000000000
6000000000 5000 1705027704 5999995000
4294968296 0 1000 4294968296'
while read -r limit used _; do
	echo "limit-$limit-used-$used Cleartext-Password := right, Data-Limit := $limit, Tmp-Integer64-0 := $used"
done <<<"$cases" >configuration/users

failed=0
"${server[@]}" -C >check 2>&1 || { cat check >&2; exit 2; }
! grep -i 'warn' check >&2 || failed=1
"${server[@]}" -f >log 2>&1 &
for _ in {1..50}; do ! grep -qs 'Ready to process requests' log || break; sleep 0.1; done
row='%-11s  %-5s %-11s  %s\n'
# shellcheck disable=SC2059
printf "$row" limit used 'in 32 bits' 'in 64 bits'
while read -r limit used short long; do
	echo "User-Name=limit-$limit-used-$used,User-Password=right,Message-Authenticator=0x00" |
		x/usr/bin/radclient -D "$dictionary" -x -r 3 -t 2 127.0.0.1 auth shared >answer 2>&1 || { cat answer log >&2; exit 2; }
	got32=$(sed -n 's/^\tChilliSpot-Max-Total-Octets = //p' answer)
	got64=$(sed -n 's/^\tReply-Message = "\(.*\)"$/\1/p' answer)
	# shellcheck disable=SC2059
	printf "$row" "$limit" "$used" "$got32" "$got64"
	[ "$got32 $got64" = "$short $long" ] || failed=1
done <<<"$cases"
lines=$(sed -n '/Ready to process requests/,$p' log | grep -cv 'Ready to process requests' || true)
[ "$lines" = 0 ] || { cat log >&2; failed=1; }
[ $failed = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo 'as described: what is left is sent modulo 2^32, without a word'

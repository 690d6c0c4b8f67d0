#!/bin/bash
# perf script as root of a user namespace (as in rootless containers) denies kernel frames that they are the kernel's, or
# names a wrong function, and tells nobody.
#
# Expected: where the kernel hides its addresses, perf script says so, or prints kernel frames without names but as
# "([kernel.kallsyms])", as it does for a process without CAP_SYSLOG. What counts those frames counts the kernel's share.
#
# What happens: in a user namespace all addresses in /proc/kallsyms read 0. Kernel frames of the same recording become
# "[unknown] ([unknown])", like frames of a lost library. Those in the kernel's first page get the name of one symbol there
# is, a wrong one (here entry_SYSCALL_64_after_hwframe becomes __start_early_lsm_info). No warning; exit 0. Whoever
# sums by "[kernel.kallsyms]" finds a part of the kernel's share (47 of 239 frames below), or none.
#
# Why: perf asks whether it has CAP_SYSLOG before it believes /proc/kallsyms (symbol__read_kptr_restrict in
# tools/perf/util/symbol.c), and as root of its own user namespace it has. The kernel shows addresses to those who have it in
# the first user namespace (kallsyms_show_value in kernel/ksyms_common.c; kernel.kptr_restrict in proc(5)).
# So perf takes the zeros for addresses and moves all symbols to the start of the kernel's text. With
# kernel.perf_event_paranoid below 2 and kernel.kptr_restrict 0 everybody sees addresses; there this script reads a list of
# zeros instead, bound over /proc/kallsyms in the namespace.
#
# Seen with: linux-perf 6.1.176-1 (Debian 12, amd64), kernel 6.18.44, kernel.perf_event_paranoid 2, kernel.kptr_restrict 0;
# numbers of frames (they differ from run to run):
#   perf script run by      exit  messages  name, [kernel.kallsyms]  no name, [kernel.kallsyms]  no name, [unknown]
#   root                       0         0                      239                           0                   0
#   root, no CAP_SYSLOG        0         0                        0                         239                   0
#   root of user namespace     0         0                       47                           0                 192
#
# Needs: root, Debian 12 with lists of packages (apt-get update). Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail
set -E # the trap of ERR holds in functions

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 2' HUP INT TERM ERR
cd "$tmp"
timeout 25 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= download \
	linux-perf=6.1.176-1 libbabeltrace1=1.5.11-1+b2 libdw1=0.188-2.1 libelf1=0.188-2.1 libnuma1=2.0.16-1 libopencsd1=1.3.3-1 \
	libperl5.36=5.36.0-7+deb12u3 libpython3.11=3.11.2-6+deb12u8 libslang2=2.3.3-3 libunwind8=1.6.2-3 >log 2>&1 ||
	{ cat log >&2; exit 2; }
for deb in *.deb; do dpkg-deb -x "$deb" x; done
perf=$tmp/x/usr/bin/perf
libraries=$(echo "$tmp"/x/usr/lib/*-linux-gnu)
perf() { # perf with its libraries, and with a home and a configuration of its own, by the command in $by
	timeout -k 1 6 "${by[@]}" env HOME="$tmp" PERF_CONFIG=/dev/null LD_LIBRARY_PATH="$libraries" "$perf" "$@"
}
by=()
perf version
echo "kernel $(uname -r), kernel.perf_event_paranoid $(cat /proc/sys/kernel/perf_event_paranoid), kernel.kptr_restrict" \
	"$(cat /proc/sys/kernel/kptr_restrict)"
perf record -q -N -g -e cpu-clock -F 999 -o data -- dd if=/dev/zero of=/dev/null bs=1M count=4000 status=none >log 2>&1 ||
	{ cat log >&2; exit 2; }

row='%-22s  %4s  %8s  %23s  %26s  %18s\n'
# shellcheck disable=SC2059
printf "$row" 'perf script run by' exit messages 'name, [kernel.kallsyms]' 'no name, [kernel.kallsyms]' 'no name, [unknown]'
try() { # NAME
	rc=0
	perf script -i data >frames 2>messages || rc=$?
	messages=$(wc -l <messages)
	# Frames of the kernel are those in the upper half of the address space.
	grep -E '^\s+ffff[0-9a-f]{12} ' frames >kernel || true
	named=$(grep -F '([kernel.kallsyms])' kernel | grep -vcF ' [unknown] (' || true)
	nameless=$(grep -cF ' [unknown] ([kernel.kallsyms])' kernel || true)
	unknown=$(grep -cF ' [unknown] ([unknown])' kernel || true)
	# shellcheck disable=SC2059
	printf "$row" "$1" $rc "$messages" "$named" "$nameless" "$unknown"
}
failed=0
try root
mv kernel true
all=$named
[ "$all" -ge 20 ] || { echo 'too few frames of the kernel' >&2; exit 2; }
[ $rc = 0 ] && [ "$unknown" = 0 ] || failed=1

by=(setpriv --bounding-set -syslog --inh-caps -syslog)
try 'root, no CAP_SYSLOG'

by=(unshare --user --map-root-user)
if "${by[@]}" grep -qv '^00*  *' /proc/kallsyms; then
	echo '(everybody sees addresses of the kernel here: with a list of zeros)'
	sed -E 's/^[0-9a-f]+/0000000000000000/' /proc/kallsyms >zeros
	# shellcheck disable=SC2016
	by+=(--mount bash -c 'mount --bind zeros /proc/kallsyms && exec "$@"' -)
fi
try 'root of user namespace'
[ $rc = 0 ] && [ "$messages" = 0 ] && [ $((unknown * 2)) -gt "$all" ] && [ "$nameless" = 0 ] || failed=1
echo 'the same frames, by root and by root of the user namespace:'
paste <(sed -E 's/^\s+//' true) <(sed -E 's/^\s+[0-9a-f]+ //' kernel) | sort | uniq -c | sort -rn | awk -F'\t' 'NR <= 5 { print $1 "  ->  " $2 }'
[ $failed = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo 'as described: kernel frames do not say that they are the kernel'"'"'s'

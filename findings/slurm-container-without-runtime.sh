#!/bin/bash
# Slurm runs a job that is to run in a container on the node itself where the node has no oci.conf, and calls it completed.
#
# Expected: sbatch --container=BUNDLE runs the job in that OCI bundle, or the job fails. Who asks for a container relies on
# what is in it, or on what it keeps the job from.
#
# What happens: on a node without oci.conf, which is how Debian installs it, the script runs with the node's files and all
# its rights there. SLURM_CONTAINER is set as in a container, scontrol shows Container=BUNDLE, the state is COMPLETED and the
# exit code 0. Nobody looks whether there is a bundle: a folder that does not exist runs as well. Only slurmd's log has a
# line, "error: No oci.conf file". Of a cluster whose nodes differ, some jobs run inside and some outside.
#
# sbatch(1) calls the option "Absolute path to OCI container bundle", and does not speak of oci.conf. (Why has not been looked
# up in the sources.)
#
# Seen with: slurmd 22.05.8-4+deb12u3 (Debian 12, amd64):
#   bundle    script ran on   SLURM_CONTAINER   state       exit code   lines in slurmd's log
#   whole     the node        set               COMPLETED   0:0         1
#   absent    the node        set               COMPLETED   0:0         1
#
# Needs: root, Debian 12 with lists of packages (apt-get update). Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

if [ "${1-}" != inside ]; then
	self=$(realpath "$0")
	tmp=$(mktemp -d)
	chmod 755 "$tmp" # else munged refuses it
	child=
	trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || true; rm -rf "$tmp"' EXIT
	trap 'exit 2' HUP INT TERM
	cd "$tmp"
	timeout 25 apt-get -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= download \
		slurmctld=22.05.8-4+deb12u3 slurmd=22.05.8-4+deb12u3 slurm-client=22.05.8-4+deb12u3 \
		slurm-wlm-basic-plugins=22.05.8-4+deb12u3 munge=0.5.15-2+deb12u1 libmunge2=0.5.15-2+deb12u1 \
		libhwloc15=2.9.0-1 libnuma1=2.0.16-1 iproute2=6.1.0-3 libbpf1=1:1.1.2-0+deb12u1 libelf1=0.188-2.1 libmnl0=1.0.4-3 \
		>log 2>&1 & child=$!
	wait $child || { cat log >&2; exit 2; }
	child=
	for deb in *.deb; do dpkg-deb -x "$deb" x; done
	rc=0
	timeout -k 2 60 unshare --net --uts --pid --fork --mount-proc --kill-child bash "$self" inside & child=$!
	wait $child || rc=$?
	child=
	[ $rc -le 1 ] || rc=2
	exit $rc
fi

set -E
trap 'exit 2' ERR
lib=$PWD/x/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$lib:$lib/slurm-wlm:$PWD/x/lib/x86_64-linux-gnu SLURM_CONF=$PWD/slurm.conf
mkdir bin # Debian's alternatives
for program in x/usr/bin/*-wlm x/usr/sbin/*-wlm x/usr/bin/munge x/usr/sbin/munged; do
	name=${program##*/}
	ln -s "$PWD/$program" "bin/${name%-wlm}"
done
export PATH=$PWD/bin:$PATH
x/bin/ip link set dev lo up
x/bin/ip addr add 10.99.0.1/32 dev lo # with 127.0.0.1 alone the C library finds no addresses of names
hostname ctl
mkdir state
cat >slurm.conf <<END
ClusterName=finding
SlurmctldHost=ctl(10.99.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$PWD/munge.sock
PluginDir=$lib/slurm-wlm
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool
SlurmctldPidFile=$PWD/ctld.pid
SlurmdPidFile=$PWD/slurmd.pid
SlurmctldLogFile=$PWD/ctld.log
SlurmdLogFile=$PWD/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=node1 NodeHostname=localhost NodeAddr=10.99.0.1 Port=7001 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
await() { # COMMAND...: until it works, for 20 s
	for _ in {1..200}; do ! "$@" >/dev/null 2>&1 || return 0; sleep 0.1; done
	cat ./*.log >&2
	exit 2
}
dd if=/dev/urandom of=munge.key bs=128 count=1 2>/dev/null
chmod 400 munge.key
munged --foreground --socket="$PWD/munge.sock" --key-file="$PWD/munge.key" --pid-file="$PWD/munge.pid" \
	--log-file="$PWD/munge.log" --seed-file="$PWD/munge.seed" >/dev/null 2>&1 &
await munge -S "$PWD/munge.sock" -n
slurmctld -D >/dev/null 2>&1 &
slurmd -D -N node1 -d "$PWD/bin/slurmstepd" >/dev/null 2>&1 &
idle() { [ "$(sinfo -h -o %T)" = idle ]; }
await idle
slurmd -V

# A bundle whose files are none of the node's.
mkdir -p bundle/rootfs
cat >bundle/config.json <<'END'
{"ociVersion": "1.0.0", "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sh"], "cwd": "/"},
 "root": {"path": "rootfs"}, "linux": {"namespaces": [{"type": "mount"}, {"type": "pid"}]}}
END
node=$(readlink /proc/self/ns/mnt)

failed=0
row='%-8s  %-14s  %-16s  %-10s  %-10s  %s\n'
# shellcheck disable=SC2059
printf "$row" bundle 'script ran on' SLURM_CONTAINER state 'exit code' "lines in slurmd's log"
for bundle in whole absent; do
	path=$PWD/bundle
	[ $bundle = whole ] || path=$PWD/nothing
	before=$(grep -c 'error: No oci.conf file' slurmd.log || true)
	# shellcheck disable=SC2016
	job=$(sbatch --parsable --container="$path" --output=/dev/null --wrap='(readlink /proc/self/ns/mnt; echo "$SLURM_CONTAINER") >'"$PWD/out.$bundle")
	ended() { scontrol show job "$job" -o >shown && grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED)' shown; }
	await ended
	state=$(sed -E 's/.* JobState=([A-Z]+) .*/\1/' shown)
	code=$(sed -E 's/.* ExitCode=([0-9:]+) .*/\1/' shown)
	grep -q " Container=$path" shown || failed=1
	place=elsewhere variable=unset
	[ "$(sed -n 1p "out.$bundle" 2>/dev/null)" != "$node" ] || place='the node'
	[ "$(sed -n 2p "out.$bundle" 2>/dev/null)" != "$path" ] || variable=set
	lines=$(($(grep -c 'error: No oci.conf file' slurmd.log || true) - before))
	# shellcheck disable=SC2059
	printf "$row" $bundle "$place" $variable "$state" "$code" $lines
	[ "$place $variable $state $code $lines" = 'the node set COMPLETED 0:0 1' ] || failed=1
done
[ $failed = 0 ] || { echo 'no longer as described' >&2; exit 1; }
echo 'as described: the jobs ran without their container'

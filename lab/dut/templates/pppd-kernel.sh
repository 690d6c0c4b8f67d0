#!/bin/sh
# pppd for pppoe-server in kernel mode: $1 is "pty", $2 "/usr/sbin/pppoe … -e SESSION:MAC …".
[ "$1" = pty ] || { echo "pppoe-server calls pppd in a way that is not known: $*" >&2; exit 2; }
session=${2##* -e }
session=${session%% *}
shift 2
exec pppd plugin rp-pppoe.so nic-{{.Port "lan"}} rp_pppoe_sess "$session" "$@"

package machine

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// Feature is something of the kernel that programs use, by the name people know it by.
type Feature string

// Features that can be tried.
const (
	Nftables    Feature = "nftables"
	IptablesNFT Feature = "iptables-nft"
	TUN         Feature = "TUN"
	NFQUEUE     Feature = "NFQUEUE"
	BPFAtTC     Feature = "BPF at tc"
	AFXDP       Feature = "AF_XDP"
)

// trials say how a feature is tried: a program, and a script that uses it and fails
// without the feature. $1 is a network interface. Everything the script changes belongs
// to the network namespace it runs in.
var trials = map[Feature]struct{ program, script string }{
	Nftables: {"nft", `nft -f - <<EOF
table ip doctor {
  set admitted { type ipv4_addr . ether_addr; }
  chain forward {
    type filter hook forward priority 0; policy accept;
    iifname "$1" ip saddr . ether saddr != @admitted ct state new drop
  }
}
EOF
nft delete table ip doctor`},
	IptablesNFT: {"iptables", `iptables --version
iptables -A FORWARD -i "$1" -m conntrack --ctstate NEW -m mark --mark 1 -j ACCEPT
iptables -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
case $(iptables --version) in *nf_tables*) ;; *) echo "$(iptables --version) is not iptables-nft" >&2; exit 1;; esac`},
	TUN:     {"ip", "ip tuntap add dev gwdoc-tun mode tun; ip link show gwdoc-tun >/dev/null"},
	NFQUEUE: {"iptables", `iptables -A FORWARD -i "$1" -j NFQUEUE --queue-num 1`},
	AFXDP:   {"ip", `grep -q '^XDP ' /proc/net/protocols || { echo "no such sockets: CONFIG_XDP_SOCKETS" >&2; exit 1; }`},
	// A program of one instruction: return 0.
	BPFAtTC: {"tc", `tc qdisc add dev "$1" clsact; tc filter add dev "$1" ingress bpf bytecode '1,6 0 0 0,'`},
}

// Script tries the feature; $1 is a network interface. It prints what it found, if anything.
func (f Feature) Script() string { return trials[f].script }

// featureTimeout bounds trying one feature.
const featureTimeout = 15 * time.Second

// missing is why the kernel's feature does not work, "" when it does or cannot be tried
// from here: that takes root and the feature's program.
func (f Feature) missing(ctx context.Context) string {
	trial, known := trials[f]
	if _, err := exec.LookPath(trial.program); err != nil || !known || os.Geteuid() != 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, featureTimeout)
	defer cancel()
	_, err := privately(ctx, trial.script, "sh", "lo").Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exit):
		return cmp.Or(firstLine(string(exit.Stderr)), err.Error())
	}
	return err.Error()
}

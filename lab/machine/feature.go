package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Feature is something of the kernel that programs use, by the name people know it by, or an option of the kernel's
// configuration: "CONFIG_NFT_QUEUE".
type Feature string

// Features of programs and devices, which can be tried, and those of the lab itself.
const (
	Nftables    Feature = "nftables"
	IptablesNFT Feature = "iptables-nft"
	TUN         Feature = "TUN"
	NFQUEUE     Feature = "NFQUEUE"
	NFTQueue    Feature = "nft queue"
	PacketQueue Feature = "nft queue or NFQUEUE" // what rules of nftables that queue packets use, with or without nft
	Flowtables  Feature = "flowtables"
	BPFAtTC     Feature = "BPF at tc"
	AFXDP       Feature = "AF_XDP"
	PPP         Feature = "PPP"
	PPPoE       Feature = "PPPoE"
	TokenBucket Feature = "token bucket" // limits a link's rate
	Netem       Feature = "netem"        // delays and loses frames
	NAT         Feature = "NAT"
	FlowCache   Feature = "flow cache" // what gatewayd repeats the kernel's decisions with

	IPIP        Feature = "IP in IP"
	GRE         Feature = "GRE"
	VXLAN       Feature = "VXLAN"
	WireGuard   Feature = "WireGuard"
	OpenVPNDCO  Feature = "ovpn-dco"
	ESPNull     Feature = "ESP without encryption"
	ESPCBC      Feature = "ESP with AES-CBC"
	ESPGCM      Feature = "ESP with AES-GCM"
	ESPChaCha   Feature = "ESP with ChaCha20-Poly1305"
	ESPBlowfish Feature = "ESP with Blowfish"

	Namespaces Feature = "namespaces"
	OverlayFS  Feature = "overlayfs"
	Veth       Feature = "veth"
	Macvlan    Feature = "macvlan"
	Bridge     Feature = "bridge"
)

// Part is a part of the kernel that a feature consists of.
type Part struct {
	Option string // of the kernel's configuration: "CONFIG_NFT_QUEUE"
	Module string // that is built of it; empty: there is none
}

// feature says how a feature is tried, and what it consists of.
type feature struct {
	// A program, and a script that uses the feature with it and fails without. $1 is a network interface. Everything
	// the script changes belongs to the network namespace it runs in.
	program, script string
	parts           []Part
}

// either has the features of which one is enough, by the name of both.
var either = map[Feature][]Feature{PacketQueue: {NFTQueue, NFQUEUE}}

// elsewhere are features that Debian 12's kernel lacks, with how one gets them.
var elsewhere = map[Feature]string{
	OpenVPNDCO: "a module that is built on the machine: sudo apt-get install openvpn-dco-dkms linux-headers-" +
		debianArch(),
	FlowCache: "Linux 6.6 or later with CONFIG_NF_CONNTRACK and CONFIG_DEBUG_INFO_BTF",
}

// debianArch is Debian's name of this machine's architecture, with which its packages of kernels end.
func debianArch() string {
	switch runtime.GOARCH {
	case "386":
		return "686"
	case "arm":
		return "armmp"
	}
	return runtime.GOARCH
}

// Advice is how to get a feature that distributions' kernels may lack, "" for those that they have.
func (f Feature) Advice() string { return elsewhere[f] }

var features = map[Feature]feature{
	Nftables: {"nft", `nft -f - <<EOF
table ip doctor {
  set admitted { type ipv4_addr . ether_addr; }
  chain forward {
    type filter hook forward priority 0; policy accept;
    iifname "$1" ip saddr . ether saddr != @admitted ct state new drop
  }
}
EOF
nft delete table ip doctor`,
		[]Part{{"CONFIG_NF_TABLES", "nf_tables"}, {"CONFIG_NFT_CT", "nft_ct"}}},
	IptablesNFT: {"iptables", `iptables --version
iptables -A FORWARD -i "$1" -m conntrack --ctstate NEW -m mark --mark 1 -j ACCEPT
iptables -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
case $(iptables --version) in *nf_tables*) ;; *) echo "$(iptables --version) is not iptables-nft" >&2; exit 1;; esac`,
		[]Part{
			{"CONFIG_NFT_COMPAT", "nft_compat"}, {"CONFIG_NETFILTER_XT_MATCH_CONNTRACK", "xt_conntrack"},
			{"CONFIG_NETFILTER_XT_MARK", "xt_mark"}, {"CONFIG_NETFILTER_XT_TARGET_TCPMSS", "xt_TCPMSS"},
		}},
	TUN: {"ip", "ip tuntap add dev gwdoc-tun mode tun; ip link show gwdoc-tun >/dev/null", []Part{{"CONFIG_TUN", "tun"}}},
	NFQUEUE: {"iptables", `iptables -A FORWARD -i "$1" -j NFQUEUE --queue-num 1`,
		[]Part{{"CONFIG_NFT_COMPAT", "nft_compat"}, {"CONFIG_NETFILTER_XT_TARGET_NFQUEUE", "xt_NFQUEUE"},
			{"CONFIG_NETFILTER_NETLINK_QUEUE", "nfnetlink_queue"}}},
	NFTQueue: {"nft", `nft 'table ip doctor { chain forward { type filter hook forward priority 0; queue num 1; }; }'
nft delete table ip doctor`,
		[]Part{{"CONFIG_NFT_QUEUE", "nft_queue"}, {"CONFIG_NETFILTER_NETLINK_QUEUE", "nfnetlink_queue"}}},
	PacketQueue: {},
	// The list of connections shows which ones are in the flowtable.
	Flowtables: {"nft", `nft "table ip doctor { flowtable ft { hook ingress priority 0; devices = { $1 }; }
chain forward { type filter hook forward priority 0; meta l4proto tcp flow add @ft; }; }"
nft delete table ip doctor
cat /proc/net/nf_conntrack >/dev/null`,
		[]Part{
			{"CONFIG_NF_FLOW_TABLE", "nf_flow_table"}, {"CONFIG_NF_FLOW_TABLE_INET", "nf_flow_table_inet"},
			{"CONFIG_NFT_FLOW_OFFLOAD", "nft_flow_offload"}, {"CONFIG_NF_CONNTRACK_PROCFS", ""},
		}},
	AFXDP: {"ip", `grep -q '^XDP ' /proc/net/protocols || { echo "there are no such sockets" >&2; exit 1; }`,
		[]Part{{"CONFIG_XDP_SOCKETS", ""}}},
	// Nothing but pppd opens the device, and nothing loads its module for it.
	PPP: {"modprobe", `modprobe -q -a ppp_generic ppp_async || :
[ -c /dev/ppp ] || { echo "there is no /dev/ppp" >&2; exit 1; }
exec 3<>/dev/ppp`, []Part{{"CONFIG_PPP", "ppp_generic"}, {"CONFIG_PPP_ASYNC", "ppp_async"}}},
	PPPoE: {"modprobe", `modprobe -q pppoe || :
grep -q '^PPPOE ' /proc/net/protocols || { echo "there are no such sockets" >&2; exit 1; }`,
		[]Part{{"CONFIG_PPP", "ppp_generic"}, {"CONFIG_PPPOE", "pppoe"}}},
	TokenBucket: {"tc", `tc qdisc replace dev "$1" root tbf rate 100mbit burst 16000 limit 100000`,
		[]Part{{"CONFIG_NET_SCH_TBF", "sch_tbf"}}},
	Netem: {"tc", `tc qdisc replace dev "$1" root netem delay 1ms`, []Part{{"CONFIG_NET_SCH_NETEM", "sch_netem"}}},
	NAT: {"nft", `nft 'table ip doctor { chain out { type nat hook postrouting priority srcnat; oifname "none" masquerade; }; }'
nft delete table ip doctor`,
		[]Part{{"CONFIG_NFT_NAT", "nft_chain_nat"}, {"CONFIG_NFT_MASQ", "nft_masq"}}},
	// The functions are those of connection tracking; the hooks of programs (tcx) are Linux 6.6's.
	FlowCache: {"modprobe", `modprobe -q nf_conntrack || :
for f in bpf_skb_ct_lookup bpf_ct_release bpf_ct_change_timeout tcx_prog_attach; do
  grep -q " $f\b" /proc/kallsyms || { echo "the kernel has no $f" >&2; exit 1; }
done
[ -e /sys/kernel/btf/vmlinux ] || { echo "the kernel does not describe its types (BTF)" >&2; exit 1; }`, nil},
	// A program of one instruction: return 0.
	BPFAtTC: {"tc", `tc qdisc add dev "$1" clsact; tc filter add dev "$1" ingress bpf bytecode '1,6 0 0 0,'`,
		[]Part{{"CONFIG_BPF_SYSCALL", ""}, {"CONFIG_NET_SCH_INGRESS", "sch_ingress"}, {"CONFIG_NET_CLS_BPF", "cls_bpf"}}},
	IPIP:      {"ip", link("ipip local 192.0.2.1 remote 192.0.2.2"), []Part{{"CONFIG_NET_IPIP", "ipip"}}},
	GRE:       {"ip", link("gre local 192.0.2.1 remote 192.0.2.2"), []Part{{"CONFIG_NET_IPGRE", "ip_gre"}}},
	VXLAN:     {"ip", link("vxlan id 1 local 192.0.2.1 remote 192.0.2.2 dstport 4789"), []Part{{"CONFIG_VXLAN", "vxlan"}}},
	WireGuard: {"ip", link("wireguard"), []Part{{"CONFIG_WIREGUARD", "wireguard"}}},
	// Not the kernel's own ovpn (6.16), which takes OpenVPN 2.7.
	OpenVPNDCO: {"ip", link("ovpn-dco"), []Part{{"", "ovpn-dco-v2"}}},
	ESPNull:    esp("auth digest_null '' enc cipher_null ''", Part{"CONFIG_CRYPTO_NULL", "crypto_null"}),
	ESPCBC: esp("auth 'hmac(sha1)' "+key(20)+" enc 'cbc(aes)' "+key(32), Part{"CONFIG_CRYPTO_CBC", "cbc"}, Part{
		"CONFIG_CRYPTO_AUTHENC", "authenc"}, Part{"CONFIG_CRYPTO_HMAC", "hmac"}),
	ESPGCM: esp(
		"aead 'rfc4106(gcm(aes))' "+key(36)+" 128", Part{"CONFIG_CRYPTO_GCM", "gcm"}, Part{"CONFIG_CRYPTO_SEQIV", "seqiv"}),
	ESPChaCha: esp(
		"aead 'rfc7539esp(chacha20,poly1305)' "+key(36)+" 128", Part{"CONFIG_CRYPTO_CHACHA20POLY1305", "chacha20poly1305"}),
	ESPBlowfish: esp("auth 'hmac(sha1)' "+key(20)+" enc 'cbc(blowfish)' "+key(16), Part{"CONFIG_CRYPTO_BLOWFISH",
		"blowfish_generic"}, Part{"CONFIG_CRYPTO_CBC", "cbc"}, Part{"CONFIG_CRYPTO_AUTHENC", "authenc"}),
	// The doctor tries these with the lab's own hosts.
	Namespaces: {parts: []Part{{"CONFIG_NET_NS", ""}, {"CONFIG_PID_NS", ""}, {"CONFIG_UTS_NS", ""}}},
	OverlayFS:  {parts: []Part{{"CONFIG_OVERLAY_FS", "overlay"}}},
	Veth:       {parts: []Part{{"CONFIG_VETH", "veth"}}},
	Macvlan:    {parts: []Part{{"CONFIG_MACVLAN", "macvlan"}}},
	Bridge:     {parts: []Part{{"CONFIG_BRIDGE", "bridge"}}},
}

// link is a script that makes an interface of a type.
func link(kind string) string { return "ip link add gwdoc-tun type " + kind }

// esp is ESP in tunnel mode with algorithms as ip-xfrm(8) names them.
func esp(algorithms string, parts ...Part) feature {
	const state = `ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel `
	return feature{"ip", state + algorithms,
		append([]Part{{"CONFIG_XFRM_USER", "xfrm_user"}, {"CONFIG_INET_ESP", "esp4"}}, parts...)}
}

// key is a key of so many bytes.
func key(bytes int) string { return "0x" + strings.Repeat("11", bytes) }

// Features lists all features, by name.
func Features() []Feature { return slices.Sorted(maps.Keys(features)) }

// Script tries the feature; $1 is a network interface. It prints what it found, if anything.
func (f Feature) Script() string { return features[f].script }

// Parts are the kernel's parts that the feature consists of; none of one that is either of several.
func (f Feature) Parts() []Part {
	if f.isOption() {
		return []Part{{Option: string(f)}}
	}
	return features[f].parts
}

// Either are the features of which one is enough: the feature itself where it stands alone.
func (f Feature) Either() []Feature {
	if list := either[f]; list != nil {
		return list
	}
	return []Feature{f}
}

// noneOf names what each of several features lacks, "" when one of them lacks nothing.
func noneOf(list []Feature, lacks func(Feature) string) string {
	var texts []string
	for _, f := range list {
		text := lacks(f)
		if text == "" {
			return ""
		}
		texts = append(texts, fmt.Sprintf("%s: %s", f, text))
	}
	return strings.Join(texts, "; ")
}

// InDebian reports whether Debian's kernels have the feature, from Debian 12 on.
func (f Feature) InDebian() bool { _, known := features[f]; return known && f.Advice() == "" }

func (f Feature) isOption() bool { return strings.HasPrefix(string(f), "CONFIG_") }

// featureTimeout bounds trying one feature. In an emulated machine the kernel loads its modules for tens of seconds.
const featureTimeout = time.Minute

// takesBPF are features that take programs for the kernel (bpf(2)).
var takesBPF = []Feature{BPFAtTC, AFXDP, FlowCache}

// refused is what keeps this process from using the feature although it is root, "" when nothing does.
func (f Feature) refused() string {
	if !root() {
		return ""
	}
	// features work without these threads
	list := slices.DeleteFunc(bars(), func(b Bar) bool { return b.What == HiddenThreads })
	if len(list) == 0 && slices.Contains(takesBPF, f) {
		list = refusedCalls(bpfCall)
	}
	return barred(list)
}

// missing is why the kernel's feature does not work, "" when it does. A feature is tried. Where that does not go,
// because it takes root and the feature's program, the kernel's configuration says.
func (f Feature) missing(ctx context.Context) string {
	if list := either[f]; list != nil {
		return noneOf(list, func(f Feature) string { return f.missing(ctx) })
	}
	unset := f.Unset()
	trial, known := features[f]
	if _, err := exec.LookPath(trial.program); err != nil || !known || os.Geteuid() != 0 {
		return unset
	}
	ctx, cancel := context.WithTimeout(ctx, featureTimeout)
	defer cancel()
	_, err := isolatedShell(ctx, trial.script, "sh", "lo").Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case unset != "":
		return unset
	case ctx.Err() != nil:
		return fmt.Sprintf("trying it takes longer than %v: the machine is busy", featureTimeout)
	case errors.As(err, &exit):
		text := cmp.Or(firstLine(string(exit.Stderr)), err.Error())
		if f.Advice() != "" {
			text += " (" + f.Advice() + ")"
		}
		return text
	}
	return err.Error()
}

// Unset names the options of the feature that this machine's kernel was built without, "" when there are none or
// the kernel does not show its configuration.
func (f Feature) Unset() string {
	if list := either[f]; list != nil {
		return noneOf(list, Feature.Unset)
	}
	s := files{os.DirFS("/")}
	config := s.options(s.text("/proc/sys/kernel/osrelease"))
	if config == nil {
		return ""
	}
	var list []string
	for _, p := range f.Parts() {
		if p.Option != "" && config[p.Option] == "" {
			list = append(list, p.Option)
		}
	}
	switch len(list) {
	case 0:
		return ""
	case 1:
		return list[0] + " is not set"
	}
	return strings.Join(list, ", ") + " are not set"
}

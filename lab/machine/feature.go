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

// Feature is a feature of the kernel that programs use: its usual name, or an option of the kernel's configuration such
// as "CONFIG_NFT_QUEUE".
type Feature string

// Features that devices and programs need, and in the last group those that the lab needs.
const (
	Nftables    Feature = "nftables"
	IptablesNFT Feature = "iptables-nft"
	TUN         Feature = "TUN"
	NFQUEUE     Feature = "NFQUEUE"
	NFTQueue    Feature = "nft queue"
	PacketQueue Feature = "nft queue or NFQUEUE" // either lets netfilter queue packets to a program
	Flowtables  Feature = "flowtables"
	BPFAtTC     Feature = "BPF at tc"
	AFXDP       Feature = "AF_XDP"
	PPP         Feature = "PPP"
	PPPoE       Feature = "PPPoE"
	TokenBucket Feature = "token bucket" // limits a link's rate
	Netem       Feature = "netem"        // delays and loses frames
	NAT         Feature = "NAT"
	FlowCache   Feature = "flow cache" // lets gatewayd's programs reuse what netfilter decided for a connection

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
	IPv6       Feature = "IPv6"
)

// Part is a part of the kernel that a feature needs.
type Part struct {
	Option string // of the kernel's configuration: "CONFIG_NFT_QUEUE"
	Module string // that the option builds; empty: none
}

// feature says how to try a feature, and which parts of the kernel it needs.
type feature struct {
	program string // that the script needs
	// script uses the feature and fails without it. $1 is a network interface. All that the script changes belongs to the
	// network namespace in which it runs.
	script string
	parts  []Part
}

// alternatives are features that are there when one of several others is.
var alternatives = map[Feature][]Feature{PacketQueue: {NFTQueue, NFQUEUE}}

// notInDebian has the features that Debian 12's kernel lacks.
var notInDebian = []Feature{OpenVPNDCO, FlowCache}

// advice tells how to get features that no other kernel of Debian's brings.
var advice = map[Feature]string{
	OpenVPNDCO: "a module that is built on the machine: sudo apt-get install openvpn-dco-dkms linux-headers-" +
		debianArch(),
	IPv6:      "a kernel with CONFIG_IPV6 that is started without ipv6.disable=1",
	FlowCache: "Linux 6.6 or later with CONFIG_NF_CONNTRACK and CONFIG_DEBUG_INFO_BTF",
}

// debianArch is the name of this machine's architecture in Debian's kernel packages.
func debianArch() string {
	switch runtime.GOARCH {
	case "386":
		return "686"
	case "arm":
		return "armmp"
	}
	return runtime.GOARCH
}

// Advice tells how to get a feature that a distribution's kernel may lack. It is "" for features that all have.
func (f Feature) Advice() string { return advice[f] }

// features has an entry for each feature with a name.
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
	IPv6: {"ip", `echo 0 >/proc/sys/net/ipv6/conf/"$1"/disable_ipv6; ip -6 addr add 2001:db8::1/64 dev "$1" nodad`,
		[]Part{{"CONFIG_IPV6", "ipv6"}}},
	// The lab reads from the list of connections which ones are in the flowtable, so that file must exist too.
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
	// The script opens the device as pppd does. It loads the module first, which the kernel does not do by itself.
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
	// gatewayd's programs call the three functions of connection tracking. tcx, which attaches them, came with Linux 6.6.
	FlowCache: {"modprobe", `modprobe -q nf_conntrack || :
for f in bpf_skb_ct_lookup bpf_ct_release bpf_ct_change_timeout tcx_prog_attach; do
  grep -q " $f\b" /proc/kallsyms || { echo "the kernel has no $f" >&2; exit 1; }
done
[ -e /sys/kernel/btf/vmlinux ] || { echo "the kernel does not describe its types (BTF)" >&2; exit 1; }`, nil},
	// The bytecode is one instruction: return 0.
	BPFAtTC: {"tc", `tc qdisc add dev "$1" clsact; tc filter add dev "$1" ingress bpf bytecode '1,6 0 0 0,'`,
		[]Part{{"CONFIG_BPF_SYSCALL", ""}, {"CONFIG_NET_SCH_INGRESS", "sch_ingress"}, {"CONFIG_NET_CLS_BPF", "cls_bpf"}}},
	IPIP:      {"ip", link("ipip local 192.0.2.1 remote 192.0.2.2"), []Part{{"CONFIG_NET_IPIP", "ipip"}}},
	GRE:       {"ip", link("gre local 192.0.2.1 remote 192.0.2.2"), []Part{{"CONFIG_NET_IPGRE", "ip_gre"}}},
	VXLAN:     {"ip", link("vxlan id 1 local 192.0.2.1 remote 192.0.2.2 dstport 4789"), []Part{{"CONFIG_VXLAN", "vxlan"}}},
	WireGuard: {"ip", link("wireguard"), []Part{{"CONFIG_WIREGUARD", "wireguard"}}},
	// Linux 6.16 has another module, ovpn, but only OpenVPN 2.7 can use that one.
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
	// These have no script: the doctor (the check before a run) tries them by starting hosts of a lab.
	Namespaces: {parts: []Part{{"CONFIG_NET_NS", ""}, {"CONFIG_PID_NS", ""}, {"CONFIG_UTS_NS", ""}}},
	OverlayFS:  {parts: []Part{{"CONFIG_OVERLAY_FS", "overlay"}}},
	Veth:       {parts: []Part{{"CONFIG_VETH", "veth"}}},
	Macvlan:    {parts: []Part{{"CONFIG_MACVLAN", "macvlan"}}},
	Bridge:     {parts: []Part{{"CONFIG_BRIDGE", "bridge"}}},
}

// link is a script that makes an interface of a kind.
func link(kind string) string { return "ip link add gwdoc-tun type " + kind }

// esp is IPsec's ESP in tunnel mode, with algorithms in the syntax of ip-xfrm(8).
func esp(algorithms string, parts ...Part) feature {
	const state = `ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel `
	return feature{"ip", state + algorithms,
		append([]Part{{"CONFIG_XFRM_USER", "xfrm_user"}, {"CONFIG_INET_ESP", "esp4"}}, parts...)}
}

// key is a key of so many bytes, hexadecimal.
func key(bytes int) string { return "0x" + strings.Repeat("11", bytes) }

// Features lists all features, by name.
func Features() []Feature { return slices.Sorted(maps.Keys(features)) }

// Script returns a shell script that fails if the kernel does not have the feature; $1 is a network interface. It is ""
// for features that have none.
func (f Feature) Script() string { return features[f].script }

// Parts returns the parts of the kernel that the feature needs. A feature with several Alternatives has none.
func (f Feature) Parts() []Part {
	if f.isOption() {
		return []Part{{Option: string(f)}}
	}
	return features[f].parts
}

// Alternatives returns the features of which the kernel needs one. Most features have only themselves.
func (f Feature) Alternatives() []Feature {
	if list := alternatives[f]; list != nil {
		return list
	}
	return []Feature{f}
}

// noneOf joins what fault returns for each of the features. It is "" if one of them has no fault.
func noneOf(list []Feature, fault func(Feature) string) string {
	var texts []string
	for _, f := range list {
		text := fault(f)
		if text == "" {
			return ""
		}
		texts = append(texts, fmt.Sprintf("%s: %s", f, text))
	}
	return strings.Join(texts, "; ")
}

// InDebian reports whether the kernels of Debian 12 and later have the feature.
func (f Feature) InDebian() bool {
	_, known := features[f]
	return known && !slices.Contains(notInDebian, f)
}

// isOption reports whether the feature is an option of the kernel's configuration.
func (f Feature) isOption() bool { return strings.HasPrefix(string(f), "CONFIG_") }

// featureTimeout bounds the script of one feature. On an emulated machine the kernel needs tens of seconds to load
// modules.
const featureTimeout = time.Minute

// bpfFeatures are the features for which programs are loaded into the kernel (bpf(2)).
var bpfFeatures = []Feature{BPFAtTC, AFXDP, FlowCache}

// refused tells why this process may not use the feature although it is root. It is "" if it may.
func (f Feature) refused() string {
	if !root() {
		return ""
	}
	// Features, unlike labs, need neither the kernel's threads nor clocks of CPU time.
	list := slices.DeleteFunc(bars(), func(b Bar) bool { return b.What == HiddenThreads || b.Meter })
	if len(list) == 0 && slices.Contains(bpfFeatures, f) {
		list = refusedCalls(bpfCall)
	}
	return joinBars(list)
}

// missing tells why the kernel's feature does not work; "" if it does. It runs the feature's script. Without root, or
// without the program that the script needs, it looks into the kernel's configuration.
func (f Feature) missing(ctx context.Context) string {
	if list := alternatives[f]; list != nil {
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

// Unset names the options of the feature with which this machine's kernel was not built. It is "" if all are set, or if
// the kernel does not show its configuration.
func (f Feature) Unset() string {
	if list := alternatives[f]; list != nil {
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

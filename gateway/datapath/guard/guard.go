// Package guard keeps the kernel from forwarding for a LAN by itself: rules of
// nftables, by the interfaces' names, that outlive the daemon, what a data path has
// in the kernel, and the interfaces.
//
//	LAN ──▶ frames (netdev ingress) ──▶ stack ──▶ forwarding (inet forward) ──▶ anywhere
//	        drops all, if asked to                drops what no data path judges
//
// A data path's programs are of one device, and go with it: one that is made in its
// place has the name, and nobody who looks at its packets. It also has another
// index, and that is what the rules go by: no mark is needed, and packets that are
// redirected ahead of the stack never meet them. Who makes an interface with an
// index of choice, or takes programs off by hand, is not kept from it.
package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Guard is what is guarded.
type Guard struct {
	LAN     string       // interface; nothing passes from or to it unless it is judged
	WAN     string       // interface where what comes for the LAN is judged, too; empty: the kernel is to forward nothing from or to the LAN at all
	Prefix  netip.Prefix // the LAN's network, where there is a WAN
	Gateway netip.Addr   // the gateway's address in it, where there is a WAN
}

// Shut has the kernel forward nothing that comes in or goes out by an interface of the
// LAN's name, unless it is one of Know. Of a WAN that is none of Know comes nothing
// that claims to be of the LAN, or of the gateway. Doing it twice is the same as
// once, without a gap, and what is known stays known.
func (g Guard) Shut() error {
	forward, postrouting, err := g.rules()
	if err != nil {
		return err
	}
	table := tableName(g.LAN)
	return nft(fmt.Sprintf("table inet %s { set known { type iface_index; }; }\n", table)+
		chain(table, "forward", -500, forward)+chain(table, "postrouting", 500, postrouting), "guarding "+g.LAN)
}

// rules are what holds at two of netfilter's hooks. It is by names, and for packets
// between interfaces that are known it comes after what lets them through by their
// indexes: comparing names takes a packet several times as long.
func (g Guard) rules(known ...int) (forward, postrouting string, err error) {
	lan, err := quote(g.LAN)
	if err != nil {
		return "", "", err
	}
	wan, err := quote(g.WAN)
	if err != nil {
		return "", "", err
	}
	for _, from := range known {
		for _, to := range known {
			if from != to {
				forward += fmt.Sprintf("iif %d oif %d accept\n", from, to)
			}
		}
	}
	forward += fmt.Sprintf("iifname %[1]s iif != @known drop\noifname %[1]s oif != @known drop\n", lan)
	if g.WAN != "" {
		strange := fmt.Sprintf(" iifname %s iif != @known oifname %s drop", wan, lan)
		forward += "ip saddr " + g.Prefix.String() + strange
		postrouting = "ip saddr " + g.Gateway.String() + strange // rules may have masqueraded it
	}
	return forward, postrouting, nil
}

// chain is the part of a script that gives a hook of netfilter's these rules and no
// others. Without rules there is no chain, for every packet would pay for it.
func chain(table, hook string, priority int, rules string) string {
	begin := fmt.Sprintf("table inet %[1]s { chain %[2]s { type filter hook %[2]s priority %[3]d; }; }\nflush chain inet %[1]s %[2]s\n", table, hook, priority)
	if rules == "" {
		return begin + fmt.Sprintf("delete chain inet %s %s\n", table, hook)
	}
	return begin + fmt.Sprintf("table inet %s { chain %s {\n%s\n}; }\n", table, hook, rules)
}

// Know lets packets of these interfaces, by index, through, once Shut was called: a
// data path judges them, or they are not the LAN's and need not be asked for their
// names. Others that were known no longer are.
func (g Guard) Know(indexes ...int) error {
	forward, _, err := g.rules(indexes...)
	if err != nil {
		return err
	}
	table := tableName(g.LAN)
	script := fmt.Sprintf("flush set inet %s known\n", table)
	for _, i := range indexes {
		script += fmt.Sprintf("add element inet %s known { %d }\n", table, i)
	}
	return nft(script+chain(table, "forward", -500, forward), "letting what "+g.LAN+" forwards through")
}

// Is reports whether a table of nftables, of the inet family, is a Guard's.
func Is(table string) bool { return strings.HasPrefix(table, prefix) }

// Table is the name of the tables of a LAN: Shut's of the inet family, ShutFrames' of
// the netdev family.
func Table(lan string) string { return tableName(lan) }

// Remove takes out what Shut put in for a LAN, if it is there: the kernel forwards
// for everybody.
func Remove(lan string) error { return remove("inet", lan, "giving up guarding "+lan) }

// ShutFrames has the kernel drop every frame of the LAN ahead of its stack; packet
// sockets for all protocols have seen it by then. Requests for addresses go on to
// the DHCP server's socket, and no further: nobody but the gateway is their
// destination. Doing it twice is the same as once, without a gap. The rule goes
// with the interface.
func ShutFrames(lan string, gateway netip.Addr) error {
	device, err := quote(lan)
	if err != nil {
		return err
	}
	return nft(fmt.Sprintf(`table netdev %[1]s
delete table netdev %[1]s
table netdev %[1]s {
	chain lan {
		type filter hook ingress device %[2]s priority -500; policy drop;
		udp dport 67 ip daddr { 255.255.255.255, %[3]s } accept
	}
}
`, tableName(lan), device, gateway), "shutting "+lan+" off from the kernel's stack")
}

// RemoveFrames takes out what ShutFrames put in, if it is there.
func RemoveFrames(lan string) error {
	return remove("netdev", lan, "giving "+lan+" back to the kernel's stack")
}

// There reports whether Shut's table of a LAN is there.
func There(lan string) bool {
	return exec.Command("nft", "list", "table", "inet", tableName(lan)).Run() == nil
}

func remove(family, lan, doing string) error {
	err := nft(fmt.Sprintf("table %[1]s %[2]s\ndelete table %[1]s %[2]s\n", family, tableName(lan)), doing)
	if errors.Is(err, datapath.ErrNotSupported) {
		return nil // without nft it never came
	}
	return err
}

// nft runs a script as one transaction.
func nft(script, doing string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(out))
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s: %w: nft is missing (package nftables)", doing, datapath.ErrNotSupported)
	case err != nil && strings.Contains(said, "Operation not supported"), err != nil && strings.Contains(said, "Protocol not supported"):
		return fmt.Errorf("%s: %w: it has no nftables: %s", doing, datapath.ErrNotSupported, said)
	case err != nil:
		return fmt.Errorf("%s: nft: %w: %s", doing, err, said)
	}
	return nil
}

const prefix = "gatewayd-"

// tableName is the name of the LAN's tables in nftables, as its syntax has it.
func tableName(lan string) string {
	return prefix + strings.Map(func(r rune) rune {
		if r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z' {
			return '_'
		}
		return r
	}, lan)
}

// quote is an interface's name as nftables' syntax has it: itself, and no pattern.
func quote(name string) (string, error) {
	if strings.ContainsAny(name, `"\`) {
		return "", fmt.Errorf("guarding %s: nftables cannot name it: rename it", name)
	}
	if head, ok := strings.CutSuffix(name, "*"); ok {
		name = head + `\*`
	}
	return `"` + name + `"`, nil
}

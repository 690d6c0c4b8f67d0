// Package guard keeps the kernel from forwarding for a LAN without a data path. It
// installs nftables rules by interface name, which outlive the daemon, the data path's
// programs, and the interfaces.
//
//	LAN ──▶ frames (netdev ingress) ──▶ stack ──▶ forwarding (inet forward) ──▶ anywhere
//	        drops all, if asked to                drops what no data path judges
//
// A data path's programs belong to one device and disappear with it. A device that
// replaces it has the same name but no programs. It also has another index, which the
// rules check: no mark is needed, and packets that are redirected ahead of the stack
// never meet the rules. Where programs are detached by hand, the data path's watcher shuts
// the guard, by letting it know no interface, until they are back. The guard does not
// protect against an administrator who creates an interface with a chosen index.
package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Guard describes what to guard.
type Guard struct {
	LAN string // interface; packets from or to it pass only if a data path judges them
	// interface where packets for the LAN are judged too; empty: the kernel forwards nothing from or to the LAN
	WAN     string
	Prefix  netip.Prefix // the LAN's network, with a WAN
	Gateway netip.Addr   // the gateway's address in it, with a WAN
}

// Shut has the kernel drop forwarded packets that arrive or leave by an interface of the
// LAN's name, except interfaces given to Know. From a WAN that was not given to Know,
// packets with source addresses of the LAN or the gateway are dropped. Calling it again
// has no effect and leaves no gap, and known interfaces stay known.
func (g Guard) Shut() error {
	script, err := g.shut()
	if err != nil {
		return err
	}
	return nft(script, "guarding "+g.LAN)
}

func (g Guard) shut() (script string, err error) {
	forward, postrouting, err := g.rules()
	if err != nil {
		return "", err
	}
	table := tableName(g.LAN)
	return fmt.Sprintf("table inet %s { set known { type iface_index; }; }\n", table) +
		chain(table, "forward", -500, forward) + chain(table, "postrouting", 500, postrouting), nil
}

// rules returns the rules at two netfilter hooks. They compare names, and come after the
// rules that accept packets between known interfaces by index, because comparing names
// takes several times as long.
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
		postrouting = "ip saddr " + g.Gateway.String() + strange // masquerading rules may have changed the source
	}
	return forward, postrouting, nil
}

// chain returns the part of a script that replaces the rules of a hook. Without rules it
// creates no chain, because every packet would pay for it.
func chain(table, hook string, priority int, rules string) string {
	begin := fmt.Sprintf(
		"table inet %[1]s { chain %[2]s { type filter hook %[2]s priority %[3]d; }; }\nflush chain inet %[1]s %[2]s\n", table,
		hook, priority)
	if rules == "" {
		return begin + fmt.Sprintf("delete chain inet %s %s\n", table, hook)
	}
	return begin + fmt.Sprintf("table inet %s { chain %s {\n%s\n}; }\n", table, hook, rules)
}

// Know lets packets of these interfaces, by index, pass after Shut: a data path judges
// them, or they do not belong to the LAN and need no comparison of names. Interfaces of
// earlier calls are no longer known.
func (g Guard) Know(indexes ...int) error {
	script, err := g.know(indexes)
	if err != nil {
		return err
	}
	return nft(script, "letting what "+g.LAN+" forwards through")
}

func (g Guard) know(indexes []int) (script string, err error) {
	forward, _, err := g.rules(indexes...)
	if err != nil {
		return "", err
	}
	table := tableName(g.LAN)
	script = fmt.Sprintf("flush set inet %s known\n", table)
	for _, i := range indexes {
		script += fmt.Sprintf("add element inet %s known { %d }\n", table, i)
	}
	return script + chain(table, "forward", -500, forward), nil
}

// Renew is Shut and Know in one step, between which no packet is dropped.
func (g Guard) Renew(indexes ...int) error {
	script, err := g.renew(indexes)
	if err != nil {
		return err
	}
	return nft(script, "guarding "+g.LAN+" again")
}

func (g Guard) renew(indexes []int) (script string, err error) {
	shut, err := g.shut()
	if err != nil {
		return "", err
	}
	know, err := g.know(indexes)
	return shut + know, err
}

// RenewWithFrames is ShutFrames and Renew in one step: what the LAN sends and what is sent to it are shut off at the
// same moment.
func (g Guard) RenewWithFrames(gateway netip.Addr, indexes ...int) error {
	frames, err := shutFrames(g.LAN, gateway)
	if err != nil {
		return err
	}
	script, err := g.renew(indexes)
	if err != nil {
		return err
	}
	return nft(frames+script, "shutting "+g.LAN+" off and guarding it")
}

// Is reports whether a table of nftables, of the inet family, is a Guard's.
func Is(table string) bool { return strings.HasPrefix(table, Prefix) }

// Table is the name of a LAN's tables: Shut's in the inet family, ShutFrames' in the
// netdev family.
func Table(lan string) string { return tableName(lan) }

// Remove removes Shut's table of a LAN, if it exists: the kernel then forwards for
// everybody.
func Remove(lan string) error { return remove("inet", lan, "giving up guarding "+lan) }

// ShutFrames has the kernel drop every frame of the LAN ahead of its stack, after packet
// sockets for all protocols have received it. DHCP requests continue to the DHCP
// server's packet socket only, because their destination is the gateway. Calling it again
// has no effect and leaves no gap. The rule disappears with the interface.
func ShutFrames(lan string, gateway netip.Addr) error {
	script, err := shutFrames(lan, gateway)
	if err != nil {
		return err
	}
	return nft(script, "shutting "+lan+" off from the kernel's stack")
}

func shutFrames(lan string, gateway netip.Addr) (script string, err error) {
	device, err := quote(lan)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`table netdev %[1]s
delete table netdev %[1]s
table netdev %[1]s {
	chain lan {
		type filter hook ingress device %[2]s priority -500; policy drop;
		udp dport 67 ip daddr { 255.255.255.255, %[3]s } accept
		ether type { 0x8863, 0x8864 } accept
	}
}
`, tableName(lan), device, gateway), nil
}

// RemoveFrames removes ShutFrames' table, if it exists.
func RemoveFrames(lan string) error {
	return remove("netdev", lan, "giving "+lan+" back to the kernel's stack")
}

// There reports whether Shut's table of a LAN exists.
func There(lan string) bool {
	return exec.Command("nft", "list", "table", "inet", tableName(lan)).Run() == nil
}

func remove(family, lan, doing string) error {
	err := nft(fmt.Sprintf("table %[1]s %[2]s\ndelete table %[1]s %[2]s\n", family, tableName(lan)), doing)
	if errors.Is(err, datapath.ErrNotSupported) {
		return nil // without nft the table cannot have been created
	}
	return err
}

// Check reports whether the machine lacks what guards need.
func Check() error {
	if _, err := exec.LookPath("nft"); err != nil {
		return errMissing
	}
	return nil
}

var errMissing = fmt.Errorf("%w: nft is missing (package nftables)", datapath.ErrNotSupported)

// nft runs a script as one transaction.
func nft(script, doing string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(out))
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s: %w", doing, errMissing)
	case err != nil && strings.Contains(said, "Operation not supported"),
		err != nil && strings.Contains(said, "Protocol not supported"):
		return fmt.Errorf("%s: %w: it has no nftables: %s", doing, datapath.ErrNotSupported, said)
	case err != nil:
		return fmt.Errorf("%s: nft: %w: %s", doing, err, said)
	}
	return nil
}

// Prefix begins the names of all tables.
const Prefix = "gatewayd-"

// tableName returns the name of the LAN's tables in nftables' syntax, another one for each LAN: bytes that are
// neither letters nor digits become _ and two hexadecimal digits.
func tableName(lan string) string {
	name := []byte(Prefix)
	for _, b := range []byte(lan) {
		if b < '0' || b > '9' && b < 'A' || b > 'Z' && b < 'a' || b > 'z' {
			name = fmt.Appendf(name, "_%02x", b)
		} else {
			name = append(name, b)
		}
	}
	return string(name)
}

// quote returns an interface's name in nftables' syntax, not as a pattern.
func quote(name string) (string, error) {
	if strings.ContainsAny(name, `"\`) {
		return "", fmt.Errorf("guarding %s: nftables cannot name it: rename it", name)
	}
	if head, ok := strings.CutSuffix(name, "*"); ok {
		name = head + `\*`
	}
	return `"` + name + `"`, nil
}

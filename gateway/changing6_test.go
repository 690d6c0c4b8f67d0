package gateway

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// kea6 is a provider's server that delegates one /56 at a time, behind wan0. It is renewed each second.
type kea6 struct {
	dir string
	cmd *exec.Cmd
}

// delegatedBy is the number-th /56 of the provider.
func delegatedBy(number int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("2001:db8:a%03x::/56", number))
}

// startKea6 starts a server that delegates the first /56. Packets to all of them are routed to the gateway.
func startKea6(t *testing.T, valid int) *kea6 {
	t.Helper()
	k := &kea6{dir: t.TempDir()}
	awaitLinkLocal(t, "server", "s0")
	sh(t, "ip -n server route add 2001:db8:a000::/36 via 2001:db8:9::1")
	k.configure(t, delegatedBy(0), valid)
	k.cmd = exec.Command("ip", "netns", "exec", "server", "kea-dhcp6", "-c", filepath.Join(k.dir, "kea.json"))
	k.cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+k.dir, "KEA_LOCKFILE_DIR="+k.dir)
	netnstest.Background(t, k.cmd)
	return k
}

// configure writes the server's configuration. Prefixes are valid for so many seconds.
func (k *kea6) configure(t *testing.T, prefix netip.Prefix, valid int) {
	t.Helper()
	next := filepath.Join(k.dir, "next")
	must(t, os.WriteFile(next, fmt.Appendf(nil, `{"Dhcp6": {
"interfaces-config": {"interfaces": ["s0"]},
"server-id": {"type": "EN", "enterprise-id": 32473, "identifier": "0102030405", "persist": false},
"lease-database": {"type": "memfile", "persist": false},
"renew-timer": 1, "rebind-timer": %[3]d, "preferred-lifetime": %[3]d, "valid-lifetime": %[3]d,
"subnet6": [{"id": 1, "subnet": "2001:db8:9::/64", "interface": "s0", "rapid-commit": true,
"pd-pools": [{"prefix": "%[1]s", "prefix-len": %[2]d, "delegated-len": %[2]d}]}]}}`,
		prefix.Addr(), prefix.Bits(), valid), 0o644))
	must(t, os.Rename(next, filepath.Join(k.dir, "kea.json")))
}

// change has the server delegate another prefix.
func (k *kea6) change(t *testing.T, prefix netip.Prefix, valid int) {
	t.Helper()
	k.configure(t, prefix, valid)
	must(t, k.cmd.Process.Signal(syscall.SIGHUP))
}

// addrOf awaits that the client has an address of a prefix.
func addrOf(t *testing.T, namespace, link string, prefix netip.Prefix) (addr netip.Addr) {
	t.Helper()
	netnstest.Await(t, fmt.Sprintf("an address of %s in %s", prefix, namespace), func() error {
		out, err := try("ip -n " + namespace + " -6 -o addr show dev " + link + " scope global -tentative")
		for word := range strings.FieldsSeq(out) {
			if p, e := netip.ParsePrefix(word); e == nil && prefix.Contains(p.Addr()) {
				addr = p.Addr()
				return nil
			}
		}
		if err == nil {
			err = fmt.Errorf("it has %s", out)
		}
		return err
	})
	return addr
}

// told6 is a prefix of a router advertisement.
type told6 struct {
	prefix           netip.Prefix
	valid, preferred int // seconds
}

var prefixLines6 = regexp.MustCompile(
	`Prefix +: (\S+)[^P]*Valid time +: +(\d+|infinite)[^P]*Pref\. time +: +(\d+|infinite)`)

// toldPrefixes6 asks the gateway for an advertisement, as the client hears it, and returns its prefixes.
func toldPrefixes6(t *testing.T) (all []told6) {
	t.Helper()
	out := sh(t, "ip netns exec client rdisc6 -1 -r 10 -w 3000 c0")
	for _, m := range prefixLines6.FindAllStringSubmatch(out, -1) {
		one := told6{prefix: netip.MustParsePrefix(m[1])}
		fmt.Sscan(m[2], &one.valid)
		fmt.Sscan(m[3], &one.preferred)
		all = append(all, one)
	}
	return all
}

// isTold awaits that a prefix is advertised: for new connections, or for present ones alone.
func isTold(t *testing.T, prefix netip.Prefix, preferred bool) {
	t.Helper()
	netnstest.Await(t, "the advertisement of "+prefix.String(), func() error {
		all := toldPrefixes6(t)
		for _, p := range all {
			if prefix.Contains(p.prefix.Addr()) && p.preferred > 0 == preferred && p.preferred <= 2700 && p.valid <= 5400 {
				return nil
			}
		}
		return fmt.Errorf("advertised are %v", all)
	})
}

// changes6 is how often TestChangingPrefix changes it.
var changes6 = flag.Int("changes", 4, "how often TestChangingPrefix has the provider change the prefix")

// maxTold6 is how many prefixes an advertisement has at most: that of lan.address6, those in use, and former ones.
const maxTold6 = 1 + maxDelegated + 8

// TestChangingPrefix: a provider replaces the delegated prefix again and again. Clients learn of the new one and pass
// by it at once, and nobody else does. The former one is deprecated and not used any more. Sessions go on, and nothing
// grows.
func TestChangingPrefix(t *testing.T) {
	t.Run("one for all", func(t *testing.T) { changingPrefix(t, config.ClientPrefixes{}) })
	t.Run("one for each", func(t *testing.T) { changingPrefix(t, config.ClientPrefixes{Delegated: true}) })
}

// serveDelegated6 runs a gateway with prefixes of the provider, and logs the client in.
func serveDelegated6(t *testing.T, edit func(*config.Config)) *control.Client {
	t.Helper()
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.WAN.Delegation, cfg.DHCP6.Mode = true, config.Stateless
	edit(cfg)
	d := serve(t, cfg)
	t.Cleanup(func() { must(t, d.stop()); must(t, Detach(cfg, false)) })
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: netip.MustParseAddr(lease(t)), User: "ann"})
	must(t, err)
	return c
}

// changingPrefix is TestChangingPrefix. Long: the steps of one change, each of which needs the state that the one
// before left.
func changingPrefix(t *testing.T, each config.ClientPrefixes) {
	t.Helper()
	const lasts = 30 // seconds, for which the client's kernel keeps its addresses
	network6(t)
	addIntruder(t)
	kea := startKea6(t, lasts)
	c := serveDelegated6(t, func(cfg *config.Config) { cfg.LAN.ClientPrefixes = each })
	own := netip.MustParseAddr("10.1.0.2")
	began, err := c.Session(t.Context(), own)
	must(t, err)
	former := addrOf(t, "client", "c0", delegatedBy(0))
	netnstest.Await(t, "the way out", func() error { return reaches6(former) })
	var before footprint6
	for n := 1; n <= *changes6; n++ {
		kea.change(t, delegatedBy(n), lasts)
		addr := addrOf(t, "client", "c0", delegatedBy(n))
		netnstest.Await(t, "the way out", func() error { return reaches6(addr) })
		netnstest.Await(t, fmt.Sprintf("change %d of %s to %s", n, former, addr), func() error {
			got, err := c.Session(t.Context(), own)
			if must(t, err); got.ID != began.ID {
				t.Fatalf("change %d: another session: %+v", n, got)
			}
			if !slices.Contains(got.Further, addr) || slices.Contains(got.Further, former) {
				err = fmt.Errorf("the client is %+v", got)
			}
			return err
		})
		isTold(t, delegatedBy(n), true)
		isTold(t, delegatedBy(n-1), false)
		if all := toldPrefixes6(t); len(all) > maxTold6 {
			t.Errorf("%d prefixes are advertised: %v", len(all), all)
		}
		if n == *changes6/2 || n == *changes6 {
			stranger := addrOf(t, "intruder", "i0", delegatedBy(n))
			if _, err := try("ip netns exec intruder ping -6 -c 1 -W 1 -I " + stranger.String() + " 2001:db8:9::2"); err == nil {
				t.Errorf("a stranger passes from %s", stranger)
			}
			if reaches6(former) == nil {
				t.Errorf("the client passes from %s, whose prefix has ended", former)
			}
			if n < *changes6 {
				before = footprintOf6(t, c)
				former = addr
				continue
			}
			netnstest.Await(t, "what former prefixes took", func() error { // addresses last for a while
				if now := footprintOf6(t, c); now.exceeds(before) {
					return fmt.Errorf("after %d changes: %+v, and after half of them: %+v", n, now, before)
				}
				return nil
			})
		}
		former = addr
	}
}

// footprint6 is what a gateway takes.
type footprint6 struct {
	heap                          uint64 // bytes, with that of the test
	goroutines, routes, addresses int
}

func footprintOf6(t *testing.T, c *control.Client) footprint6 {
	t.Helper()
	st, err := c.Status(t.Context())
	must(t, err)
	routes := sh(t, "ip -6 route show proto 103; ip -6 neigh show dev lan0 nud permanent")
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	return footprint6{heap: memory.HeapAlloc, goroutines: runtime.NumGoroutine(), addresses: st.IPv6.Addresses,
		routes: strings.Count(routes, "\n")}
}

// exceeds allows for what a test and the connections of its clients take.
func (f footprint6) exceeds(before footprint6) bool {
	return f.heap > before.heap+1<<20 || f.goroutines > before.goroutines+8 || f.routes > before.routes ||
		f.addresses > before.addresses+1
}

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/forwarding"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/pppoe"
	"github.com/gateweigh/gateweigh/gateway/units"
	"github.com/gateweigh/gateweigh/quote"
)

// Weight says how serious a finding is: worth knowing, a warning, or a reason to refuse to start.
type Weight int

const (
	Note    Weight = iota // worth knowing
	Warning               // Run logs it
	Refusal               // Run ends with it
)

// Finding is something wrong or notable about the machine, with a remedy.
type Finding struct {
	Weight Weight
	Text   string
}

// Check compares a configuration with this machine and changes nothing. It finds everything that Run refuses to start
// with or warns of and that can be known without starting. A gateway that runs with the same run_dir is taken for the
// one that the configuration is for.
func Check(cfg *config.Config) []Finding {
	running := 0
	if c, err := control.Dial(cfg.ControlSocket()); err == nil {
		if s, err := c.Status(context.Background()); err == nil {
			running = s.PID
		}
	}
	store := &survey{Config: cfg.All()[0]} // the same for all networks
	store.reachStore()
	if len(cfg.Networks) == 0 {
		return append(check(cfg, running), store.findings...)
	}
	s := &survey{Config: cfg, findings: store.findings}
	s.refuse(refuseSingle(cfg))
	if running == 0 {
		s.refuse(datapath.CheckClaims(datapath.ExclusiveClaims(cfg.WAN.Interface)...))
	}
	return append(s.findings, ofNetworks(cfg, func(n *config.Config) []Finding { return check(n, running) })...)
}

// ofNetworks returns the findings of each of several networks. What is found in all of them is there once.
func ofNetworks(cfg *config.Config, find func(*config.Config) []Finding) (all []Finding) {
	in := map[Finding][]string{}
	for _, n := range cfg.Networks {
		for _, f := range find(n) {
			if in[f] == nil {
				all = append(all, f)
			}
			in[f] = append(in[f], n.Name)
		}
	}
	for i, f := range all {
		if names := in[f]; len(names) < len(cfg.Networks) {
			all[i].Text = fmt.Sprintf("network %s: %s", strings.Join(names, ", "), f.Text)
		}
	}
	return all
}

// survey looks at the machine for what a configuration needs, and collects findings.
type survey struct {
	*config.Config
	running  int // process of the gateway; 0: none
	lan, wan *net.Interface
	port     bool // the LAN is a port of another interface, which then has its address
	findings []Finding
}

// check makes all checks, in the order of the configuration.
func check(cfg *config.Config, running int) []Finding {
	s := &survey{Config: cfg, running: running}
	for _, part := range []func(){
		s.folders, s.interfaces, s.bridged, s.address, s.ipv6, s.overlaps, s.leasable, s.path, s.garden,
		s.gardenAddresses, s.bootServers, s.certificate, s.payload,
		s.translation, s.ownPorts, s.several, s.locks, s.ports, s.forwarding, s.open, s.route, s.metrics} {
		part()
	}
	return s.findings
}

func (s *survey) addFinding(w Weight, format string, args ...any) {
	s.findings = append(s.findings, Finding{w, fmt.Sprintf(format, args...)})
}

// refuse finds a refusal for each error in err.
func (s *survey) refuse(err error) { s.find(Refusal, err) }

// find finds something of a weight for each error in err.
func (s *survey) find(w Weight, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			s.find(w, e)
		}
	} else if err != nil {
		s.addFinding(w, "%v", err)
	}
}

// Refused joins the refusals among findings.
func Refused(all []Finding) (err error) {
	for _, f := range all {
		if f.Weight == Refusal {
			err = errors.Join(err, errors.New(f.Text))
		}
	}
	return err
}

// folders checks that the daemon can write to its folders, or make them.
func (s *survey) folders() {
	folders := []struct{ key, dir string }{{"state_dir", s.StateDir}, {"run_dir", s.RunDir}}
	if s.FlowLog.Enabled {
		folders = append(folders, struct{ key, dir string }{"flowlog.folder", s.FlowLog.Folder})
	}
	for _, f := range folders {
		existing := f.dir
		info, err := os.Stat(existing)
		for errors.Is(err, os.ErrNotExist) && existing != filepath.Dir(existing) {
			existing = filepath.Dir(existing)
			info, err = os.Stat(existing)
		}
		if errors.Is(err, unix.ENOTDIR) || err == nil && !info.IsDir() {
			s.addFinding(Refusal,
				"%s: %s cannot be made or written to, because a file is in its place: name another folder, or "+
					"move the file away", s.LineOf(f.key), f.dir)
		} else if err := unix.Faccessat(unix.AT_FDCWD, existing, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
			s.addFinding(Refusal, "%s: %s cannot be written to: %v", s.LineOf(f.key), existing, err)
		} else if err := canMakeFolder(existing, f.dir); err != nil {
			s.addFinding(Refusal, "%s: %s cannot be made, because %s takes no folders: %v: name another folder",
				s.LineOf(f.key), f.dir, existing, err)
		} else if free := scarceSpace(existing); free != nil {
			s.addFinding(Warning, "%s: %s has %s free: logins fail when none is: make room there", s.LineOf(f.key), existing,
				units.Bytes(*free))
		}
	}
}

// canMakeFolder tries whether a folder can be made below an existing one: it makes another there and removes it.
func canMakeFolder(in, dir string) error {
	if in == dir {
		return nil
	}
	made, err := os.MkdirTemp(in, ".gatewayd-check-")
	if err != nil {
		return errors.Unwrap(err)
	}
	return os.Remove(made)
}

// enoughSpace is how many bytes of free space are no reason to warn.
const enoughSpace = 16 << 20

// scarceSpace returns how many bytes may be written to a folder's file system; nil: enough, or it is not known.
func scarceSpace(dir string) *uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 || st.Bavail*uint64(st.Bsize) >= enoughSpace {
		return nil
	}
	free := st.Bavail * uint64(st.Bsize)
	return &free
}

// interfaces looks for the LAN's and the WAN's.
func (s *survey) interfaces() {
	for _, i := range []struct {
		key, name string
		dev       **net.Interface
	}{{"wan.interface", s.WAN.Interface, &s.wan}, {"lan.interface", s.LAN.Interface, &s.lan}} {
		dev, err := net.InterfaceByName(i.name)
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // without "route ip+net"
		}
		if err != nil {
			s.addFinding(Refusal, "%s: looking for %q: %v (ip link lists the interfaces)", s.LineOf(i.key), i.name, err)
			continue
		}
		if *i.dev = dev; dev.Flags&net.FlagUp == 0 {
			s.addFinding(Warning, "%s is down: %s", i.name, quote.Command("ip", "link", "set", i.name, "up"))
		}
		if whole, kind := wholeOf(dev); whole != "" {
			weight := Warning // the stack forwards
			if i.dev == &s.lan {
				s.port, weight = true, Refusal
			}
			s.addFinding(weight, "%s: %s is a port of the %s %s, which takes its packets: set %s = %q", s.LineOf(i.key),
				i.name, kind, whole, s.KeyName(i.key), whole)
		}
	}
}

// wholeOf returns the bridge or bond that takes the packets of an interface, because that is one of its
// ports; "": none does. In a VRF an interface keeps them.
func wholeOf(dev *net.Interface) (name, kind string) {
	link, err := netlink.LinkByIndex(dev.Index)
	if err != nil || link.Attrs().MasterIndex == 0 {
		return "", ""
	}
	whole, err := netlink.LinkByIndex(link.Attrs().MasterIndex)
	if err != nil || !slices.Contains([]string{"bridge", "bond", "team"}, whole.Type()) {
		return "", ""
	}
	return whole.Attrs().Name, whole.Type()
}

// address checks that the LAN's interface has the gateway's address, unless a device of the data path has it.
func (s *survey) address() {
	if s.lan != nil && !kindOf(s.Config).OwnAddress && !s.port && s.Pair.Site == "" {
		s.refuse(checkAddress(s.lan, s.LineOf("lan.address"), s.LAN.Address))
	}
}

// ipv6 checks what clients' IPv6 needs of the machine.
func (s *survey) ipv6() {
	if s.lan == nil || s.wan == nil || !s.LAN.Address6.IsValid() || s.port {
		return
	}
	if ipv6Setting(s.lan.Name, "disable_ipv6") != "0" {
		s.addFinding(Refusal, "%s: IPv6 is off at %s: %s", s.LineOf("lan.address6"), s.lan.Name,
			quote.Command("sysctl", "-w", "net.ipv6.conf."+s.lan.Name+".disable_ipv6=0"))
		return
	}
	if s.Pair.Site == "" { // otherwise the gateway that serves has it
		s.refuse(checkAddress(s.lan, s.LineOf("lan.address6"), s.LAN.Address6))
	}
	if ipv6Setting("all", "forwarding") != "1" {
		s.addFinding(Refusal, "%s: the kernel forwards no IPv6, and only the machine as a whole can: %s",
			s.LineOf("lan.address6"), quote.Command("sysctl", "-w", "net.ipv6.conf.all.forwarding=1"))
	}
	if ipv6Setting(s.wan.Name, "accept_ra") == "1" {
		s.addFinding(Warning, "%s: a machine that forwards takes no default route from router advertisements: where the "+
			"provider sends them, %s", s.LineOf("wan.interface"),
			quote.Command("sysctl", "-w", "net.ipv6.conf."+s.wan.Name+".accept_ra=2"))
	}
}

// ipv6Setting reads a setting below net.ipv6.conf; "": the kernel has none.
func ipv6Setting(dev, key string) string {
	value, _ := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", dev, key))
	return strings.TrimSpace(string(value))
}

// checkAddress checks that the LAN's interface has the gateway's address, which is on a line of the configuration.
func checkAddress(lan *net.Interface, line string, ownPrefix netip.Prefix) error {
	addrs, err := lan.Addrs()
	if err != nil {
		return fmt.Errorf("reading the addresses of %s: %w", lan.Name, err)
	}
	has := func(a net.Addr) bool { return a.String() == ownPrefix.String() }
	if slices.ContainsFunc(addrs, has) {
		return nil
	}
	return fmt.Errorf("%s: %s does not have %s: %s", line, lan.Name, ownPrefix,
		quote.Command("ip", "addr", "add", ownPrefix.String(), "dev", lan.Name))
}

// path checks what the kind of data path needs.
func (s *survey) path() {
	kind := kindOf(s.Config)
	if slices.Contains(kind.Shares, datapath.Guarding) {
		s.refuse(guard.Check())
	}
	if s.lan == nil || s.wan == nil {
		return
	}
	s.refuse(kind.Check(setup(s.Config)))
	if kind.Warn != nil {
		for _, text := range kind.Warn(setup(s.Config)) {
			s.addFinding(Warning, "%s", text)
		}
	}
}

// payload checks that the LAN's interface carries what is granted to PPPoE clients.
func (s *survey) payload() {
	if s.PPPoE.Enabled && s.lan != nil && s.lan.MTU < s.PPPoE.MTU+pppoe.Overhead {
		s.addFinding(Warning,
			"%s: %s carries %d bytes, so that PPPoE clients get an MTU of %d: for %d set its MTU to %d (ip "+
				"link set %s mtu %d)", s.LineOf("pppoe.mtu"), s.LAN.Interface,
			s.lan.MTU, s.lan.MTU-pppoe.Overhead, s.PPPoE.MTU, s.PPPoE.MTU+pppoe.Overhead, s.LAN.Interface,
			s.PPPoE.MTU+pppoe.Overhead)
	}
}

// several looks for a gateway with several networks at this one's place.
func (s *survey) several() { s.refuse(refuseSeveral(s.Config)) }

// locks looks for another gateway on the interfaces and in the folders, see datapath.Lock.
func (s *survey) locks() {
	if s.running != 0 {
		return
	}
	folders := []string{s.StateDir}
	if kindOf(s.Config).Pins {
		folders = append(folders, s.Datapath.PinDir)
	}
	for _, dir := range folders {
		if l, err := datapath.LockFolder(dir); err == nil {
			l.Close()
		} else if errors.Is(err, datapath.ErrInUse) {
			s.refuse(err)
		}
	}
	s.refuse(datapath.CheckClaims(claimed(s.Config)...))
}

// ports looks for programs that have the gateway's ports.
func (s *survey) ports() {
	reported := map[string]bool{}
	for _, p := range ports(s.Config) {
		if !p.isTaken() {
			continue
		}
		pid, name := p.owner()
		owner := fmt.Sprintf("%s (process %d)", name, pid)
		switch {
		case s.running != 0 && (pid == 0 || pid == s.running):
			continue
		case pid == os.Getpid(): // metrics, which are there before a network that comes later
			continue
		case pid == 0:
			owner = "another program (ss -lntup names it)"
		}
		text := fmt.Sprintf(
			"port %d of %s, for %s, is taken by %s: stop that, or %s", p.addr.Port(), p.addr.Addr(), p.purpose, owner, p.remedy)
		if !reported[text] {
			s.addFinding(Refusal, "%s", text)
		}
		reported[text] = true
	}
}

// forwarding says where gatewayd switches forwarding on, and checks that it can.
func (s *survey) forwarding() {
	var off []string
	for _, name := range crossings(s.Config) {
		enabled, err := forwarding.Forwards(name)
		if err != nil || enabled {
			continue // an interface that does not exist (yet), or one that forwards
		}
		off = append(off, name)
		s.refuse(forwarding.Writable(name))
	}
	if len(off) > 0 {
		s.addFinding(Note, "gatewayd switches forwarding on at %s when it starts", strings.Join(off, " and "))
	}
}

// open warns of a machine that forwards for everybody while no gateway runs.
func (s *survey) open() {
	if families := OpenFamilies(s.Config); len(families) > 0 && s.running == 0 && !LeftInKernel(s.Config) {
		s.addFinding(Warning,
			"until gatewayd runs this machine forwards %s for everybody on %s: enable gatewayd-guard.service, or "+
				"run gatewayd guard before the network is up", strings.Join(families, " and "), s.LAN.Interface)
	}
}

// route says that clients will not reach the internet.
func (s *survey) route() {
	if _, err := netlink.RouteGet(net.IPv4(1, 1, 1, 1)); errors.Is(err, unix.ENETUNREACH) {
		s.addFinding(Note, "this machine has no default route (ip route): clients reach only what it has routes to")
	}
}

// metrics warns of metrics that clients can reach.
func (s *survey) metrics() {
	if l := s.Metrics.Listen; l.IsValid() && !l.Addr().IsLoopback() {
		s.addFinding(Warning,
			"metrics are there for everybody who reaches %s, clients that are logged in too: let the machine's "+
				"input rules keep them from it", l)
	}
}

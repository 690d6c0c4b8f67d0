package dut

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"text/template"

	"github.com/gateweigh/gateweigh/lab/client"
)

// portal is the common part of the portals that are written in Go. It starts daemons on the lab's hosts, fills in their
// configuration files from templates, and ends and removes all of it.
type portal struct {
	Env
	Dir       string  // folder of the portal's files, on each host
	Secret    string  // new for each start: of the RADIUS server, or of the splash page
	WebPort   int     // TCP port of the portal's pages on the router
	NAS       string  // network from which gateways ask the RADIUS server; empty: the router alone
	Kept      bool    // the RADIUS server keeps what it is told of sessions: see Accounted
	radius    *portal // whose RADIUS server it uses; nil: its own
	clients   int
	Admission client.Admission
	daemons   []daemon // spawned, in this order
}

// setEnv sets the lab in which the portal starts, and draws a new secret. name becomes the name of the portal's folder.
func (p *portal) setEnv(env Env, name string) {
	p.Env, p.Dir, p.Secret = env, path.Join(env.Scratch, name), rand.Text()
}

// MaxClients is the limit of clients for configuration files: at least least, and twice the lab's clients, because
// clients that left without logging out still count.
func (p *portal) MaxClients(least int) int { return max(least, 2*p.clients) }

// run starts a daemon with a command and returns once all probes have succeeded.
func (p *portal) run(ctx context.Context, d daemon, argv []string, probes ...probe) error {
	d.argv = argv
	p.daemons = append(p.daemons, d)
	if err := d.spawn(ctx, argv...); err != nil {
		return err
	}
	return d.await(ctx, probes...)
}

// setLogin fills in the admission's addresses, which are known once the portal is ready, and how many clients may log
// in at the same time.
func (p *portal) setLogin(parallel int) {
	p.Admission.Portal = fmt.Sprintf("%s:%d", p.Gateway, p.WebPort)
	p.Admission.Probe = "http://" + p.ServerIP.String() + "/generate_204"
	p.Admission.Parallel = parallel
	if p.Gateway6.IsValid() {
		p.Admission.Portal6 = netip.AddrPortFrom(p.Gateway6, uint16(p.WebPort)).String()
		p.Admission.Probe6 = fmt.Sprintf("http://[%s]/generate_204", p.ServerIP6)
	}
}

// shell runs a script on the router: $1 is the portal's folder, $2 the interface towards
// the clients, args are $3 ….
func (p *portal) shell(ctx context.Context, script string, args ...string) error {
	return shell(ctx, p.Host("router"), script, append([]string{p.Dir, p.Port("lan")}, args...)...)
}

// removeAddresses is a part of a script that saves the addresses of the interface towards the clients and removes them.
// stop restores them.
const removeAddresses = `ip -o -4 addr show dev "$2" | awk '{print $4}' >"$1/addresses"; ip addr flush dev "$2"`

// stop ends the daemons, the last one first, runs the script undo (see shell), restores the interface's addresses and
// removes the portal's files.
func (p *portal) stop(ctx context.Context, undo string, args ...string) error {
	if p.Dir == "" {
		return nil // it was never started
	}
	var errs []error
	for _, d := range slices.Backward(p.daemons) {
		errs = append(errs, d.kill(ctx))
	}
	errs = append(errs, p.shell(ctx, `[ -d "$1" ] || exit 0
`+undo+`
[ ! -e "$1/addresses" ] || { ip addr flush dev "$2"; while read -r address; do ip addr add "$address" dev "$2"; done <"$1/addresses"; }
rm -rf "$1"`, args...))
	if p.Admission.User != "" {
		errs = append(errs, shell(ctx, p.Host("server"), `rm -rf "$1"`, p.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping %s: %w", path.Base(p.Dir), err)
	}
	return nil
}

//go:embed templates
var templateFiles embed.FS

// templates are the configuration files of the DUTs; a field that a template
// names and its data lacks is an error.
var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(templateFiles, "templates/*"))

// write fills in embedded templates and writes them, for root alone, into the portal's folder on a host.
func (p *portal) write(ctx context.Context, h Host, data any, names ...string) error {
	for _, name := range names {
		var buf bytes.Buffer
		if err := templates.ExecuteTemplate(&buf, name, data); err != nil {
			return fmt.Errorf("filling in %s: %w", name, err)
		}
		if err := h.WriteFile(ctx, path.Join(p.Dir, name), buf.Bytes(), 0o700); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// Askers is who may ask the RADIUS server: an address or a network.
func (p *portal) Askers() string { return cmp.Or(p.NAS, p.RouterWAN.String()) }

// radiusNeeds are the RADIUS server, and the program that shows whether it listens.
var radiusNeeds = []Need{
	{Program: "freeradius", Package: "freeradius", Why: "the clients' accounts (RADIUS)", On: "server"},
	{Program: "ss", Package: "iproute2", Why: "seeing daemons listen"},
}

// startRADIUS starts a FreeRADIUS on the server, for portals that ask one, and returns
// once it listens on the port of RFC 2866. It neither reads nor changes the machine's own
// configuration. It is not part of the device under test: its CPU does not count.
func (p *portal) startRADIUS(ctx context.Context) error {
	if p.radius != nil {
		p.Secret = p.radius.Secret
		p.Admission.User, p.Admission.Password = p.radius.Admission.User, p.radius.Admission.Password
		return nil
	}
	server := p.Host("server")
	p.Admission.User, p.Admission.Password = "gateweigh-test-%d", "not-a-secret" // %d is the client's number
	err := shell(ctx, server, `mkdir -p "$1"`, p.Dir)
	if err == nil {
		err = p.write(ctx, server, p, "radiusd.conf", "radius-users")
	}
	if err == nil {
		d := daemon{host: server, name: "freeradius", support: true}
		err = p.run(ctx, d, []string{"freeradius", "-f", "-d", p.Dir}, listens("it does not listen", "u", 1813))
	}
	if err != nil {
		return fmt.Errorf("starting the RADIUS server of %s: %w", path.Base(p.Dir), err)
	}
	return nil
}

// dnsmasq leases a portal's clients their addresses and answers for names.
type dnsmasq struct {
	*portal
	Leases      string // file of the leases
	URI         string // of the portal's page or interface (RFC 8910)
	Name        string // of the router, for clients; may be empty
	First, Last netip.Addr
	Mask        string // dotted
}

// lease starts dnsmasq for a network and returns once its file of leases is there.
func (p *portal) lease(ctx context.Context, lan netip.Prefix, d dnsmasq) (err error) {
	d.portal, d.Mask = p, dottedMask(p.LAN)
	if d.First, d.Last, err = leaseRange(lan, p.Gateway, p.clients); err != nil {
		return err
	}
	if err := p.write(ctx, p.Host("router"), d, "dnsmasq.conf"); err != nil {
		return err
	}
	argv := []string{"dnsmasq", "--keep-in-foreground", "--conf-file=" + path.Join(p.Dir, "dnsmasq.conf")}
	return p.run(ctx, daemon{host: p.Host("router"), name: path.Base(p.Dir) + "-dnsmasq"}, argv,
		probe{"it has no lease file", "test -e " + d.Leases})
}

// leaseRange returns the first and the last address to lease to n clients. The error says that the network is too
// small.
//
// openNDS removes the rules of a client that leaves by searching for its
// address as text, so that a logout of .1 also cuts off .10 to .19. Addresses
// of equal length, from .100 on, are never part of another.
func leaseRange(lan netip.Prefix, gateway netip.Addr, n int) (first, last netip.Addr, err error) {
	from, to := 100, 1<<(32-lan.Bits())-2
	if to-from < n {
		from = 1
	}
	if to-from < n {
		return first, last, fmt.Errorf("%s is too small for %d clients", lan, n)
	}
	first, last = hostOf(lan, from), hostOf(lan, to)
	// A gateway at either end is left out; dnsmasq skips one in the middle itself.
	if last == gateway {
		last = last.Prev()
	}
	if first == gateway {
		first = first.Next()
	}
	return first, last, nil
}

// dottedMask is a network's mask in dnsmasq's notation: 255.255.255.0.
func dottedMask(p netip.Prefix) string { return net.IP(net.CIDRMask(p.Bits(), 32)).String() }

// hostOf returns the n-th address of a network.
func hostOf(lan netip.Prefix, n int) netip.Addr {
	b := lan.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

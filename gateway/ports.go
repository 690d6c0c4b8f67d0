package gateway

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/ident"
)

// port is a port that the gateway needs to listen on.
type port struct {
	network string // "tcp4" or "udp4"
	addr    netip.AddrPort
	device  string // that its socket is bound to; empty: none
	purpose string // of the port, for messages
	remedy  string // what to do if another program needs it
}

// ports lists the ports that a gateway listens on.
func ports(cfg *config.Config) []port {
	ownAddr, device := cfg.LAN.Address.Addr(), clientInterface(cfg)
	var all []port
	if cfg.DNS.Mode == config.Server {
		for _, network := range []string{"udp4", "tcp4"} {
			all = append(all, port{network, netip.AddrPortFrom(ownAddr, 53), device, "DNS", `set dns.mode = "external"`})
		}
	}
	if cfg.DHCP.Mode == config.Server {
		all = append(all, port{"udp4", netip.AddrPortFrom(netip.IPv4Unspecified(), 67), cfg.LAN.Interface, "DHCP",
			`set dhcp.mode = "external"`})
	}
	for i, n := range portalPorts(cfg.Portal) {
		all = append(all, port{"tcp4", netip.AddrPortFrom(ownAddr, n), "", "the portal", "choose another " + []string{
			"portal.port", "portal.tls_port"}[i]})
	}
	if cfg.Ident.Enabled {
		network, addr := ident.Where(cfg.LAN.Address6.IsValid())
		all = append(all, port{network, addr, cfg.WAN.Interface, "ident",
			"set ident.enabled = false"})
	}
	if l := cfg.Metrics.Listen; l.IsValid() {
		all = append(all, port{"tcp", l, "", "metrics", "choose another metrics.listen"})
	}
	return all
}

const webPort = 80

// homePort returns port 80 of the LAN's address, where http://ADDRESS/ and http://NAME/ of the portal lead. It returns
// false where the portal listens there already, or must not answer there.
func homePort(cfg *config.Config) (port, bool) {
	p := cfg.Portal
	here := port{"tcp4", netip.AddrPortFrom(cfg.LAN.Address.Addr(), webPort), "",
		"http://" + cfg.LAN.Address.Addr().String() + "/", "set portal.port_80 = false"}
	return here, p.Enabled && p.Port80 && p.Port != webPort && (p.TLSCert == "" || p.TLSPort != webPort)
}

// openHome decides whether the portal answers there: a program that has the port keeps it, and clients reach it only
// once they have logged in.
func (g *gateway) openHome() {
	here, wanted := homePort(g.cfg)
	g.homeListens = wanted && !here.isTaken()
	if wanted && !g.homeListens {
		g.log.Info("another program has the port: the portal is reached by its own port, and by every other address on "+
			"port 80", "address", here.addr.String())
	}
}

// isTaken reports whether another socket keeps the gateway from listening on a port. It tries, with the options of the
// gateway's own socket.
func (p port) isTaken() bool {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// With tun the address and the device come into being later.
			unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
			if p.device != "" {
				unix.BindToDevice(int(fd), p.device)
			}
		})
	}}
	var l io.Closer
	var err error
	if strings.HasPrefix(p.network, "tcp") {
		l, err = lc.Listen(context.Background(), p.network, p.addr.String())
	} else {
		l, err = lc.ListenPacket(context.Background(), p.network, p.addr.String())
	}
	if err == nil {
		l.Close()
	}
	return errors.Is(err, unix.EADDRINUSE)
}

// owner returns the id of the process that has a port; 0: unknown, because this process may not look at that one.
func (p port) owner() (pid int, name string) {
	inodes := map[string]bool{}
	protocol := strings.TrimSuffix(p.network, "4")
	for _, table := range []string{protocol, protocol + "6"} {
		f, err := os.Open("/proc/thread-self/net/" + table)
		if err != nil {
			continue
		}
		for _, inode := range sockets(f, p.addr, protocol == "tcp") {
			inodes["socket:["+inode+"]"] = true
		}
		f.Close()
	}
	return datapath.SocketHolder(inodes)
}

// sockets returns the inodes of the sockets in a table of /proc/net that have an address, or the wildcard, with its
// port; listening: only those that listen.
func sockets(table io.Reader, addr netip.AddrPort, listening bool) (inodes []string) {
	const (
		local, state, inode = 1, 3, 9 // fields
		listen              = "0A"
	)
	ends := []string{fmt.Sprintf("%s:%04X", hexOf(addr.Addr()), addr.Port()), fmt.Sprintf("%032d:%04X", 0, addr.Port()),
		fmt.Sprintf("%08d:%04X", 0, addr.Port())}
	for lines := bufio.NewScanner(table); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || listening && fields[state] != listen {
			continue
		}
		for _, end := range ends {
			if strings.HasSuffix(fields[local], end) { // ::ffff:10.1.0.1 ends like 10.1.0.1
				inodes = append(inodes, fields[inode])
				break
			}
		}
	}
	return inodes
}

// hexOf returns an address as /proc/net shows it: words of four bytes in the machine's order.
func hexOf(a netip.Addr) string {
	text, b := "", a.AsSlice()
	for ; len(b) >= 4; b = b[4:] {
		text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b))
	}
	return text
}

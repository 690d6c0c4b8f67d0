package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
)

// ownPortsTaken has this machine listen on ports and forwards them. Ports that nobody reaches from outside may be
// forwarded.
func ownPortsTaken(t *testing.T, cfg config.Config) {
	cfg.NAT.Masquerade = true
	for _, l := range []struct {
		network, addr string
		weight        Weight
		message       string // "": nothing
	}{
		{"tcp4", "0.0.0.0:2222", Refusal, "TCP port 2222"},
		{"tcp", "[::]:2223", Refusal, "TCP port 2223"},
		{"tcp6", "[::]:2224", Refusal, ""}, // Go's is for IPv6 alone
		{"tcp4", "192.0.2.1:2225", Refusal, "TCP port 2225"},
		{"tcp4", "10.1.0.1:2226", Refusal, ""},
		{"tcp4", "127.0.0.1:2227", Refusal, ""},
		{"udp4", "0.0.0.0:1194", Refusal, "UDP port 1194"},
		{"udp4", "0.0.0.0:40123", Warning, "UDP port 40123"},
		{"udp4", "10.1.0.1:1195", Refusal, ""},
	} {
		var close func() error
		if strings.HasPrefix(l.network, "tcp") {
			s, err := net.Listen(l.network, l.addr)
			must(t, err)
			close = s.Close
		} else {
			s, err := net.ListenPacket(l.network, l.addr)
			must(t, err)
			close = s.Close
		}
		at := netip.MustParseAddrPort(l.addr).Port()
		cfg.NAT.Forwards = nil
		for _, proto := range []string{config.TCP, config.UDP} {
			cfg.NAT.Forwards = append(cfg.NAT.Forwards, config.Forward{Proto: proto, Ports: config.PortRange{First: at - 1,
				Last: at}, To: netip.MustParseAddr("10.1.0.9")})
		}
		if l.message != "" {
			expectFindings(t, cfg, l.weight, fmt.Sprintf("(process %d) of this machine has %s", os.Getpid(), l.message))
		} else if err := Refused(Check(&cfg)); err != nil {
			t.Errorf("%s %s: %v", l.network, l.addr, err)
		}
		must(t, close())
		if err := Refused(Check(&cfg)); err != nil {
			t.Errorf("%s %s, when nobody listens: %v", l.network, l.addr, err)
		}
	}
	kernelPortTaken(t, cfg)
}

// kernelPortTaken has a tunnel of the kernel listen.
func kernelPortTaken(t *testing.T, cfg config.Config) {
	sh(t, "ip link add fou9 type vxlan id 9 dstport 47890 local 192.0.2.1; ip link set fou9 up")
	t.Cleanup(func() { sh(t, "ip link del fou9") })
	cfg.NAT.Forwards = []config.Forward{
		{Proto: config.UDP, Ports: config.PortRange{First: 47890, Last: 47890}, To: netip.MustParseAddr("10.1.0.9")}}
	expectFindings(t, cfg, Refusal, "of this machine has UDP port 47890")
}

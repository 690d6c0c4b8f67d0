package dut

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// wrongKeys is a gateway that is given other keys than the lab makes.
type wrongKeys struct {
	Host
	file    string // the one with the key
	key     *regexp.Regexp
	instead string
}

func (f wrongKeys) WriteFile(ctx context.Context, name string, data []byte, mode uint32) error {
	if path.Base(name) == f.file {
		data = f.key.ReplaceAll(data, []byte(f.instead))
	}
	return f.Host.WriteFile(ctx, name, data, mode)
}

// forgers are what the second gateway of a tunnel has instead of what the first one expects.
var forgers = map[string]wrongKeys{
	"openvpn-aes-gcm": {
		file: "openvpn.conf", key: regexp.MustCompile(`peer-fingerprint \w\w:\w\w`), instead: "peer-fingerprint 00:00"},
	"wireguard-go": {file: "wireguard.conf", key: regexp.MustCompile(`PublicKey = .*`),
		instead: "PublicKey = AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
	"ipsec-user-aes-gcm": {file: "swanctl.conf", key: regexp.MustCompile(`secret = .*`), instead: `secret = "another"`},
	"ssh-w": {file: "authorized", key: regexp.MustCompile(`(?s).*`),
		instead: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"},
	"openconnect-dtls": {file: "password", key: regexp.MustCompile(`.*\n`), instead: "another\n"},
}

// TestTunnelsThatDoNotComeUp: the error of a start says what is wrong, what the programs said, and what to do, and
// nothing is left.
func TestTunnelsThatDoNotComeUp(t *testing.T) {
	t.Parallel()
	for name, forged := range forgers {
		t.Run(name+" with a wrong key", func(t *testing.T) {
			t.Parallel()
			d := newTunnel(name, 0)
			d.patience = 5 * time.Second
			l := failingTunnel(t, d, func(l *tunnelLab) {
				forged.Host = l.env.Hosts["gw2"]
				l.env.Hosts["gw2"] = forged
			}, "gw2 answers gw1 outside of the tunnel", "keys")
			l.checkStop(t, d)
		})
	}
	for _, name := range []string{"vxlan", "openvpn-aes-gcm", "ipsec-user-aes-gcm"} {
		t.Run(name+" without its peer", func(t *testing.T) {
			t.Parallel()
			d := newTunnel(name, 0)
			d.patience = 2 * time.Second
			l := failingTunnel(t, d, func(l *tunnelLab) { l.gw2.must(t, `ip link set "$1" down`, l.env.Port("outer2")) },
				"gw2 (192.168.0.2) does not answer gw1 outside of the tunnel", "link")
			l.gw2.must(t, `ip link set "$1" up; ip route replace 192.168.137.0/24 via 192.168.0.1`, l.env.Port("outer2"))
			l.checkStop(t, d)
		})
	}
}

// failingTunnel starts a tunnel in a lab that something is wrong with.
func failingTunnel(t *testing.T, d *Tunnel, spoil func(*tunnelLab), says ...string) *tunnelLab {
	t.Helper()
	skipUnsupported(t, d)
	l := newTunnelLab(t, d)
	spoil(l)
	err := d.Start(t.Context(), l.env)
	if err == nil {
		t.Fatal("it has started")
	}
	t.Log(err)
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it does not say %q: %v", text, err)
		}
	}
	return l
}

// checkStop takes a tunnel away, after which packets go the direct way.
func (l *tunnelLab) checkStop(t *testing.T, d *Tunnel) {
	t.Helper()
	if err := errors.Join(d.Stop(t.Context(), l.env), d.Stop(t.Context(), l.env)); err != nil {
		t.Error(err)
	}
	for _, h := range []testHost{l.gw1, l.gw2} {
		if links := h.must(t, `ip -o link | grep -cE 'tunnel|tun0|vpns0|ipsec0' || :`); strings.TrimSpace(links) != "0" {
			t.Errorf("%s has %s interfaces left", h.Name, links)
		}
		if left := h.must(t, `ls "$1"`, agent.Scratch); strings.Contains(left, "tunnel") {
			t.Errorf("%s has files left: %s", h.Name, left)
		}
		for _, name := range h.processes(t) {
			if name != "sh" {
				t.Errorf("%s has %s left", h.Name, name)
			}
		}
	}
	labtest.Await(t, "packets to go the direct way", func() bool {
		_, err := l.ping(t, 100)
		return err == nil
	})
}

// TestTunnelWhoseProgramEnds: the lab is told of a program that ends, nothing goes around the tunnel meanwhile, and
// nothing is left behind.
func TestTunnelWhoseProgramEnds(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{
		"openvpn-aes-gcm": "openvpn", "wireguard-go": "wireguard-go", "ipsec-user-aes-gcm": "charon", "ssh-w": "ssh",
		"openconnect-dtls": "openconnect",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTunnel(name, 0)
			skipUnsupported(t, d)
			l := newTunnelLab(t, d)
			startTunnel(t, d, l)
			l.gw1.must(t, `kill -KILL $(pgrep -x "$1")`, program)
			labtest.Await(t, "the program's end to be known", func() bool {
				p, err := (daemon{host: l.gw1, name: program}).state(t.Context())
				return err == nil && p.Ended && strings.Contains(p.Status, "killed")
			})
			labtest.Await(t, "the device to say so", func() bool {
				text, err := d.FailedProof(t.Context(), l.env)
				return err == nil && strings.Contains(text, "gw1")
			})
			l.checkStop(t, d)
		})
	}
}

// TestTunnelOfAnotherMTU: a smaller one is what both ends are told of, and with a larger one packets are cut up on the
// link between the gateways.
func TestTunnelOfAnotherMTU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		mtu    int
		pieces []int // of a packet of that length
	}{
		{"openvpn-aes-gcm", 1000, []int{1052}},
		{"vxlan", 1500, []int{1500, 70}}, // the second one has an IP header of its own
		{"wireguard-go", 1500, []int{1500, 80}},
	} {
		t.Run(fmt.Sprintf("%s %d", c.name, c.mtu), func(t *testing.T) {
			t.Parallel()
			made, err := newVariant("other", 1, experiment.CustomDUT{Like: c.name, MTU: c.mtu}, nil)
			if err != nil {
				t.Fatal(err)
			}
			d := made.(*Tunnel)
			skipUnsupported(t, d)
			l := newTunnelLab(t, d)
			startTunnel(t, d, l)
			if d.MTU() != c.mtu || !strings.Contains(d.Traits().About, fmt.Sprint(c.mtu)) {
				t.Errorf("its MTU is %d: %s", d.MTU(), d.Traits().About)
			}
			if text, err := l.ping(t, c.mtu+1); err == nil || !strings.Contains(text, fmt.Sprint(c.mtu)) {
				t.Errorf("a packet of %d bytes: %v: %s", c.mtu+1, err, text)
			}
			if got := l.outer(t, len(c.pieces), c.mtu); !slices.Equal(got, c.pieces) {
				t.Errorf("a packet of %d bytes takes packets of %v, want %v", c.mtu, got, c.pieces)
			}
			l.checkTransfer(t)
		})
	}
	exp := &experiment.Experiment{Custom: map[string]experiment.CustomDUT{"x": {Like: "opennds", MTU: 1400}}}
	if err := CheckVariants(exp); err == nil || !strings.Contains(err.Error(), "no tunnel") ||
		!strings.Contains(err.Error(), "vxlan") {
		t.Errorf("a portal with an MTU: %v", err)
	}
}

const (
	forgetPeer = `wg setconf ` + tunnelDev + ` ` + agent.Scratch + `/tunnel/wireguard.conf; wg show ` + tunnelDev +
		` latest-handshakes | grep -q '	0$'`
	noHandshakeYet = `wg show ` + tunnelDev + ` latest-handshakes | grep -qv '	0$'`
)

// rekeyed has ocserv ask its client for new keys every few seconds.
func rekeyed() wrongKeys {
	return wrongKeys{file: "ocserv.conf", key: regexp.MustCompile(`predictable-ips = true`),
		instead: "predictable-ips = true\nrekey-time = 2\nrekey-method = ssl"}
}

// TestTunnelThatRenewsItsKeys: connections go on while the ends agree on new keys.
func TestTunnelThatRenewsItsKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings wrongKeys // have it renew them
		ask      string    // has the first gateway ask for it, between packets
		on       int       // the gateway
		shown    string    // succeeds there once there are new keys; or:
		program  string    // that says so
		says     string
	}{
		"openvpn-aes-gcm": {
			settings: wrongKeys{file: "openvpn.conf", key: regexp.MustCompile(`verb 3`), instead: "verb 3\nreneg-pkts 40"},
			program:  "openvpn", says: "TLS: soft reset"},
		"ipsec-user-aes-gcm": {ask: `swanctl --rekey --child tunnel --uri unix://` + agent.Scratch + `/tunnel/vici`,
			program: "charon", says: "closing CHILD_SA tunnel"},
		// The end that forgets its peer has no keys until both have shaken hands again.
		"wireguard-go":     {ask: forgetPeer, shown: noHandshakeYet},
		"wireguard":        {ask: forgetPeer, shown: noHandshakeYet},
		"openconnect-tls":  {settings: rekeyed(), program: "openconnect", says: "rekey due"},
		"openconnect-dtls": {settings: rekeyed(), program: "openconnect", says: "rekey due"},
		"ssh-w": {settings: wrongKeys{file: "sshd.conf", key: regexp.MustCompile(`PidFile none`),
			instead: "PidFile none\nRekeyLimit 100K\nLogLevel DEBUG1"},
			on: 1, program: "sshd", says: "rekey"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTunnel(name, 0)
			skipUnsupported(t, d)
			l := newTunnelLab(t, d)
			if c.settings.file != "" {
				for _, gateway := range []string{"gw1", "gw2"} {
					settings := c.settings
					settings.Host = l.env.Hosts[gateway]
					l.env.Hosts[gateway] = settings
				}
			}
			startTunnel(t, d, l)
			labtest.Await(t, "new keys", func() bool {
				l.gw1.must(t, c.ask)
				l.checkTransfer(t)
				gateway := []testHost{l.gw1, l.gw2}[c.on]
				if c.shown != "" {
					_, err := gateway.Run(t.Context(), agent.Command{Argv: []string{"sh", "-ec", c.shown}})
					return err == nil
				}
				return strings.Contains(gateway.must(t, `cat "$1"`, path.Join(agent.Disk, c.program+".log")), c.says)
			})
			l.checkProof(t, d)
			l.checkStop(t, d)
		})
	}
}

// TestTunnelThatIsMadeAnew: a client that connects once more, as for new keys where ocserv asks for a new tunnel, has
// another interface at the server, without the lab's routes: the lab is told, and nothing is left behind.
func TestTunnelThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	d := newTunnel("openconnect-dtls", 0)
	skipUnsupported(t, d)
	l := newTunnelLab(t, d)
	startTunnel(t, d, l)
	l.gw1.must(t, `kill -USR2 $(pgrep -x openconnect)`)
	labtest.Await(t, "the device to say so", func() bool {
		text, err := d.FailedProof(t.Context(), l.env)
		return err == nil && strings.Contains(text, "gw2")
	})
	l.checkStop(t, d)
}

// shortQueue is a gateway whose openconnect has room for one packet.
type shortQueue struct{ Host }

func (h shortQueue) Spawn(ctx context.Context, cmd agent.Command) error {
	cmd.Argv = slices.Clone(cmd.Argv)
	for i := range cmd.Argv {
		cmd.Argv[i] = strings.ReplaceAll(cmd.Argv[i], "--queue-len=100", "--queue-len=1")
	}
	return h.Host.Spawn(ctx, cmd)
}

// TestTunnelBesideDTLS: packets that take the TCP connection of a tunnel with DTLS, because the UDP socket is full, are
// told of at the next look, and not again.
func TestTunnelBesideDTLS(t *testing.T) {
	t.Parallel()
	d := newTunnel("openconnect-dtls", 0)
	skipUnsupported(t, d)
	l := newTunnelLab(t, d)
	l.env.Hosts["gw1"] = shortQueue{l.env.Hosts["gw1"]}
	startTunnel(t, d, l)
	look := func() string {
		t.Helper()
		text, err := d.FailedProof(t.Context(), l.env)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := look(); text != "" {
		t.Errorf("nothing has been sent, and it says %q", text)
	}
	labtest.Await(t, "a look that tells of it", func() bool {
		l.gw1.must(t, `ping -q -f -l 300 -c 1000 -s 1300 -w 5 -I "$1" "$2" || :`, l.env.Gateway.String(),
			l.env.ServerIP.String())
		return strings.Contains(look(), "took its TCP connection")
	})
	labtest.Await(t, "a look that counts from the last one", func() bool { return look() == "" })
	l.checkStop(t, d)
}

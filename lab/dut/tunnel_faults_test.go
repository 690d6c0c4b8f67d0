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

// The tests of this file start tunnels between two gateways, gw1 and gw2, with a fault: a wrong key, a missing peer, a
// program that ends, another MTU. A tunnel's proof (FailedProof) returns a message if the tunnel does not work as
// configured. outer1 and outer2 are the gateways' interfaces towards each other.

// editingHost is a gateway that changes one file when the lab writes it: the text that matches is replaced.
type editingHost struct {
	Host
	file        string // its name without the folder
	match       *regexp.Regexp
	replacement string
}

func (f editingHost) WriteFile(ctx context.Context, name string, data []byte, mode uint32) error {
	if path.Base(name) == f.file {
		data = f.match.ReplaceAll(data, []byte(f.replacement))
	}
	return f.Host.WriteFile(ctx, name, data, mode)
}

// wrongKeyFiles has, by the tunnel's name, the change that replaces gw1's key on gw2 by another one.
var wrongKeyFiles = map[string]editingHost{
	"openvpn-aes-gcm": {
		file: "openvpn.conf", match: regexp.MustCompile(`peer-fingerprint \w\w:\w\w`), replacement: "peer-fingerprint 00:00"},
	"wireguard-go": {file: "wireguard.conf", match: regexp.MustCompile(`PublicKey = .*`),
		replacement: "PublicKey = AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
	"ipsec-user-aes-gcm": {file: "swanctl.conf", match: regexp.MustCompile(`secret = .*`),
		replacement: `secret = "another"`},
	"ssh-w": {file: "authorized", match: regexp.MustCompile(`(?s).*`),
		replacement: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"},
	"openconnect-dtls": {file: "password", match: regexp.MustCompile(`.*\n`), replacement: "another\n"},
}

// TestTunnelsThatDoNotComeUp: the error of a start names the fault and advises what to compare, and Stop then leaves
// nothing behind.
func TestTunnelsThatDoNotComeUp(t *testing.T) {
	t.Parallel()
	for name, forged := range wrongKeyFiles {
		t.Run(name+" with a wrong key", func(t *testing.T) {
			t.Parallel()
			tunnel := newTunnel(name, 0)
			tunnel.patience = 5 * time.Second
			lab := failingTunnel(t, tunnel, func(lab *tunnelLab) {
				forged.Host = lab.env.Hosts["gw2"]
				lab.env.Hosts["gw2"] = forged
			}, "gw2 answers gw1 outside of the tunnel", "keys")
			lab.checkStop(t, tunnel)
		})
	}
	for _, name := range []string{"vxlan", "openvpn-aes-gcm", "ipsec-user-aes-gcm"} {
		t.Run(name+" without its peer", func(t *testing.T) {
			t.Parallel()
			tunnel := newTunnel(name, 0)
			tunnel.patience = 2 * time.Second
			lab := failingTunnel(t, tunnel,
				func(lab *tunnelLab) { lab.gw2.must(t, `ip link set "$1" down`, lab.env.Port("outer2")) },
				"gw2 (192.168.0.2) does not answer gw1 outside of the tunnel", "link")
			lab.gw2.must(t, `ip link set "$1" up; ip route replace 192.168.137.0/24 via 192.168.0.1`, lab.env.Port("outer2"))
			lab.checkStop(t, tunnel)
		})
	}
}

// failingTunnel starts a tunnel in a lab that spoil has changed, and checks that the error contains the texts.
func failingTunnel(t *testing.T, tunnel *Tunnel, spoil func(*tunnelLab), says ...string) *tunnelLab {
	t.Helper()
	skipUnsupported(t, tunnel)
	lab := newTunnelLab(t, tunnel)
	spoil(lab)
	err := tunnel.Start(t.Context(), lab.env)
	if err == nil {
		t.Fatal("it has started")
	}
	t.Log(err)
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it does not say %q: %v", text, err)
		}
	}
	return lab
}

// checkStop stops a tunnel and checks that nothing of it is left and that packets take the direct route.
func (l *tunnelLab) checkStop(t *testing.T, tunnel *Tunnel) {
	t.Helper()
	if err := errors.Join(tunnel.Stop(t.Context(), l.env), tunnel.Stop(t.Context(), l.env)); err != nil {
		t.Error(err)
	}
	for _, host := range []testHost{l.gw1, l.gw2} {
		if links := host.must(t, `ip -o link | grep -cE 'tunnel|tun0|vpns0|ipsec0' || :`); strings.TrimSpace(links) != "0" {
			t.Errorf("%s has %s interfaces left", host.Name, links)
		}
		if left := host.must(t, `ls "$1"`, agent.Scratch); strings.Contains(left, "tunnel") {
			t.Errorf("%s has files left: %s", host.Name, left)
		}
		for _, name := range host.processes(t) {
			if name != "sh" {
				t.Errorf("%s has %s left", host.Name, name)
			}
		}
	}
	labtest.Await(t, "packets to go the direct way", func() bool {
		_, err := l.ping(t, 100)
		return err == nil
	})
}

// TestTunnelWhoseProgramEnds: agent and FailedProof report a program that has ended, and Stop leaves nothing behind.
func TestTunnelWhoseProgramEnds(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{
		"openvpn-aes-gcm": "openvpn", "wireguard-go": "wireguard-go", "ipsec-user-aes-gcm": "charon", "ssh-w": "ssh",
		"openconnect-dtls": "openconnect",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tunnel := newTunnel(name, 0)
			skipUnsupported(t, tunnel)
			lab := newTunnelLab(t, tunnel)
			startTunnel(t, tunnel, lab)
			lab.gw1.must(t, `kill -KILL $(pgrep -x "$1")`, program)
			labtest.Await(t, "the program's end to be known", func() bool {
				process, err := (daemon{host: lab.gw1, name: program}).state(t.Context())
				return err == nil && process.Ended && strings.Contains(process.Status, "killed")
			})
			labtest.Await(t, "the device to say so", func() bool {
				text, err := tunnel.FailedProof(t.Context(), lab.env)
				return err == nil && strings.Contains(text, "gw1")
			})
			lab.checkStop(t, tunnel)
		})
	}
}

// TestTunnelOfAnotherMTU: with a smaller MTU both gateways refuse longer packets, and with a larger one outer packets
// are fragmented on the link between the gateways.
func TestTunnelOfAnotherMTU(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		mtu    int
		pieces []int // lengths of the outer packets for an inner packet of mtu bytes
	}{
		{"openvpn-aes-gcm", 1000, []int{1052}},
		{"vxlan", 1500, []int{1500, 70}}, // each fragment has an IP header
		{"wireguard-go", 1500, []int{1500, 80}},
	} {
		t.Run(fmt.Sprintf("%s %d", test.name, test.mtu), func(t *testing.T) {
			t.Parallel()
			made, err := newVariant("other", 1, experiment.CustomDUT{Like: test.name, MTU: test.mtu}, nil)
			if err != nil {
				t.Fatal(err)
			}
			tunnel := made.(*Tunnel)
			skipUnsupported(t, tunnel)
			lab := newTunnelLab(t, tunnel)
			startTunnel(t, tunnel, lab)
			if tunnel.MTU() != test.mtu || !strings.Contains(tunnel.Traits().About, fmt.Sprint(test.mtu)) {
				t.Errorf("its MTU is %d: %s", tunnel.MTU(), tunnel.Traits().About)
			}
			if text, err := lab.ping(t, test.mtu+1); err == nil || !strings.Contains(text, fmt.Sprint(test.mtu)) {
				t.Errorf("a packet of %d bytes: %v: %s", test.mtu+1, err, text)
			}
			if got := lab.outer(t, len(test.pieces), test.mtu); !slices.Equal(got, test.pieces) {
				t.Errorf("a packet of %d bytes takes packets of %v, want %v", test.mtu, got, test.pieces)
			}
			lab.checkTransfer(t)
		})
	}
	exp := &experiment.Experiment{Custom: map[string]experiment.CustomDUT{"x": {Like: "opennds", MTU: 1400}}}
	if err := CheckVariants(exp); err == nil || !strings.Contains(err.Error(), "no tunnel") ||
		!strings.Contains(err.Error(), "vxlan") {
		t.Errorf("a portal with an MTU: %v", err)
	}
}

const (
	// forgetPeer makes WireGuard forget its peer's keys. handshakeDone succeeds once it has agreed on new ones.
	forgetPeer = `wg setconf ` + tunnelDev + ` ` + agent.Scratch + `/tunnel/wireguard.conf; wg show ` + tunnelDev +
		` latest-handshakes | grep -q '	0$'`
	handshakeDone = `wg show ` + tunnelDev + ` latest-handshakes | grep -qv '	0$'`
)

// rekeyed makes ocserv ask its client for new keys every 2 s.
func rekeyed() editingHost {
	return editingHost{file: "ocserv.conf", match: regexp.MustCompile(`predictable-ips = true`),
		replacement: "predictable-ips = true\nrekey-time = 2\nrekey-method = ssl"}
}

// TestTunnelThatRenewsItsKeys: the tunnel carries connections while the gateways negotiate new keys.
func TestTunnelThatRenewsItsKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings editingHost // configures the programs to renew keys; or:
		ask      string      // script on gw1 that asks for new keys
		observer int         // gateway that shows the renewal: 0 for gw1, 1 for gw2
		shown    string      // script that succeeds once there are new keys; or:
		program  string      // the program whose log then contains says
		says     string
	}{
		"openvpn-aes-gcm": {
			settings: editingHost{file: "openvpn.conf", match: regexp.MustCompile(`verb 3`),
				replacement: "verb 3\nreneg-pkts 40"},
			program: "openvpn", says: "TLS: soft reset"},
		"ipsec-user-aes-gcm": {ask: `swanctl --rekey --child tunnel --uri unix://` + agent.Scratch + `/tunnel/vici`,
			program: "charon", says: "closing CHILD_SA tunnel"},
		// A gateway that forgets its peer has no keys until the next handshake.
		"wireguard-go":     {ask: forgetPeer, shown: handshakeDone},
		"wireguard":        {ask: forgetPeer, shown: handshakeDone},
		"openconnect-tls":  {settings: rekeyed(), program: "openconnect", says: "rekey due"},
		"openconnect-dtls": {settings: rekeyed(), program: "openconnect", says: "rekey due"},
		"ssh-w": {settings: editingHost{file: "sshd.conf", match: regexp.MustCompile(`PidFile none`),
			replacement: "PidFile none\nRekeyLimit 100K\nLogLevel DEBUG1"},
			observer: 1, program: "sshd", says: "rekey"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tunnel := newTunnel(name, 0)
			skipUnsupported(t, tunnel)
			lab := newTunnelLab(t, tunnel)
			if test.settings.file != "" {
				for _, gateway := range []string{"gw1", "gw2"} {
					settings := test.settings
					settings.Host = lab.env.Hosts[gateway]
					lab.env.Hosts[gateway] = settings
				}
			}
			startTunnel(t, tunnel, lab)
			labtest.Await(t, "new keys", func() bool {
				lab.gw1.must(t, test.ask)
				lab.checkTransfer(t)
				gateway := []testHost{lab.gw1, lab.gw2}[test.observer]
				if test.shown != "" {
					_, err := gateway.Run(t.Context(), agent.Command{Argv: []string{"sh", "-ec", test.shown}})
					return err == nil
				}
				return strings.Contains(gateway.must(t, `cat "$1"`, path.Join(agent.Disk, test.program+".log")), test.says)
			})
			lab.checkProof(t, tunnel)
			lab.checkStop(t, tunnel)
		})
	}
}

// TestTunnelThatIsMadeAnew: when the client of openconnect reconnects, its server makes another interface, without the
// lab's routes. FailedProof reports it, and Stop leaves nothing behind.
func TestTunnelThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	tunnel := newTunnel("openconnect-dtls", 0)
	skipUnsupported(t, tunnel)
	lab := newTunnelLab(t, tunnel)
	startTunnel(t, tunnel, lab)
	lab.gw1.must(t, `kill -USR2 $(pgrep -x openconnect)`)
	labtest.Await(t, "the device to say so", func() bool {
		text, err := tunnel.FailedProof(t.Context(), lab.env)
		return err == nil && strings.Contains(text, "gw2")
	})
	lab.checkStop(t, tunnel)
}

// shortQueue is a gateway whose openconnect queues one packet at most.
type shortQueue struct{ Host }

func (h shortQueue) Spawn(ctx context.Context, cmd agent.Command) error {
	cmd.Argv = slices.Clone(cmd.Argv)
	for i := range cmd.Argv {
		cmd.Argv[i] = strings.ReplaceAll(cmd.Argv[i], "--queue-len=100", "--queue-len=1")
	}
	return h.Host.Spawn(ctx, cmd)
}

// TestTunnelBesideDTLS: with a full UDP socket, packets of a DTLS tunnel take its TCP connection. The next FailedProof
// reports them, and the one after it does not.
func TestTunnelBesideDTLS(t *testing.T) {
	t.Parallel()
	tunnel := newTunnel("openconnect-dtls", 0)
	skipUnsupported(t, tunnel)
	lab := newTunnelLab(t, tunnel)
	lab.env.Hosts["gw1"] = shortQueue{lab.env.Hosts["gw1"]}
	startTunnel(t, tunnel, lab)
	look := func() string {
		t.Helper()
		text, err := tunnel.FailedProof(t.Context(), lab.env)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := look(); text != "" {
		t.Errorf("nothing has been sent, and it says %q", text)
	}
	labtest.Await(t, "a look that tells of it", func() bool {
		lab.gw1.must(t, `ping -q -f -l 300 -c 1000 -s 1300 -w 5 -I "$1" "$2" || :`, lab.env.Gateway.String(),
			lab.env.ServerIP.String())
		return strings.Contains(look(), "took its TCP connection")
	})
	labtest.Await(t, "a look that counts from the last one", func() bool { return look() == "" })
	lab.checkStop(t, tunnel)
}

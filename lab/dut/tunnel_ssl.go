package dut

import (
	"context"
	"crypto/rand"
	"fmt"
)

// sslTunnels are tunnels of programs with which people enter networks: the second gateway serves, the first one
// connects.
var sslTunnels = map[string]func() tunnelKind{
	"ssh-w":            sshW,
	"openconnect-tls":  func() tunnelKind { return openconnect(false) },
	"openconnect-dtls": func() tunnelKind { return openconnect(true) },
}

// sshW is ssh -w: packets in one TCP connection. They are data of a channel (RFC 4254, 5.2) in binary packets (RFC
// 4253, 6; OpenSSH's PROTOCOL, 2.3, and PROTOCOL.chacha20poly1305).
func sshW() tunnelKind {
	return tunnelKind{
		about: "OpenSSH 9 (ssh -w, TCP), ChaCha20-Poly1305",
		needs: []Need{
			{Program: "sshd", Package: "openssh-server", Why: "the tunnel's server", Feature: tunFeature},
			{Program: "ssh", Package: "openssh-client", Why: "the tunnel's client"},
			{Program: "ssh-keygen", Package: "openssh-client", Why: "the tunnel's keys"},
			{Program: "ss", Package: "iproute2", Why: "seeing the server listen"},
			{Program: "pkill", Package: "procps", Why: "ending the server"},
		},
		encapsulation: Encapsulation{
			Headers: []Header{
				ipv4, tcp, {Name: "length", Bytes: 4},
				{Name: "length of the padding, message, channel, length and family", Bytes: 14, Padded: true},
				{Name: "tag", Bytes: 16},
			},
			Pad: Pad{To: 8, Least: 4}, Stream: true, Inner: 2,
		},
		up: startSSH,
		// The server of a connection leaves the group of sshd.
		undo: `pkill -KILL -x sshd || :; while pgrep -x sshd >/dev/null; do sleep 0.01; done`,
	}
}

// sshPort is not SSH's own: the machine's server may have that on a gateway that is no namespace.
const sshPort = 2222

// startSSH makes keys on both gateways, tells each the other's public one, and connects.
func startSSH(ctx context.Context, t *Tunnel) error {
	gw1, gw2 := t.ends[0], t.ends[1]
	public := map[*end]string{}
	for _, e := range t.ends {
		if err := e.run(ctx, `rm -f "$DIR/key"; ssh-keygen -q -t ed25519 -N '' -C '' -f "$DIR/key"`); err != nil {
			return err
		}
		text, err := e.outputOf(ctx, `cat "$DIR/key.pub"`)
		if err != nil {
			return err
		}
		public[e] = text
	}
	err := gw2.write(ctx, "authorized", public[gw1])
	if err == nil {
		err = gw1.write(ctx, "known", fmt.Sprintf("[%s]:%d %s", gw2.outer, sshPort, public[gw2]))
	}
	if err == nil {
		err = gw2.write(ctx, "sshd.conf", sshdConfig(gw2))
	}
	if err == nil {
		// A locked account may not log in even with a key. /etc is the host's own.
		err = gw2.run(ctx, `mkdir -p /run/sshd; sed -i 's/^root:[^:]*:/root:*:/' /etc/shadow; rm -f /etc/nologin`)
	}
	if err != nil {
		return err
	}
	// it wants a whole path
	d, err := gw2.start(ctx, "sshd", "sh", "-c", `exec "$(command -v sshd)" -D -e -f "$0"`, gw2.dir+"/sshd.conf")
	if err == nil {
		err = d.await(ctx, listens("it does not listen", "t", sshPort))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", gw2.name, err)
	}
	d, err = gw1.start(ctx, "ssh", "ssh", "-F", "none", "-N", "-w", "0:0", "-i", gw1.dir+"/key", "-p", fmt.Sprint(sshPort),
		"-o", "Tunnel=point-to-point", "-o", "ExitOnForwardFailure=yes", "-o", "BatchMode=yes", "-o",
		"StrictHostKeyChecking=yes",
		"-o", "UserKnownHostsFile="+gw1.dir+"/known", "-o", "ConnectTimeout=10", "-o", "Ciphers="+sshCipher,
		"root@"+gw2.outer.String())
	if err != nil {
		return err
	}
	for _, e := range t.ends {
		e.dev = "tun0"
	}
	// The client makes its interface before it asks the server for the other one.
	if err := d.await(ctx, probe{"has no interface", "ip link show dev tun0"}); err != nil {
		return fmt.Errorf("%s: %w", gw1.name, err)
	}
	_, err = d.pollUntil(ctx, func() error { return gw2.run(ctx, `ip link show dev "$DEV"`) })
	if err != nil {
		return fmt.Errorf("%s: sshd has made no interface: %w", gw2.name, err)
	}
	return nil
}

// sshCipher is OpenSSH's first choice.
const sshCipher = "chacha20-poly1305@openssh.com"

// sshdConfig is sshd_config(5).
func sshdConfig(e *end) string {
	return fmt.Sprintf(`ListenAddress %s
Port %d
HostKey %s/key
AuthorizedKeysFile %[3]s/authorized
StrictModes no
PermitTunnel point-to-point
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitUserRC no
PidFile none
Ciphers %s
`, e.outer, sshPort, e.dir, sshCipher)
}

// openconnect is OpenConnect at ocserv, an SSL VPN (draft-mavrogiannopoulos-openconnect): packets in TLS 1.3 records
// over TCP, or in DTLS 1.2 records over UDP.
func openconnect(dtls bool) tunnelKind {
	k := tunnelKind{
		about: "OpenConnect 9 at ocserv 1.1 (TLS 1.3 over TCP), AES-256-GCM",
		needs: []Need{
			{Program: "ocserv", Package: "ocserv", Why: "the tunnel's server", Feature: tunFeature},
			{Program: "ocpasswd", Package: "ocserv", Why: "the client's account"},
			{Program: "openconnect", Package: "openconnect", Why: "the tunnel's client"},
			{Program: "ss", Package: "iproute2", Why: "seeing the server listen"},
		},
		encapsulation: Encapsulation{
			Headers: []Header{
				ipv4, tcp, {Name: "TLS record", Bytes: 5}, {Name: "CSTP", Bytes: 8}, {Name: "TLS type", Bytes: 1},
				{Name: "tag", Bytes: 16},
			},
			Stream: true, Inner: 2,
		},
	}
	if dtls {
		k.about = "OpenConnect 9 at ocserv 1.1 (DTLS 1.2 over UDP), AES-256-GCM"
		k.encapsulation = Encapsulation{Headers: []Header{
			ipv4, udp, {Name: "DTLS record", Bytes: 13}, {Name: "explicit nonce", Bytes: 8}, {Name: "type", Bytes: 1},
			{Name: "tag", Bytes: 16},
		}}
		// Without DTLS, where its socket is full, and while it renews its keys, packets take the TCP connection. What did
		// since the last look is compared with all that went into the tunnel.
		k.intact = fmt.Sprintf(
			`tcp=$(ss -Htni '( sport = :%d or dport = :%[1]d )' | grep -o 'bytes_sent:[0-9]*' | sort -t: -k2n | tail -n 1 | cut -d: -f2)
tcp=${tcp:-0} all=$(awk -v dev="$DEV:" '$1 == dev {print $10}' /proc/net/dev) was=0 before=0
[ -r "$DIR/sent" ] && read -r was before <"$DIR/sent"
echo "$tcp $all" >"$DIR/sent"
[ "$tcp" -ge "$was" ] || was=0 # it is a new connection
tcp=$((tcp - was)) all=$((all - before))
[ "$tcp" -lt %[2]d ] || [ $((100 * tcp)) -lt "$all" ] || { echo "of $all bytes $tcp took its TCP connection: DTLS did not carry all"; exit 1; }
ss -Hun '( sport = :%[1]d or dport = :%[1]d )' | grep -q . || { echo 'it has no DTLS connection'; exit 1; }`,
			ocservPort, leastByTCP)
	}
	k.up = func(ctx context.Context, t *Tunnel) error { return startOpenConnect(ctx, t, dtls) }
	return k
}

// ocservPort is one for TCP and UDP.
const ocservPort = 4443

// leastByTCP is how many bytes between two looks are more than what belongs to the TCP connection of a tunnel with
// DTLS: a login, and messages that keep it alive.
const leastByTCP = 64 << 10

// startOpenConnect starts ocserv on the second gateway and connects the first.
func startOpenConnect(ctx context.Context, t *Tunnel, dtls bool) error {
	gw1, gw2 := t.ends[0], t.ends[1]
	id, err := newIdentity(gw2.name)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"cert.pem": id.certificate, "key.pem": id.key, "ocserv.conf": ocservConfig(gw2, dtls)} {
		if err := gw2.write(ctx, name, text); err != nil {
			return err
		}
	}
	password := rand.Text() + "\n"
	err = gw2.write(ctx, "password", password)
	if err == nil {
		err = gw2.run(ctx, `cat "$DIR/password" "$DIR/password" | ocpasswd -c "$DIR/ocpasswd" gw1`)
	}
	if err == nil {
		err = gw1.write(ctx, "password", password)
	}
	if err != nil {
		return err
	}
	d, err := gw2.start(ctx, "ocserv", "ocserv", "-f", "-d", "1", "-c", gw2.dir+"/ocserv.conf")
	if err == nil {
		err = d.await(ctx, listens("it does not listen", "t", ocservPort))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", gw2.name, err)
	}
	return connectOpenConnect(ctx, gw1, gw2, id.pin, dtls)
}

// connectOpenConnect starts the client. Its script is run once the server has given it an address; what the lab's own
// address is the lab says.
func connectOpenConnect(ctx context.Context, gw1, gw2 *end, pin string, dtls bool) error {
	option, signs := "--no-dtls", []string{"SSL connected"}
	if dtls {
		// Where it has not agreed on DTLS yet when it has an address, it says so later. What does not fit into
		// the UDP socket takes the TCP connection, and packets get lost or doubled then (9.01): the ten packets
		// that it holds by itself are too few for a burst.
		option, signs = "--queue-len=100", []string{"DTLS connected", "DTLS established", "Established DTLS"}
	}
	const command = `exec openconnect -v --interface "$DEV" --script true --user gw1 --passwd-on-stdin --non-inter --reconnect-timeout 5 --servercert "$1" "$2" "$3" <"$DIR/password"`
	gw1.dev, gw2.dev = tunnelDev, "vpns0"
	d, err := gw1.start(ctx, "openconnect", "env", "DEV="+gw1.dev, "DIR="+gw1.dir, "sh", "-c", command, "sh",
		"pin-sha256:"+pin, option, fmt.Sprintf("https://%s:%d", gw2.outer, ocservPort))
	if err != nil {
		return err
	}
	if err := d.awaitAgreement(ctx, signs); err != nil {
		return fmt.Errorf("%s: %w", gw1.name, err)
	}
	// DTLS may be there before the client has its interface.
	for _, e := range []*end{gw1, gw2} {
		if _, err := d.pollUntil(ctx, func() error { return e.run(ctx, `ip link show dev "$DEV"`) }); err != nil {
			return fmt.Errorf("%s: it has no interface: %w", e.name, err)
		}
	}
	return nil
}

// ocservConfig is ocserv(8)'s configuration. It offers its clients the whole link; the lab sets the interfaces' MTU.
func ocservConfig(e *end, dtls bool) string {
	port := ""
	if dtls {
		port = fmt.Sprintf("udp-port = %d\n", ocservPort)
	}
	return fmt.Sprintf(`auth = "plain[passwd=%s/ocpasswd]"
listen-host = %s
tcp-port = %d
%srun-as-user = root
run-as-group = root
socket-file = /run/ocserv.socket
isolate-workers = false
use-occtl = false
server-cert = %[1]s/cert.pem
server-key = %[1]s/key.pem
max-clients = 2
max-same-clients = 2
keepalive = 3600
dpd = 3600
mobile-dpd = 3600
try-mtu-discovery = false
mtu = %[5]d
device = vpns
predictable-ips = true
ping-leases = false
ipv4-network = 10.8.0.0
ipv4-netmask = 255.255.255.252
cisco-client-compat = false
dtls-legacy = false
`, e.dir, e.outer, ocservPort, port, OuterLink)
}

package dut

import (
	"context"
	"crypto/rand"
	"fmt"
)

// sslTunnels are tunnels of SSH and SSL VPNs, which have a client (gw1) and a server (gw2).
var sslTunnels = map[string]func() tunnelKind{
	"ssh-w":            sshW,
	"openconnect-tls":  func() tunnelKind { return openconnect(false) },
	"openconnect-dtls": func() tunnelKind { return openconnect(true) },
}

// sshW is ssh -w: packets in one TCP connection. A packet is the data of a channel (RFC 4254, 5.2) in a binary packet
// (RFC 4253, 6; OpenSSH's PROTOCOL, 2.3, and PROTOCOL.chacha20poly1305).
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
		// sshd's process for a connection leaves sshd's process group, so the end of that group does not end it.
		undo: `pkill -KILL -x sshd || :; while pgrep -x sshd >/dev/null; do sleep 0.01; done`,
	}
}

// sshPort is not 22: on a gateway that is a machine, its own sshd may listen there.
const sshPort = 2222

// startSSH makes keys on both gateways, gives each gateway the other's public key, and connects.
func startSSH(ctx context.Context, t *Tunnel) error {
	gw1, gw2 := t.ends[0], t.ends[1]
	public := map[*end]string{}
	for _, gateway := range t.ends {
		if err := gateway.run(ctx, `rm -f "$DIR/key"; ssh-keygen -q -t ed25519 -N '' -C '' -f "$DIR/key"`); err != nil {
			return err
		}
		text, err := gateway.outputOf(ctx, `cat "$DIR/key.pub"`)
		if err != nil {
			return err
		}
		public[gateway] = text
	}
	err := gw2.write(ctx, "authorized", public[gw1])
	if err == nil {
		err = gw1.write(ctx, "known", fmt.Sprintf("[%s]:%d %s", gw2.outer, sshPort, public[gw2]))
	}
	if err == nil {
		err = gw2.write(ctx, "sshd.conf", sshdConfig(gw2))
	}
	if err == nil {
		// sshd refuses a locked account even with a key. The host has its own /etc, so the machine's is not changed.
		err = gw2.run(ctx, `mkdir -p /run/sshd; sed -i 's/^root:[^:]*:/root:*:/' /etc/shadow; rm -f /etc/nologin`)
	}
	if err != nil {
		return err
	}
	// sshd starts itself again for each connection, and needs its absolute path for that.
	program, err := gw2.start(ctx, "sshd", "sh", "-c", `exec "$(command -v sshd)" -D -e -f "$0"`, gw2.dir+"/sshd.conf")
	if err == nil {
		err = program.await(ctx, listens("it does not listen", "t", sshPort))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", gw2.name, err)
	}
	program, err = gw1.start(ctx, "ssh", "ssh", "-F", "none", "-N", "-w", "0:0", "-i", gw1.dir+"/key", "-p",
		fmt.Sprint(sshPort),
		"-o", "Tunnel=point-to-point", "-o", "ExitOnForwardFailure=yes", "-o", "BatchMode=yes", "-o",
		"StrictHostKeyChecking=yes",
		"-o", "UserKnownHostsFile="+gw1.dir+"/known", "-o", "ConnectTimeout=10", "-o", "Ciphers="+sshCipher,
		"root@"+gw2.outer.String())
	if err != nil {
		return err
	}
	for _, gateway := range t.ends {
		gateway.dev = "tun0"
	}
	// The client makes its interface before it asks the server to make one.
	if err := program.await(ctx, probe{"has no interface", "ip link show dev tun0"}); err != nil {
		return fmt.Errorf("%s: %w", gw1.name, err)
	}
	_, err = program.pollUntil(ctx, func() error { return gw2.run(ctx, `ip link show dev "$DEV"`) })
	if err != nil {
		return fmt.Errorf("%s: sshd has made no interface: %w", gw2.name, err)
	}
	return nil
}

// sshCipher is OpenSSH's default.
const sshCipher = "chacha20-poly1305@openssh.com"

// sshdConfig returns sshd_config(5).
func sshdConfig(gateway *end) string {
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
`, gateway.outer, sshPort, gateway.dir, sshCipher)
}

// openconnect is an SSL VPN (draft-mavrogiannopoulos-openconnect) with the client OpenConnect and the server ocserv:
// packets in TLS 1.3 records over TCP, or in DTLS 1.2 records over UDP.
func openconnect(dtls bool) tunnelKind {
	kind := tunnelKind{
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
		kind.about = "OpenConnect 9 at ocserv 1.1 (DTLS 1.2 over UDP), AES-256-GCM"
		kind.encapsulation = Encapsulation{Headers: []Header{
			ipv4, udp, {Name: "DTLS record", Bytes: 13}, {Name: "explicit nonce", Bytes: 8}, {Name: "type", Bytes: 1},
			{Name: "tag", Bytes: 16},
		}}
		// Packets take the TCP connection when the UDP socket is full, while DTLS renews its keys, and when there is no
		// DTLS connection. The script compares the bytes of the TCP connection since its last run with those of the tunnel.
		kind.intact = fmt.Sprintf(
			`tcp=$(ss -Htni '( sport = :%d or dport = :%[1]d )' | grep -o 'bytes_sent:[0-9]*' | sort -t: -k2n | tail -n 1 | cut -d: -f2)
tcp=${tcp:-0} all=$(awk -v dev="$DEV:" '$1 == dev {print $10}' /proc/net/dev) was=0 before=0
[ -r "$DIR/sent" ] && read -r was before <"$DIR/sent"
echo "$tcp $all" >"$DIR/sent"
[ "$tcp" -ge "$was" ] || was=0 # it is a new connection
tcp=$((tcp - was)) all=$((all - before))
[ "$tcp" -lt %[2]d ] || [ $((100 * tcp)) -lt "$all" ] || { echo "of $all bytes $tcp took its TCP connection: DTLS did not carry all"; exit 1; }
ss -Hun '( sport = :%[1]d or dport = :%[1]d )' | grep -q . || { echo 'it has no DTLS connection'; exit 1; }`,
			ocservPort, minTCPFallbackBytes)
	}
	kind.up = func(ctx context.Context, t *Tunnel) error { return startOpenConnect(ctx, t, dtls) }
	return kind
}

// ocservPort is ocserv's port for TCP and UDP.
const ocservPort = 4443

// minTCPFallbackBytes is the least number of bytes of the TCP connection, between two runs of the script intact, that
// counts as packets of the tunnel. The login and keep-alive messages of a tunnel with DTLS take fewer.
const minTCPFallbackBytes = 64 << 10

// startOpenConnect starts ocserv on gw2 and connects gw1 to it.
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
	program, err := gw2.start(ctx, "ocserv", "ocserv", "-f", "-d", "1", "-c", gw2.dir+"/ocserv.conf")
	if err == nil {
		err = program.await(ctx, listens("it does not listen", "t", ocservPort))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", gw2.name, err)
	}
	return connectOpenConnect(ctx, gw1, gw2, id.pin, dtls)
}

// connectOpenConnect starts the client. --script true keeps it from configuring the address that the server assigns:
// the lab sets the tunnel's addresses itself.
func connectOpenConnect(ctx context.Context, gw1, gw2 *end, pin string, dtls bool) error {
	option, signs := "--no-dtls", []string{"SSL connected"}
	if dtls {
		// The client may agree on DTLS before it has an address or after it, and prints other texts in each case. Packets
		// that do not fit into the UDP socket take the TCP connection, and version 9.01 then loses or doubles some. The
		// default queue of 10 packets is too short for a burst.
		option, signs = "--queue-len=100", []string{"DTLS connected", "DTLS established", "Established DTLS"}
	}
	const command = `exec openconnect -v --interface "$DEV" --script true --user gw1 --passwd-on-stdin --non-inter --reconnect-timeout 5 --servercert "$1" "$2" "$3" <"$DIR/password"`
	gw1.dev, gw2.dev = tunnelDev, "vpns0"
	program, err := gw1.start(ctx, "openconnect", "env", "DEV="+gw1.dev, "DIR="+gw1.dir, "sh", "-c", command, "sh",
		"pin-sha256:"+pin, option, fmt.Sprintf("https://%s:%d", gw2.outer, ocservPort))
	if err != nil {
		return err
	}
	if err := program.awaitAgreement(ctx, signs); err != nil {
		return fmt.Errorf("%s: %w", gw1.name, err)
	}
	// The client may agree on DTLS before it has made its interface.
	for _, gateway := range []*end{gw1, gw2} {
		if _, err := program.pollUntil(ctx, func() error { return gateway.run(ctx, `ip link show dev "$DEV"`) }); err != nil {
			return fmt.Errorf("%s: it has no interface: %w", gateway.name, err)
		}
	}
	return nil
}

// ocservConfig returns ocserv(8)'s configuration. Its mtu is that of the link between the gateways; the lab sets the
// MTU of the tunnel's interfaces.
func ocservConfig(gateway *end, dtls bool) string {
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
`, gateway.dir, gateway.outer, ocservPort, port, OuterLink)
}

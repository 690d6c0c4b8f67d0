package dut

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// A forwarder is a router with nftables rules: masquerading, or a flowtable that takes connections past the rules. Its
// proof (FailedProof) looks at the kernel's list of connections; "" means that the router works as it should. must runs
// a shell script on a host.

// startConnection opens a connection through the router and sends a line on it again and again. The server sends only
// acknowledgements.
func (l *testLab) startConnection(t *testing.T, port string) {
	t.Helper()
	l.listen(t, port)
	send := []string{"bash", "-c", "exec 3<>/dev/tcp/192.168.89.1/" + port + "; while echo line >&3; do sleep 0.05; done"}
	if err := l.clientHost.Spawn(t.Context(), agent.Command{Name: "send-" + port, Argv: send}); err != nil {
		t.Fatal(err)
	}
}

// listen makes the server accept one connection. It returns when the server listens.
func (l *testLab) listen(t *testing.T, port string) {
	t.Helper()
	listen := []string{"sh", "-c", "sleep 1000 | busybox nc -l -p " + port}
	if err := l.server.Spawn(t.Context(), agent.Command{Name: "listen-" + port, Argv: listen}); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "the server to listen", func() bool { return l.server.must(t, "ss -Hlnt 'sport = :"+port+"'") != "" })
}

// TestForwarders: the proof fails without a connection, succeeds with one, and fails again after the rule that the
// router needs is removed.
func TestForwarders(t *testing.T) {
	for name, c := range map[string]struct {
		Forwarder
		chain string // chain of the rule that is removed
		says  string // part of the proof's message then
	}{
		"masquerade":           {Forwarder{Masquerade: true}, "out", "own address"},
		"nftables-flowtable":   {Forwarder{Flowtable: true}, "forward", "in the flowtable"},
		"flowtable-masquerade": {Forwarder{Flowtable: true, Masquerade: true}, "forward", "in the flowtable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := New(name, 1, nil)
			if err != nil || d != c.Forwarder {
				t.Fatalf("%+v, %v", d, err)
			}
			skipUnsupported(t, d)
			l, _ := customLab(t)
			if err := d.Start(t.Context(), l.env); err != nil {
				t.Fatal(err)
			}
			if text, err := c.FailedProof(t.Context(), l.env); err != nil || !strings.Contains(text, "no connection") {
				t.Errorf("without connections: %q, %v", text, err)
			}
			l.startConnection(t, "7001")
			awaitFailedProof(t, l, c, "")
			if list := l.router.must(t, "cat /proc/net/nf_conntrack"); c.Flowtable != strings.Contains(list, "[OFFLOAD]") {
				t.Errorf("the kernel's list: %s", list)
			}
			// The kernel tracks connections for as long as a rule asks for it.
			l.router.must(t, `nft "flush chain ip $1 $2; add rule ip $1 $2 ct state new accept"`, forwarderTable, c.chain)
			l.startConnection(t, "7002")
			awaitFailedProof(t, l, c, c.says)
			for range 2 {
				if err := d.Stop(t.Context(), l.env); err != nil {
					t.Error(err)
				}
			}
			if rules := l.router.must(t, "nft list ruleset"); strings.Contains(rules, forwarderTable) {
				t.Errorf("left behind: %s", rules)
			}
		})
	}
}

// TestGatewayBehindFlowtable: packets of a client of gatewayd take the flowtable, with the router's address. They are
// counted all the same, the client's log-out cuts it off, and no rules are left.
func TestGatewayBehindFlowtable(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	made, err := New("flowtable-masquerade-gateway", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := made.(flowtableGateway)
	skipUnsupported(t, d)
	l := newTestLab(t, d, 1)
	l.start(t, d)
	clients, adm := l.addClients(t, 1), d.Traits().Admission
	c := clients[0]
	if c.reaches(t.Context(), trafficPort) {
		t.Error("the client reaches the server before it logged in")
	}
	loginAll(t, clients, adm)
	l.listen(t, "7001")
	conn, err := c.DialContext(t.Context(), "tcp", "192.168.89.1:7001")
	if err != nil {
		t.Fatal(err)
	}
	var talker sync.WaitGroup
	talker.Go(func() {
		for err := error(nil); err == nil; time.Sleep(50 * time.Millisecond) {
			_, err = fmt.Fprintln(conn, "line")
		}
	})
	defer talker.Wait()
	defer conn.Close()
	awaitFailedProof(t, l, d, "")
	before := l.countedUpload(t, d)
	labtest.Await(t, "what passes by the flowtable to be counted",
		func() bool { return l.countedUpload(t, d) > before+500 })
	if text, err := d.FailedProof(t.Context(), l.env); text != "" || err != nil {
		t.Errorf("while it was counted: %q, %v", text, err)
	}
	if err := client.Logout(t.Context(), c, adm, 1); err != nil {
		t.Error(err)
	}
	if c.reaches(t.Context(), trafficPort) {
		t.Error("the client reaches the server after it logged out")
	}
	checkStop(t, d, l)
	if rules := l.router.must(t, "nft list ruleset"); strings.Contains(rules, forwarderTable) {
		t.Errorf("left behind: %s", rules)
	}
}

// countedUpload returns the bytes from its only client that gatewayd has counted.
func (l *testLab) countedUpload(t *testing.T, d flowtableGateway) uint64 {
	t.Helper()
	var session struct {
		UpBytes uint64 `json:"up_bytes"`
	}
	text := l.router.must(t, `"$1" sessions --json --socket "$2"/gatewayd/control.sock`, d.program, l.env.Scratch)
	if err := json.Unmarshal([]byte(text), &session); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return session.UpBytes
}

// awaitFailedProof waits until the message of a device's proof contains says; if says is "", until the proof succeeds.
func awaitFailedProof(t *testing.T, l *testLab, d Provable, says string) {
	t.Helper()
	var text string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it said last: %q, of %s", text, connectionList(l))
		}
	})
	labtest.Await(t, "the proof's message to contain: "+says, func() bool {
		message, err := d.FailedProof(t.Context(), l.env)
		if message != text {
			t.Logf("it says %q", message)
			text = message
		}
		if err != nil {
			t.Fatal(err)
		}
		return says == "" && text == "" || says != "" && strings.Contains(text, says)
	})
}

// TestConnectionsOfTheKernelsList counts lines of Debian's kernel 6.1.
func TestConnectionsOfTheKernelsList(t *testing.T) {
	const list = `ipv4     2 tcp      6 src=192.168.137.2 dst=192.168.89.1 sport=40000 dport=5201 src=192.168.89.1 dst=192.168.89.99 sport=5201 dport=40000 [OFFLOAD] mark=0 zone=0 use=3
ipv4     2 tcp      6 431999 ESTABLISHED src=192.168.137.3 dst=192.168.89.1 sport=40000 dport=5201 src=192.168.89.1 dst=192.168.137.3 sport=5201 dport=40000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 115 TIME_WAIT src=192.168.137.2 dst=192.168.89.1 sport=40002 dport=5201 src=192.168.89.1 dst=192.168.89.99 sport=5201 dport=40002 [ASSURED] mark=0 zone=0 use=2
ipv4     2 udp      17 src=192.168.89.1 dst=192.168.137.2 sport=9 dport=7 src=192.168.137.2 dst=192.168.89.1 sport=7 dport=9 [OFFLOAD] mark=0 zone=0 use=3
ipv4     2 icmp     1 29 src=192.168.137.2 dst=192.168.89.1 type=8 code=0 id=1 src=192.168.89.1 dst=192.168.89.99 type=0 code=0 id=1 mark=0 zone=0 use=2

half a line src=
`
	got := countConnections(list, netip.MustParsePrefix("192.168.137.0/24"), netip.MustParseAddr("192.168.89.99"))
	if want := (connections{open: 3, offloaded: 2, untranslated: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestQueueStatement: in what nft lists, queueStatement matches rules with nftables' statement "queue", and not rules
// with iptables' target NFQUEUE.
func TestQueueStatement(t *testing.T) {
	for rule, want := range map[string]bool{
		"\t\tqueue num 0\n": true, "\t\tqueue flags fanout to 0-1\n": true, "\t\tcounter queue to 3\n": true,
		"\t\txt target \"NFQUEUE\"\n": false, "\t\t# queue\n": false, "\tchain queue {\n": false,
	} {
		if queueStatement.MatchString("table ip x {\n"+rule+"}\n") != want {
			t.Errorf("%q: want %v", rule, want)
		}
	}
}

// connectionList returns the kernel's connections and rules, for messages.
func connectionList(l *testLab) string {
	out, _ := l.router.Run(
		context.Background(), agent.Command{Argv: []string{"sh", "-c", "cat /proc/net/nf_conntrack; nft list ruleset"}})
	return out.Stdout
}

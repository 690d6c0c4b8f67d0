// A benchmark of the rate limits of other portals. feel_test.go has the loads (limitLoad) and the measurement.

package ebpf

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// feelPeer is a portal that limits its clients' rates.
type feelPeer struct {
	name, program string
	absent        string        // how to get it where it is missing
	warm          time.Duration // time after which its limit applies
}

// feelPeers are the portals that are measured. openNDS counts a client's bytes every 5 s here, 15 s by default, and
// drops packets beyond a number a minute while the mean of two counts is above the rate. CoovaChilli has a leaky
// bucket.
var feelPeers = []feelPeer{
	{"opennds", "opennds", "apt-get install opennds", 15 * time.Second},
	{"coovachilli", "chilli", "build CoovaChilli 1.9 with --localstatedir=/var and put its sbin directory on PATH", 0},
}

// BenchmarkPeerFeel measures what a client notices of other portals' rate limits, as BenchmarkFeel does of gatewayd's.
func BenchmarkPeerFeel(b *testing.B) {
	for _, p := range feelPeers {
		b.Run(p.name, func(b *testing.B) {
			if _, err := exec.LookPath(p.program); err != nil {
				b.Skipf("%s is not on PATH: %s", p.program, p.absent)
			}
			eachFeel(b, p.measure)
		})
	}
}

func (p feelPeer) measure(b *testing.B, c limitLoad) {
	n := newNetwork(b)
	n.farther(b)
	c.warm = p.warm
	n.run(b, p.name, int(c.mbps*1000))
	in, out := n.lan, n.wan
	if !c.up {
		in, out = out, in
	}
	c.measure(b, n, func() (passed, dropped uint64) {
		came, left := linkCount(b, in, "rx"), linkCount(b, out, "tx")
		return left, max(came, left) - left
	})
}

// linkCount returns an interface's count of packets: way is "rx" or "tx".
func linkCount(t testing.TB, dev, way string) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		name, counts, _ := strings.Cut(strings.TrimSpace(line), ":")
		if fields := strings.Fields(counts); name == dev && len(fields) == 16 {
			n, err := strconv.ParseUint(fields[map[string]int{"rx": 1, "tx": 9}[way]], 10, 64)
			must(t, err)
			return n
		}
	}
	t.Fatalf("no interface %s", dev)
	return 0
}

// run runs a portal on the router until the test ends, with Alice admitted at a rate each way, kbit/s.
func (n network) run(b *testing.B, name string, kbit int) {
	b.Helper()
	run(b, "sysctl -qw net.ipv4.ip_forward=1")
	cmd := exec.Command("unshare", "--mount", "sh", "testdata/"+name+".sh", n.lan, gateway.String(), alice.String(),
		hw(aliceMAC).String(), n.client, fmt.Sprint(kbit), n.wan)
	in, err := cmd.StdinPipe()
	must(b, err)
	said, err := cmd.StdoutPipe()
	must(b, err)
	cmd.Stderr = os.Stderr
	must(b, cmd.Start())
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	var all strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if lines.Text() == "ready" {
			return
		}
		fmt.Fprintln(&all, lines.Text())
	}
	b.Fatalf("%s did not admit the client:\n%s", name, &all)
}

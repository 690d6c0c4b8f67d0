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

// BenchmarkPeerFeel measures what BenchmarkFeel does where openNDS limits the client's rate. It counts a client's bytes
// every 5 s here, 15 s by default, and drops packets beyond a number a minute while the mean of two such times is above
// the rate: so it is measured 15 s later.
func BenchmarkPeerFeel(b *testing.B) {
	if _, err := exec.LookPath("opennds"); err != nil {
		b.Skip("openNDS is not on PATH: apt-get install opennds")
	}
	eachFeel(b, func(b *testing.B, c limitLoad) {
		n := newNetwork(b)
		n.farther(b)
		c.warm = 15 * time.Second
		n.opennds(b, int(c.mbps*1000))
		in, out := n.lan, n.wan
		if !c.up {
			in, out = out, in
		}
		c.measure(b, n, func() (passed, dropped uint64) {
			came, left := linkCount(b, in, "rx"), linkCount(b, out, "tx")
			return left, max(came, left) - left
		})
	})
}

// linkCount is an interface's count of packets, "rx" or "tx".
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

// opennds runs openNDS on the router until the test ends, with Alice admitted at a rate each way, kbit/s.
func (n network) opennds(b *testing.B, kbit int) {
	b.Helper()
	run(b, "sysctl -qw net.ipv4.ip_forward=1")
	cmd := exec.Command("unshare", "--mount", "sh", "testdata/opennds.sh", n.lan, gateway.String(), alice.String(), hw(
		aliceMAC).String(), n.client, fmt.Sprint(kbit))
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
	b.Fatalf("openNDS did not admit the client:\n%s", &all)
}

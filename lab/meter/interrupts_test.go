// A Sampler reads what a host's work costs: here the CPU time for polling links, which threads or interrupts do
// (interrupts.go).

package meter

import (
	"fmt"
	"net"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestInterruptsAgainstThreads: a router's links are metered both when threads poll them and when interrupts do. The
// test only prints the times. docs/validation.md, "Interrupts against threads", compares them.
func TestInterruptsAgainstThreads(t *testing.T) {
	client, router, server := netnstest.NewSpace(t), netnstest.NewSpace(t), netnstest.NewSpace(t)
	router.Run(t, `ip link add mslan type veth peer name mscli netns $client
ip link add mswan type veth peer name mssrv netns $server
for port in mslan mswan; do ethtool -K $port gro on >/dev/null; ip link set $port up; done
ip addr add 10.9.1.1/24 dev mslan; ip addr add 10.9.2.1/24 dev mswan; sysctl -qw net.ipv4.ip_forward=1`,
		fmt.Sprintf("client=%d", client.TID()), fmt.Sprintf("server=%d", server.TID()))
	// TSO is off, because frames of a veth with TSO reach its other end without a poll that could be metered.
	client.Run(t, "ethtool -K mscli tso off >/dev/null; ip addr add 10.9.1.2/24 dev mscli; ip link set mscli up; ip "+
		"route add default via 10.9.1.1")
	server.Run(t, "ip addr add 10.9.2.2/24 dev mssrv; ip link set mssrv up; ip route add default via 10.9.2.1")
	for _, threads := range []bool{false, true, false} {
		set := "0"
		if threads {
			set = "1"
		}
		router.Run(t, "unshare -m sh -ec 'mount -t sysfs none /sys; for port in mslan mswan; do "+
			"echo "+set+" > /sys/class/net/$port/threaded; done'")
		router.Do(func() { checkPolls(t, client, threads) })
	}
}

// checkPolls runs in the router's namespace. It has client send packets through the router, and checks the samples
// before and after. threads tells whether threads poll the router's links.
func checkPolls(t *testing.T, client *netnstest.Space, threads bool) {
	const packets = 20_000
	s := Sampler{IfNames: []string{"mslan", "mswan"}}
	if err := s.Open(); err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	before, err := s.Sample()
	if err == nil {
		client.Do(func() { err = send(packets) })
	}
	var after Sample
	took := func() int64 { return after.Links["mslan"].Sub(before.Links["mslan"]).RxPackets }
	netnstest.Until(t, "the router to have the packets", func() bool {
		if err == nil {
			after, err = s.Sample()
		}
		return err != nil || took() >= packets
	})
	if err != nil {
		t.Error(err)
		return
	}
	if bySoftirq := after.Polling == BySoftirq; bySoftirq == threads {
		t.Errorf("threads %v: links are metered by %q", threads, after.Polling)
	}
	in := after.NAPI["mslan"]
	if ns := in.RunNs - before.NAPI["mslan"].RunNs; ns <= 0 || in.Slices <= before.NAPI["mslan"].Slices {
		t.Errorf("threads %v: %d ns for %d packets in %d polls", threads, ns, packets, in.Slices)
	} else {
		t.Logf("threads %v: %d ns a packet, of them at most %d stolen", threads, ns/took(), StolenNs(before, after)/took())
	}
	var byCPU int64
	for _, ns := range after.InterruptNs {
		byCPU += ns
	}
	if all := in.RunNs + after.NAPI["mswan"].RunNs; byCPU != all && !threads || threads && byCPU > 0 {
		t.Errorf("threads %v: by CPU %d ns, by link %d", threads, byCPU, all)
	}
}

// TestStolen: on each CPU the stolen time is at most the CPU's steal, and at most the time of its interrupts.
func TestStolen(t *testing.T) {
	before := Sample{InterruptNs: map[int]int64{0: 5e6, 1: 1e6}, Steal: map[int]int64{0: 100, 1: 7, 2: 0}}
	after := Sample{InterruptNs: map[int]int64{0: 205e6, 1: 4e6, 2: 8e6, 3: 9e6},
		Steal: map[int]int64{0: 103, 1: 17, 2: 0, 3: 1}}
	if got, want := StolenNs(before, after), int64(30e6+3e6+9e6); got != want {
		t.Errorf("%d ns, want %d: 3 ticks of CPU 0, all of CPUs 1 and 3", got, want)
	}
}

// send sends so many datagrams to the server.
func send(packets int) error {
	conn, err := net.Dial("udp", "10.9.2.2:9")
	if err != nil {
		return err
	}
	defer conn.Close()
	datagram := make([]byte, 1000)
	for range packets {
		// An error: the server has refused an earlier datagram. This one is not sent.
		if _, err := conn.Write(datagram); err != nil {
			_, _ = conn.Write(datagram)
		}
	}
	return nil
}

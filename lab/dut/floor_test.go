package dut

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// TestFloors carries a connection past the router's stack, and shows the server the address that it is to see.
func TestFloors(t *testing.T) {
	for name, translates := range map[string]bool{"floor": false, "floor-nat": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := New(name, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			skipUnsupported(t, d)
			l, _ := customLab(t)
			if err := d.Start(t.Context(), l.env); err != nil {
				t.Fatal(err)
			}
			l.talk(t, "7001")
			var peer string
			labtest.Await(t, "the connection", func() bool {
				peer = l.server.must(t, "ss -Htn state established 'sport = :7001' | awk '{print $4}'")
				return peer != ""
			})
			own := l.clientHost.must(t, "ss -Htn state established 'dport = :7001' | awk '{print $3}'")
			plain := strings.NewReplacer("[::ffff:", "", "]", "", "\n", "")
			if own, peer = plain.Replace(own), plain.Replace(peer); (peer == own) == translates {
				t.Errorf("the client has %s, and the server sees %s", own, peer)
			}
			forwarded := func() string {
				return l.router.must(t, "awk '/^Ip: [0-9]/ {print $7}' /proc/net/snmp")
			}
			sent := func() string { return l.router.must(t, `cat "/sys/class/net/$1/statistics/tx_packets"`, l.env.Port("wan")) }
			was, before := forwarded(), sent()
			labtest.Await(t, "more packets to leave", func() bool { return sent() != before })
			if now := forwarded(); now != was {
				t.Errorf("the stack forwarded %s packets and then %s", was, now)
			}
			for range 2 {
				if err := d.Stop(t.Context(), l.env); err != nil {
					t.Error(err)
				}
			}
			if programs := l.router.must(t, "ps -e -o comm,args | grep -F agent-floor | grep -v grep || :"); strings.Contains(programs, "agent-floor") {
				t.Errorf("left behind: %s", programs)
			}
		})
	}
}

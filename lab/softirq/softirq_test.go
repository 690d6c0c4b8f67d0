package softirq

import (
	"fmt"
	"net"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestLink: the frames that a link's polls in softirqs take are counted. Polls by a thread are not.
func TestLink(t *testing.T) {
	here, there := netnstest.NewSpace(t), netnstest.NewSpace(t)
	here.Run(t, `ip link add sqhere type veth peer name sqthere netns $there
ethtool -K sqhere gro on >/dev/null; ip addr add 10.9.3.1/24 dev sqhere; ip link set sqhere up`,
		fmt.Sprintf("there=%d", there.TID()))
	// TSO is off, because frames of a veth with TSO reach its other end without a poll.
	there.Run(t, "ethtool -K sqthere tso off >/dev/null; ip addr add 10.9.3.2/24 dev sqthere; ip link set sqthere up")
	var m *Meter
	var index int
	here.Do(func() {
		link, err := net.InterfaceByName("sqhere")
		if err == nil {
			index = link.Index
			m, err = Open()
		}
		if err != nil {
			t.Error(err)
		}
	})
	if m == nil {
		return
	}
	defer m.Close()
	count := func() Work {
		each, err := m.Link(index)
		if err != nil {
			t.Fatal(err)
		}
		return Sum(each)
	}
	before := count()
	there.Run(t, "ping -c 3 -i 0.1 -W 5 10.9.3.1")
	if w := count(); w.Frames < before.Frames+3 || w.Times < 1 || w.Ns <= before.Ns {
		t.Errorf("of 3 requests: %+v, before %+v", w, before)
	}
	here.Run(t, "unshare -m sh -ec 'mount -t sysfs none /sys; echo 1 > /sys/class/net/sqhere/threaded'")
	before = count()
	there.Run(t, "ping -c 3 -i 0.1 -W 5 10.9.3.1")
	if w := count(); w != before {
		t.Errorf("a thread polls: %+v, before %+v", w, before)
	}
	if other, err := m.Link(9_999); err != nil || other != nil {
		t.Errorf("a link that does not exist: %+v, %v", other, err)
	}
	if _, err := m.Interrupt(9_999); err != nil {
		t.Error(err)
	}
}

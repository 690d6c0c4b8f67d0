package nic

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/result"
)

func TestMain(m *testing.M) { netnstest.Main(m, "") }

// TestPorts: settings of an interface are read as ethtool and the kernel's files show them.
func TestPorts(t *testing.T) {
	here, there := netnstest.NewSpace(t), netnstest.NewSpace(t)
	here.Run(t, `ip link add name nphere numrxqueues 2 numtxqueues 2 type veth peer name npthere netns $there
ethtool -K nphere gro on tso off >/dev/null; ip link set nphere up
unshare -m sh -ec 'mount -t sysfs none /sys
echo 1 >/sys/class/net/nphere/queues/rx-0/rps_cpus; echo 1 >/sys/class/net/nphere/queues/tx-1/xps_cpus
echo 1 >/sys/class/net/nphere/threaded'`, fmt.Sprintf("there=%d", there.TID()))
	release := strings.TrimSpace(here.Run(t, "uname -r"))
	var list []result.Port
	space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", here.TID()))
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	read := func(name string) func() error {
		return func() (err error) { list, err = Ports([]string{name}); return err }
	}
	err = inside(space, read("nphere"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v: %+v", err, list)
	}
	p := list[0]
	if p.Driver != "veth" || p.DriverVersion != "1.0" && p.DriverVersion != release || p.Threaded != "1" ||
		len(p.RPS) != 2 || strings.TrimLeft(p.RPS[0], "0,") != "1" || strings.Trim(p.RPS[1], "0,") != "" ||
		len(p.XPS) != 2 || strings.TrimLeft(p.XPS[1], "0,") != "1" || len(p.Interrupts) != 0 || p.Rings != nil {
		t.Errorf("%+v", p)
	}
	if p.Channels == nil || p.Channels.Rx+p.Channels.Combined != 2 {
		t.Errorf("channels %+v", p.Channels)
	}
	if !slices.Contains(p.Offloads, "rx-gro") || slices.Contains(p.Offloads, "tx-tcp-segmentation") {
		t.Errorf("offloads %v", p.Offloads)
	}
	if err = inside(space, read("absent")); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("of an interface that is not there: %v", err)
	}
}

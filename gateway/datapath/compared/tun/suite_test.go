// The tests that every data path must pass (package datapathtest), run with each mode of this one (paths).

package tun

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// paths returns the two modes, each as a data path for the tests of package datapathtest.
func paths() (all []datapathtest.Path) {
	for _, name := range []string{"studied", "fast"} {
		all = append(all, datapathtest.Path{
			Name: name,
			Open: func(setup datapath.Setup) (datapath.Running, error) {
				setup.Device, setup.Fast = "tun"+strings.TrimPrefix(setup.LAN(), "lan"), name == "fast"
				return open(setup)
			},
			Remove: func(setup datapath.Setup) error {
				return errors.Join(RemoveDevice(setup.LAN()), guard.RemoveFrames(setup.LAN()), guard.Remove(setup.LAN()))
			},
			Promises: datapathtest.Promises{SharesWAN: true, PPPoE: true, Restores: true, Moves: true, OwnAddress: true,
				Netfilter: true, Burst: admission.Burst, LosesJoined: !joinsUDP()},
		})
	}
	return all
}

// joinsUDP reports whether this kernel can pass aggregated UDP packets to programs. TUN devices and packet sockets can
// since Linux 6.2.
func joinsUDP() bool {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // the data path says why
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("gwjoins%d")
	if err != nil {
		return true
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_VNET_HDR)
	if unix.IoctlIfreq(fd, unix.TUNSETIFF, r) != nil {
		return true
	}
	udp, err := offload(fd)
	return udp || err != nil
}

func TestMain(m *testing.M) { datapathtest.Main(m, paths()...) }

// TestSuite runs the tests that every data path must pass.
func TestSuite(t *testing.T) {
	for _, p := range paths() {
		t.Run(p.Name, func(t *testing.T) { datapathtest.Run(t, p) })
	}
}

package tun

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/admission"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// paths are the two modes.
func paths() (all []datapathtest.Path) {
	for _, name := range []string{"studied", "fast"} {
		config := func(in datapathtest.Config) Config {
			return Config{
				Networks: []datapath.Network{in.Network}, WAN: in.WAN, Device: "tun" +
					strings.TrimPrefix(in.Network.Interface, "lan"),
				PortalPorts: in.PortalPorts, Fast: name == "fast", Lines: in.Lines, Log: in.Log,
			}
		}
		all = append(all, datapathtest.Path{
			Name: name,
			Open: func(in datapathtest.Config) (datapathtest.Datapath, error) { return Open(config(in)) },
			Remove: func(in datapathtest.Config) error {
				return errors.Join(Remove(in.Network.Interface), guard.Remove(in.Network.Interface))
			},
			Promises: datapathtest.Promises{SharesWAN: true, Lines: true, Restores: true, Moves: true, OwnAddress: true,
				Netfilter: true,
				Burst:     admission.Burst, LosesJoined: !joinsUDP()},
		})
	}
	return all
}

// joinsUDP reports whether this kernel describes UDP packets that are one to programs, as device and socket alike do
// since 6.2.
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

// TestSuite is what every data path must show.
func TestSuite(t *testing.T) {
	for _, p := range paths() {
		t.Run(p.Name, func(t *testing.T) { datapathtest.Run(t, p) })
	}
}

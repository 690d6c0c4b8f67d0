package kernel

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
)

func config(in datapathtest.Config) Config {
	return Config{LAN: in.LAN, WAN: in.WAN, Address: netip.PrefixFrom(in.Gateway, in.Prefix.Bits()), Log: in.Log}
}

var path = datapathtest.Path{
	Name:     "kernel",
	Open:     func(in datapathtest.Config) (datapathtest.Datapath, error) { return Open(config(in)) },
	Remove:   func(in datapathtest.Config) error { return errors.Join(Remove(in.LAN), guard.Remove(in.LAN)) },
	Promises: datapathtest.Promises{Lines: true, LinesOnly: true, Restores: true, Moves: true, Netfilter: true, Burst: burst},
}

func TestMain(m *testing.M) { datapathtest.Main(m, path) }

// TestSuite is what every data path with PPPoE must show.
func TestSuite(t *testing.T) {
	if err := hasPPPoE(); errors.Is(err, datapath.ErrNotSupported) {
		t.Skip("the kernel lacks PPPoE (CONFIG_PPPOE)")
	} else if err != nil {
		t.Fatal(err)
	}
	datapathtest.RunLines(t, path)
}

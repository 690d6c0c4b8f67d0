package tun

import "github.com/gateweigh/gateweigh/gateway/datapath"

// Kind is this kind of data path.
var Kind = datapath.Kind{
	Name:       "tun",
	Open:       open,
	Check:      func(s datapath.Setup) error { return Check(config(s)) },
	Left:       func(s datapath.Setup) bool { return Left(s.LAN()) },
	Leave:      func(s datapath.Setup) error { return RemoveDevice(s.LAN()) },
	Shares:     []datapath.Shared{datapath.Frames, datapath.Guarding},
	Interface:  func(s datapath.Setup) string { return s.Device },
	OwnAddress: true,
}

func open(s datapath.Setup) (datapath.Running, error) {
	d, err := Open(config(s))
	if err != nil {
		return datapath.Running{}, err
	}
	return datapath.Running{Forwarder: d, Wait: d.Wait, OpenPort: d.OpenPort, Moved: d.Moved}, nil
}

func config(s datapath.Setup) Config {
	return Config{
		Networks: s.Networks, WAN: s.WAN, Device: s.Device, PortalPorts: s.PortalPorts, Fast: s.Fast,
		Lines: s.Lines, Former: s.Former, Log: s.Log,
	}
}

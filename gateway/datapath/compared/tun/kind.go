package tun

import "github.com/gateweigh/gateweigh/gateway/datapath"

// Kind is this kind of data path.
var Kind = datapath.Kind{
	Traits:     datapath.Traits{Name: "tun", Keys: []string{"fast", "device"}, PPPoE: true, HidesLAN: true},
	Open:       open,
	Check:      Check,
	Left:       func(s datapath.Setup) bool { return Left(s.LAN()) },
	Leave:      func(s datapath.Setup) error { return RemoveDevice(s.LAN()) },
	Shares:     []datapath.Shared{datapath.Frames, datapath.Guarding},
	Interface:  func(s datapath.Setup) string { return s.Device },
	OwnAddress: true,
}

func open(s datapath.Setup) (datapath.Running, error) {
	d, err := Open(s)
	if err != nil {
		return datapath.Running{}, err
	}
	return datapath.Running{Forwarder: d, Wait: d.Wait, OpenPort: d.OpenPort, Moved: d.Moved}, nil
}

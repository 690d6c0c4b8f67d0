// This data path as package datapath knows it.

package nfqueue

import (
	"errors"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Kind is this kind of data path. It needs no guard: the rules outlive it, and drop what nobody judges.
var Kind = datapath.Kind{
	Traits: datapath.Traits{Name: "nfqueue", Keys: []string{"fast"}, FastUntracked: true},
	Open:   openKind,
	Check:  func(s datapath.Setup) error { return Check(s.LAN()) },
	Left:   func(s datapath.Setup) bool { return Left(s.LAN()) },
	Leave:  func(s datapath.Setup) error { return Clear(s.LAN()) },
	Shares: []datapath.Shared{datapath.Neighbours},
}

func openKind(s datapath.Setup) (datapath.Running, error) {
	d, err := open(config{Setup: s})
	if err != nil {
		return datapath.Running{}, err
	}
	if err := s.LeaveFormer(); err != nil {
		return datapath.Running{}, errors.Join(err, d.Close())
	}
	return d.running(), nil
}

func (d *Datapath) running() datapath.Running {
	return datapath.Running{Forwarder: d, Wait: d.Wait, OpenPort: d.OpenPort}
}

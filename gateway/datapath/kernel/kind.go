package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/keeper"
)

// Kind describes the data path that leaves PPPoE sessions to the kernel's PPP. It shares with other kinds the rules
// that drop the LAN's frames and the guard's. Without the daemon, packets pass for as long as the keeper waits for a
// successor. Each client has an interface of its own, so there is none of the data path.
var Kind = datapath.Kind{
	Traits:    datapath.Traits{Name: "kernel", PPPoE: true, Outside: true, IPv6: true, PPPoEOnly: true},
	Open:      open,
	Check:     Check,
	Warn:      warn,
	Leave:     func(s datapath.Setup) error { return Clear(s.LAN()) },
	Shares:    []datapath.Shared{datapath.Frames, datapath.Guarding},
	Outlives:  keeper.AloneFor,
	Interface: func(datapath.Setup) string { return "" },
	Keep:      Keep,
}

func open(s datapath.Setup) (datapath.Running, error) {
	d, err := Open(s)
	if err != nil {
		return datapath.Running{}, err
	}
	return datapath.Running{Forwarder: d, Wait: d.Wait, Moved: d.Moved, Carrier: d, IPv6: d}, nil
}

// warn warns of fewer open files than the sessions may need.
func warn(s datapath.Setup) []string {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return nil
	}
	needed := filesFor(s.Sessions)
	if needed <= limit.Cur { // Go has raised it to the hard limit
		return nil
	}
	room := sessionsWith(limit.Cur)
	return []string{fmt.Sprintf(
		"this process may open %d files, enough for %d PPPoE sessions in the kernel, and the configuration allows "+
			"%d: a session beyond is refused, or ends with the daemon; give the daemon LimitNOFILE=%d (ulimit -n), "+
			"or set pppoe.sessions = %d",
		limit.Cur, room, s.Sessions, needed, max(room, 1))}
}

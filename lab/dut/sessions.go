package dut

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// silentFrom is the place in the LAN of the first client that never sends. The clients
// that the lab brings have the places below.
const silentFrom = 4096

// The clients have room there, beside the network, the router and the last address.
const _ = uint(silentFrom - 3 - experiment.MaxAmongSessions)

// fillTimeout bounds logging the silent clients in, and telling the RADIUS server.
const fillTimeout = 5 * time.Minute

// Fill implements Fillable.
func (g *Gateway) Fill(sessions int) { g.sessions = sessions }

// fill logs the silent clients in. It returns when the accounting server has acknowledged
// all of them, because the daemon works for them until then.
func (g *Gateway) fill(ctx context.Context, router Host, dir string, lan netip.Prefix) error {
	silent := g.sessions - g.clients
	if silent <= 0 {
		return nil
	}
	var list strings.Builder
	for i := range silent {
		fmt.Fprintf(&list, "%s silent 06:00:00:%02x:%02x:%02x\n", hostOf(lan, silentFrom+i), i>>16, i>>8&0xff, i&0xff)
	}
	file := path.Join(dir, "silent")
	if err := router.WriteFile(ctx, file, []byte(list.String()), 0o600); err != nil {
		return fmt.Errorf("writing the list of %d clients: %w", silent, err)
	}
	const login = `"$1" login --list "$2" --socket "$3" > /dev/null
until "$1" status --json --socket "$3" | grep -q '"outbox": 0,'; do sleep 0.5; done`
	_, err := router.Run(ctx, agent.Command{
		Argv: []string{"sh", "-ec", login, "sh", g.program, file, path.Join(dir, "control.sock")}, Timeout: fillTimeout,
	})
	if err != nil {
		return fmt.Errorf("logging %d clients in that never send: %w", silent, err)
	}
	return nil
}

// hostOf is the n-th address of a network.
func hostOf(lan netip.Prefix, n int) netip.Addr {
	b := lan.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

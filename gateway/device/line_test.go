package device

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// landlord is a server that knows devices by their VLANs: in 9 it lets none in, and of those in 5 it says nothing at
// first.
type landlord struct {
	oracle
	knows bool // those in 5
}

func (l *landlord) Ask(ctx context.Context, c session.Credentials) (session.Login, error) {
	login, err := l.oracle.Ask(ctx, c)
	switch login.User = c.VLANs.String(); {
	case login.User == "9":
		err = session.ErrRejected
	case login.User == "5" && !l.knows:
		l.knows, err = true, errors.New("no server")
	}
	return login, err
}

// TestAnotherLine: a device that moves to another line is asked about there at once, whether it is inside, outside or
// refused, and has no session of the line that it left. Where its line is not known it stays as it is.
func TestAnotherLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := netip.MustParseAddr("10.1.0.5")
		table := &clients{all: map[netip.Addr]session.Session{
			addr: {Key: session.Key{MAC: some, Addr: addr}, State: session.Leased}}}
		source := &landlord{}
		d := New(Config{Servers: source, Table: table, Keep: time.Hour, Log: slog.New(slog.DiscardHandler)})
		defer d.Close()
		for i, c := range []struct {
			vlan  uint16
			leave bool   // its session ends first
			user  string // then; "": it is outside
			asked int
		}{
			{7, false, "7", 1}, {7, false, "7", 0}, {8, false, "8", 1}, {0, false, "8", 0}, {7, true, "7", 1},
			{9, false, "", 1}, {9, false, "", 0}, {8, false, "8", 1}, {8, true, "8", 0}, {5, false, "8", 1},
		} {
			if c.leave {
				d.Ended(table.ClientsOf(some)[0], session.IdleTimeout)
				table.set(addr, session.PreAuth)
			}
			table.mu.Lock()
			s := table.all[addr]
			s.Attachment.VLANs.Outer = c.vlan
			table.all[addr] = s
			table.mu.Unlock()
			d.Seen(some)
			synctest.Wait()
			if s := table.ClientsOf(some)[0]; s.User != c.user || (s.State == session.Authenticated) != (c.user != "") {
				t.Errorf("%d: the device is %s as %q, want %q", i, s.State, s.User, c.user)
			}
			if n := source.count(); n != c.asked {
				t.Errorf("%d: asked %d times, want %d", i, n, c.asked)
			}
		}
		time.Sleep(retryLast)
		d.Sweep()
		synctest.Wait()
		if s := table.ClientsOf(some)[0]; s.User != "5" {
			t.Errorf("once there is an answer the device is inside as %q", s.User)
		}
	})
}

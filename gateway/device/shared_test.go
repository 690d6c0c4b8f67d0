// Tests of devices that two gateways remember together, in a real server of Redis.

package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// joined is a gateway that remembers devices together with others. Its time line is behind the wall clock.
func joined(t *testing.T, server *redistest.Server, name, path string, behind time.Duration) (r *Remembered,
	leave func(),
) {
	s := cluster.Open(cluster.Options{Addresses: []string{server.Addr}, Prefix: "test:", Gateway: name, Instance: name,
		Log: slog.New(slog.DiscardHandler), Sessions: func() int { return 0 }})
	store, err := OpenStore(path)
	netnstest.Must(t, err)
	r, err = OpenRemembered(store, nil, month, ahead(behind))
	netnstest.Must(t, err)
	run, end := r.Share(s, "remembered", slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	running.Go(func() { run(ctx) })
	leave = sync.OnceFunc(func() {
		stop()
		running.Wait()
		end()
		s.Close()
		netnstest.Must(t, r.Close())
	})
	t.Cleanup(leave)
	return r, leave
}

// TestRememberedTogether: a device that one gateway remembers or forgets the other does too, also where the store was
// away meanwhile, was emptied, and where a gateway was restarted. Their time lines may differ. Long: the steps of one
// run, each of which needs the state that the one before left.
func TestRememberedTogether(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	path := filepath.Join(t.TempDir(), "one.db")
	one, leave := joined(t, server, "gw1", path, 10*time.Minute)
	two, _ := joined(t, server, "gw2", filepath.Join(t.TempDir(), "two.db"), -10*time.Minute)
	both := func(label, user string) {
		t.Helper()
		netnstest.Await(t, label, func() error {
			for n, r := range []*Remembered{one, two} {
				login, err := r.ask()
				if user == "" && errors.Is(err, session.ErrRejected) || err == nil && user != "" && login.User == user {
					continue
				}
				return fmt.Errorf("gateway %d: %+v, %v", n+1, login, err)
			}
			return nil
		})
	}
	forget := func(r *Remembered) {
		t.Helper()
		found, err := r.Forget(some)
		netnstest.Must(t, err)
		if !found {
			t.Error("there was nothing to forget")
		}
	}
	netnstest.Must(t, one.Remember(begun("ann"), session.Login{User: "ann"}))
	both("it is remembered by both", "ann")
	if all := two.All(); len(all) != 1 || (time.Until(all[0].Until)-month).Abs() > time.Minute {
		t.Errorf("the other one has %+v", all)
	}
	forget(two)
	both("it is forgotten by both", "")

	server.Kill()
	netnstest.Must(t, two.Remember(begun("bob"), session.Login{User: "bob"}))
	if _, err := one.ask(); !errors.Is(err, session.ErrRejected) {
		t.Errorf("without the store: %v", err)
	}
	server.Restart()
	both("it is remembered by both", "bob")
	server.Kill()
	forget(one)
	leave()
	one, _ = joined(t, server, "gw1", path, 10*time.Minute)
	server.Restart()
	both("it is forgotten by both", "")
	netnstest.Must(t, one.Remember(begun("eve"), session.Login{User: "eve"}))
	both("it is remembered again", "eve")
	server.CLI("FLUSHALL")
	netnstest.Await(t, "the emptied store has it", func() error {
		if n := server.CLI("HLEN", "test:remembered:all"); n != "1" {
			return errors.New(n)
		}
		return nil
	})
	forget(one)
	both("it is forgotten after all", "")
}

// waitingStore writes nothing until it may.
type waitingStore struct {
	Store
	may chan struct{}
}

func (s waitingStore) Write(mac datapath.MAC, record []byte) error {
	<-s.may
	return s.Store.Write(mac, record)
}

// TestSlowDisk: what the store tells does not wait for a gateway's disk, and is remembered when that has it.
func TestSlowDisk(t *testing.T) {
	away := &redistest.Server{Addr: "127.0.0.1:1"}
	one, _ := joined(t, away, "gw1", filepath.Join(t.TempDir(), "one.db"), 0)
	netnstest.Must(t, one.Remember(begun("ann"), session.Login{User: "ann"}))
	content := one.shared.contentOf(some)
	two, _ := joined(t, away, "gw2", filepath.Join(t.TempDir(), "two.db"), 0)
	may := make(chan struct{})
	two.store = waitingStore{two.store, may}
	for _, mac := range []datapath.MAC{some, {2, 0, 0, 0, 0, 0x77}} {
		key := net.HardwareAddr(mac[:]).String()
		if instead := two.shared.Told(key, cluster.Record{Version: 1, Content: content}); instead != nil {
			t.Errorf("the store should have %s", instead)
		}
	}
	if n := len(two.All()); n > 1 {
		t.Errorf("%d are remembered", n)
	}
	close(may)
	netnstest.Await(t, "both are remembered", func() error {
		if n := len(two.All()); n != 2 {
			return fmt.Errorf("%d", n)
		}
		_, err := two.ask()
		return err
	})
}

package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// TestForget: a gateway that is there is not forgotten. One that is away is, with its records: followers are told, and
// the others' records stay. When it is back its records are too.
func TestForget(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, f, leave := join(t, options(server, "gw1"))
	two, own, _ := join(t, options(server, "gw2"))
	told := follow(two)
	f.put("a", "its")
	own.put("b", "mine")
	inStore(t, one, f)
	inStore(t, two, own)
	told.holds(t, "the record before", f, "gw1")
	if err := two.Forget(t.Context(), "gw1"); !errors.Is(err, ErrThere) {
		t.Errorf("one that is there: %v", err)
	}
	if err := two.Forget(t.Context(), "gw3"); !errors.Is(err, ErrUnknown) {
		t.Errorf("one that never was: %v", err)
	}
	server.CLI("SADD", "test:sets", "vouchers:all")
	if err := two.Forget(t.Context(), everybody); !errors.Is(err, ErrUnknown) {
		t.Errorf("what all gateways have together: %v", err)
	}
	leave()
	netnstest.Must(t, two.Forget(t.Context(), "gw1"))
	told.holds(t, "the follower knows nothing of it", &file{}, "gw1")
	if left := server.CLI("--raw", "KEYS", "*gw1*"); strings.TrimSpace(left) != "" {
		t.Errorf("keys are left: %s", left)
	}
	members, err := two.Members(t.Context())
	if err != nil || len(members) != 1 || members[0].Name != "gw2" {
		t.Errorf("%+v, %v", members, err)
	}
	inStore(t, two, own)
	again, f2, _ := join(t, options(server, "gw1"))
	f2.put("c", "back")
	inStore(t, again, f2)
	netnstest.Await(t, "it is listed again", func() error {
		if members, err := two.Members(t.Context()); err != nil || len(members) != 2 {
			return fmt.Errorf("%+v, %v", members, err)
		}
		return nil
	})
}

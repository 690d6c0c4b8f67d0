// Tests of gateways that have a site together. join runs a gateway's store with records of a file (store_test.go).

package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// joinSite is join for a gateway of the site "campus", whose set has the file's records.
func joinSite(t *testing.T, server *redistest.Server, name string) (s *Store, f *file, site *Site, leave func()) {
	t.Helper()
	s, f, leave = join(t, options(server, name))
	site = s.Site("campus", "sessions")
	f.Of(site)
	return s, f, site, leave
}

// TestLateTerm: a store that loses the lead does not give it back to a gateway that served before, once another one,
// which knew the lead, serves.
func TestLateTerm(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	_, _, one, _ := joinSite(t, server, "gw1")
	_, _, two, _ := joinSite(t, server, "gw2")
	for range 5 {
		_, err := one.Take(t.Context(), 0)
		netnstest.Must(t, err)
	}
	_, err := two.Look(t.Context())
	netnstest.Must(t, err)
	server.CLI("FLUSHALL")
	taken, err := two.Take(t.Context(), 0)
	if err != nil || taken.Gateway != "gw2" || taken.Term != 6 {
		t.Errorf("taken: %+v, %v", taken, err)
	}
	kept, err := one.Keep(t.Context(), 0)
	if err != nil || kept.Gateway != "gw2" || kept.Term != taken.Term || one.Term() != 0 {
		t.Errorf("kept by the former one: %+v, %v", kept, err)
	}
}

// TestComplete: a set is complete when it has all sessions, not when it has records of another kind. They follow as
// soon as the lead is taken.
func TestComplete(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, site, _ := joinSite(t, server, "gw1")
	f.Read(nil)
	leases := &file{Mirror: s.Mirror("leases"), records: map[string][]byte{}}
	leases.Of(site)
	leases.Read(leases.each)
	leases.put("10.1.0.5", "leased")
	_, err := site.Take(t.Context(), 0)
	netnstest.Must(t, err)
	netnstest.Await(t, "the lease is in the store", func() error {
		if _, found, err := s.Get(t.Context(), "leases", "campus", "10.1.0.5"); err != nil || !found {
			return fmt.Errorf("%v, %v", found, err)
		}
		return nil
	})
	netnstest.Await(t, "all leases are compared", func() error {
		if n, _ := leases.waiting(); n > 0 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	if l, err := site.Look(t.Context()); err != nil || l.Complete {
		t.Errorf("without the sessions: %+v, %v", l, err)
	}
	f.put("a", "session")
	f.Read(f.each)
	netnstest.Await(t, "it is complete", func() error {
		if l, err := site.Look(t.Context()); err != nil || !l.Complete {
			return fmt.Errorf("%+v, %v", l, err)
		}
		return nil
	})
	if _, found, err := s.Get(t.Context(), "sessions", "campus", "a"); err != nil || !found {
		t.Errorf("a complete set has no session: %v", err)
	}
}

// TestForgetSite: a site is listed, and is not forgotten while the gateway that serves is there. One that ends leaves
// the lease after its last changes. Then the site may be forgotten, with its lead.
func TestForgetSite(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, f, site, leave := joinSite(t, server, "gw1")
	two, _, other, _ := joinSite(t, server, "gw2")
	_, err := site.Take(t.Context(), time.Minute)
	netnstest.Must(t, err)
	f.put("a", "first")
	netnstest.Await(t, "the site is listed", func() error {
		members, err := two.Members(t.Context())
		if err != nil {
			return err
		}
		if sites, err := two.Sites(t.Context(), "sessions", members); err != nil || !slices.Equal(sites, []string{"campus"}) {
			return fmt.Errorf("%v, %v", sites, err)
		}
		return nil
	})
	if err := two.Forget(t.Context(), "campus"); !errors.Is(err, ErrThere) {
		t.Errorf("forgotten while gw1 serves: %v", err)
	}
	if l, err := other.Take(t.Context(), time.Minute); err != nil || l.Gateway != "gw1" {
		t.Errorf("taken while the other one has the lease: %+v, %v", l, err)
	}
	await(t, one, true)
	f.put("b", "last")
	site.LeaveAtClose()
	leave()
	if _, found, err := two.Get(t.Context(), "sessions", "campus", "b"); err != nil || !found {
		t.Errorf("the last change: %v, %v", found, err)
	}
	if l, err := other.Look(t.Context()); err != nil || l.Left > 0 {
		t.Errorf("the lease: %+v, %v", l, err)
	}
	netnstest.Must(t, two.Forget(t.Context(), "campus"))
	if left := server.CLI("--raw", "KEYS", "*campus*"); left != "" && left != "\n" {
		t.Errorf("keys are left: %s", left)
	}
}

// How the Server tells Bound, Gone and the Store (Config) what its Table has decided.

package bindings

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// waitForRoom waits while there is too much news that Bound, Gone and the Store have not been told.
func (s *Server) waitForRoom() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.news) > maxNews && !s.ended {
		s.fewer.Wait()
	}
}

// tellAll tells Bound, Gone and the Store what changes, until ctx ends and all is told.
func (s *Server) tellAll(ctx context.Context) {
	for over := false; ; {
		s.mu.Lock()
		news := s.news
		s.news = nil
		s.fewer.Broadcast()
		s.mu.Unlock()
		s.tellTogether(news)
		switch {
		case len(news) > 0:
		case over:
			return
		default:
			select {
			case <-ctx.Done():
				over = true
			case <-s.told:
			}
		}
	}
}

// story is news that must be told in order: first the addresses that a client takes, in one call of Bound, then further
// actions about these addresses. Without addresses it is the actions about one address.
type story struct {
	anchor Anchor
	bound  []netip.Addr
	then   []Action
}

// stories sorts news into stories: actions about one address stay in order in one story, and all addresses that a
// client takes and keeps are in one story.
func stories(news []Action) (all []*story) {
	of := make(map[netip.Addr][]Action, len(news))
	var order []netip.Addr
	for _, a := range news {
		if of[a.Addr] == nil {
			order = append(order, a.Addr)
		}
		of[a.Addr] = append(of[a.Addr], a)
	}
	taking := map[Anchor]*story{}
	for _, addr := range order {
		first, then := of[addr][0], of[addr][1:]
		if first.Kind != Bound || slices.ContainsFunc(then, func(a Action) bool { return a.Kind == Gone }) {
			all = append(all, &story{then: of[addr]})
			continue
		}
		if taking[first.Anchor] == nil {
			taking[first.Anchor] = &story{anchor: first.Anchor}
			all = append(all, taking[first.Anchor])
		}
		to := taking[first.Anchor]
		to.bound, to.then = append(to.bound, addr), append(to.then, then...)
	}
	return all
}

// tellTogether tells the stories of news, at most together (server.go) of them at the same time.
func (s *Server) tellTogether(news []Action) {
	var telling sync.WaitGroup
	free := make(chan struct{}, together)
	for _, one := range stories(news) {
		free <- struct{}{}
		telling.Go(func() {
			if len(one.bound) > 0 {
				s.cfg.Bound(one.anchor, one.bound...)
			}
			for _, a := range one.then {
				s.tell(a)
			}
			<-free
		})
	}
	telling.Wait()
}

func (s *Server) tell(a Action) {
	var err error
	switch a.Kind {
	case Bound:
		s.cfg.Bound(a.Anchor, a.Addr)
	case Gone:
		s.cfg.Gone(a.Anchor, a.Addr)
	case Keep:
		if s.cfg.Store != nil {
			err = s.cfg.Store.Put(Saved{a.Addr, a.Anchor})
		}
	case Forget:
		if s.cfg.Store != nil {
			err = s.cfg.Store.Delete(a.Addr)
		}
	}
	if err != nil {
		s.storeErrors.Do(func() { s.log.Error("saving bindings", "interface", s.cfg.Interface, "err", err) })
	}
}

// end lets those go on that wait in waitForRoom, because the server ends.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.fewer.Broadcast()
}

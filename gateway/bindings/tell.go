package bindings

import (
	"context"
	"net/netip"
	"sync"
)

// waitForRoom waits while too much news does.
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

// tellTogether tells what concerns one address in order, and of as many as together addresses at once.
func (s *Server) tellTogether(news []Action) {
	var order []netip.Addr
	of := make(map[netip.Addr][]Action, len(news))
	for _, a := range news {
		if of[a.Addr] == nil {
			order = append(order, a.Addr)
		}
		of[a.Addr] = append(of[a.Addr], a)
	}
	var telling sync.WaitGroup
	free := make(chan struct{}, together)
	for _, addr := range order {
		free <- struct{}{}
		telling.Go(func() {
			for _, a := range of[addr] {
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

// end has nobody wait for news to become fewer.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.fewer.Broadcast()
}

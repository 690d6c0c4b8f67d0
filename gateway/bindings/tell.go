package bindings

import "context"

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
		for _, a := range news {
			s.tell(a)
		}
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

package keeper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Alone is how long a keeper waits for another owner.
const Alone = 5 * time.Minute

// held is an item in the keeper.
type held struct {
	message
	files []int
	end   *time.Timer // nil: none
}

// server is a keeper's end.
type server struct {
	alone time.Duration
	over  chan struct{} // closed by finish
	once  sync.Once
	owner chan struct{} // holds a value while there is an owner

	mu      sync.Mutex
	items   map[string]*held // guarded by mu
	nobody  *time.Timer      // guarded by mu
	pending int              // owners present or waiting, guarded by mu
}

// Serve is the keeper: it returns, and the process is to end, when it is told so, when it holds nothing and its owner
// is gone, or when it had none for the time alone. listener is the socket on which Keeper listened.
func Serve(listener *os.File, alone time.Duration) error {
	l, err := net.FileListener(listener)
	if err != nil {
		return fmt.Errorf("keeping files for another process: this command is for gatewayd itself: %w", err)
	}
	listener.Close()
	s := &server{alone: alone, over: make(chan struct{}), owner: make(chan struct{}, 1), items: map[string]*held{}}
	s.nobody = time.AfterFunc(alone, s.finish)
	failed := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			go s.serve(conn.(*net.UnixConn))
		}
	}()
	select {
	case <-s.over:
		return nil
	case err := <-failed:
		return fmt.Errorf("keeping files for another process: %w", err)
	}
}

// finish closes everything, which takes its time, and then has Serve return. Connections end with the process: who
// waits for that knows that the files are closed.
func (s *server) finish() {
	s.once.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range s.items {
			closeAll(h.files)
		}
		s.items = nil
		close(s.over)
	})
}

// serve serves one process: an owner, or one that has the keeper end.
func (s *server) serve(conn *net.UnixConn) {
	defer conn.Close()
	if own(conn) != nil {
		return
	}
	m, files, err := receive(conn, patience)
	closeAll(files)
	switch {
	case err != nil:
	case m.Verb == end:
		s.finish()
		select {}
	case m.Verb == taking:
		s.begin()
		defer s.leave()
		if err := s.tell(conn); err != nil {
			return
		}
		s.obey(conn)
	}
}

// begin waits until a former owner's messages are read.
func (s *server) begin() {
	s.mu.Lock()
	s.pending++
	s.nobody.Stop()
	s.mu.Unlock()
	s.owner <- struct{}{}
}

func (s *server) leave() {
	<-s.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending--; s.pending > 0 {
		return
	}
	s.nobody = time.AfterFunc(s.alone, s.finish)
	s.bored()
}

// bored ends a keeper that has no owner and no files. mu is held.
func (s *server) bored() {
	for _, h := range s.items {
		if len(h.files) > 0 {
			return
		}
	}
	if s.pending == 0 {
		go s.finish()
	}
}

// tell tells a new owner what is held.
func (s *server) tell(conn *net.UnixConn) error {
	s.mu.Lock()
	all := make([]*held, 0, len(s.items))
	for _, h := range s.items {
		all = append(all, h)
	}
	s.mu.Unlock()
	for _, h := range all {
		s.mu.Lock()
		var err error
		if s.items[h.Key] == h { // else its time is over
			h.Verb = holding
			err = send(conn, h.message, h.files...)
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return send(conn, message{Verb: done})
}

// obey does what an owner says until it is gone.
func (s *server) obey(conn *net.UnixConn) {
	if conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	for {
		m, files, err := receive(conn, 0)
		if errors.Is(err, errCut) {
			continue // too many files: what they are of ends with the owner
		}
		if err != nil {
			return
		}
		switch m.Verb {
		case put:
			s.put(m, files)
		case drop:
			closeAll(files)
			s.drop(m.Key, nil)
		case end:
			s.finish()
			select {}
		}
	}
}

func (s *server) put(m message, files []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.items[m.Key]
	switch {
	case s.items == nil: // it is over
		closeAll(files)
		return
	case h == nil:
		h = &held{files: files}
		s.items[m.Key] = h
	case len(files) > 0:
		defer closeAll(h.files)
		h.files = files
	}
	h.message = m
	if h.end != nil {
		h.end.Stop()
		h.end = nil
	}
	if !m.Until.IsZero() {
		h.end = time.AfterFunc(time.Until(m.Until), func() { s.drop(m.Key, h) })
	}
}

// drop closes an item's files; which: only if it is this item, and its time is over.
func (s *server) drop(key string, which *held) {
	s.mu.Lock()
	h := s.items[key]
	if h == nil || which != nil && (h != which || time.Now().Before(h.Until)) {
		s.mu.Unlock()
		return
	}
	delete(s.items, key)
	if h.end != nil {
		h.end.Stop()
	}
	s.mu.Unlock()
	closeAll(h.files) // which may take its time
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bored()
}

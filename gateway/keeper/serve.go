package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// AloneFor is how long a keeper waits for another owner.
const AloneFor = 5 * time.Minute

// heldItem is an item in the keeper.
type heldItem struct {
	message
	files  []int
	expiry *time.Timer // nil: none
}

// server is the keeper's process: it holds items while its owner runs and after that.
type server struct {
	Serving
	finished chan struct{} // closed by finish
	once     sync.Once
	owner    chan struct{} // holds a value while there is an owner

	reserve reserve

	mu         sync.Mutex
	items      map[string]*heldItem // guarded by mu
	ownerTimer *time.Timer          // ends a keeper that has no owner; guarded by mu
	pending    int                  // owners present or waiting, guarded by mu
	unattend   func()               // ends Unowned and waits for its end; nil: it does not run; guarded by mu
}

// Serving configures Serve.
type Serving struct {
	AloneFor time.Duration // how long it waits for another owner
	// Unowned is called when the keeper has no owner any more and still holds files; held is all other items. It returns
	// soon after ctx has ended: the next owner, and who ends the keeper, waits for that. nil: nothing is to be done.
	Unowned func(ctx context.Context, held []Item)
	Log     *slog.Logger // which must not wait for its reader: see AsyncLog
}

// Serve is the keeper: it returns, and the process is to end, when it is told so, when it holds nothing and its owner
// is gone, or when it had none for AloneFor. listener is the socket on which it listens.
func Serve(listener *os.File, how Serving) error {
	l, err := net.FileListener(listener)
	if err != nil {
		return fmt.Errorf("keeping files for another process: this command is for gatewayd itself: %w", err)
	}
	listener.Close()
	s := &server{Serving: how, finished: make(chan struct{}), owner: make(chan struct{}, 1), items: map[string]*heldItem{}}
	s.mu.Lock()
	s.ownerTimer = time.AfterFunc(s.AloneFor, s.abandon)
	s.mu.Unlock()
	go s.accept(l)
	<-s.finished
	return l.Close() // before the process closes connections: who sees the end finds no keeper
}

// acceptAgain is how long a keeper waits after it could not accept a connection.
const acceptAgain = 100 * time.Millisecond

// accept serves connections until the listener is closed: no error ends what is held. Where all descriptors are in
// use, one in reserve lets the next owner in, who takes files over.
func (s *server) accept(l net.Listener) {
	for {
		s.reserve.isFree()
		conn, err := l.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			s.reserve.makeRoom()
			conn, err = l.Accept()
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptAgain)
			continue
		}
		if c := conn.(*net.UnixConn); checkPeer(c) == nil {
			go s.serve(c)
		} else {
			c.Close()
		}
	}
}

// reserve is a file descriptor that is kept open in order to be closed when all others are in use and one is needed.
type reserve struct {
	mu   sync.Mutex
	file *os.File // guarded by mu; nil: none is free
}

// isFree opens the reserve again if it was closed, and reports whether it is open.
func (r *reserve) isFree() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		r.file, _ = os.Open(os.DevNull) // an error: none is free
	}
	return r.file != nil
}

// makeRoom closes the reserve, so that one descriptor is free. Another goroutine may take it first.
func (r *reserve) makeRoom() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// abandon ends a keeper to which no owner has come.
func (s *server) abandon() {
	s.mu.Lock()
	n, _ := s.snapshot()
	s.mu.Unlock()
	s.Log.Error("no daemon has come: the sessions that its keeper has end", "after", s.AloneFor, "sessions", n)
	s.finish()
}

// snapshot returns all items without their files, and how many have files. mu is held.
func (s *server) snapshot() (sessions int, all []Item) {
	for _, h := range s.items {
		all = append(all, Item{Key: h.Key, Data: h.Data, Until: h.Until})
		if len(h.files) > 0 {
			sessions++
		}
	}
	return sessions, all
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
		close(s.finished)
	})
}

// serve serves one process: an owner, or one that has the keeper end.
func (s *server) serve(conn *net.UnixConn) {
	defer conn.Close()
	m, files, err := receive(conn, messageTimeout)
	closeAll(files)
	switch {
	case err != nil:
	case m.Verb == end:
		s.endUnowned() // whoever waits for the end finds nothing of it later
		s.finish()
		select {}
	case m.Verb == taking:
		s.begin()
		defer s.leave()
		if err := s.sendHeld(conn); err != nil {
			return
		}
		s.serveOwner(conn)
	}
}

// begin waits until a former owner's messages are read.
func (s *server) begin() {
	s.mu.Lock()
	s.pending++
	s.ownerTimer.Stop()
	s.mu.Unlock()
	s.owner <- struct{}{}
	s.endUnowned()
}

// endUnowned ends the call of Serving.Unowned, and waits for its return.
func (s *server) endUnowned() {
	s.mu.Lock()
	stop := s.unattend
	s.unattend = nil
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	<-s.owner // never waits
	if s.pending--; s.pending > 0 {
		return
	}
	s.ownerTimer = time.AfterFunc(s.AloneFor, s.abandon)
	n, held := s.snapshot()
	if n == 0 {
		s.endIfEmpty()
		return
	}
	s.Log.Warn("no daemon is there: its keeper has the sessions go on until one comes", "sessions", n, "at most",
		s.AloneFor)
	if s.Unowned != nil {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { s.Unowned(ctx, held) })
		s.unattend = func() { cancel(); running.Wait() }
	}
}

// endIfEmpty ends a keeper that has no owner and no files. mu is held.
func (s *server) endIfEmpty() {
	for _, h := range s.items {
		if len(h.files) > 0 {
			return
		}
	}
	if s.pending == 0 {
		go s.finish()
	}
}

// sendHeld sends all items to a new owner.
func (s *server) sendHeld(conn *net.UnixConn) error {
	s.mu.Lock()
	all := make([]*heldItem, 0, len(s.items))
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

// serveOwner carries out the messages of an owner until it disconnects.
func (s *server) serveOwner(conn *net.UnixConn) {
	if conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	full := false // the owner knows; told again after a drop, so that answers never fill the socket
	for {
		m, files, err := receive(conn, 0)
		if len(files) > 0 && !s.reserve.isFree() { // the received files took the descriptor of the reserve
			closeAll(files)
			err = errCut
		}
		if errors.Is(err, errCut) { // the session of these files ends with the owner
			s.drop(m.Key, nil)
			if !full {
				s.Log.Error("no room for a session's files: it ends with the daemon, and others may too; raise the limit of open "+
					"files (LimitNOFILE)", "session", m.Key)
				_ = send(conn, message{Verb: refused, Key: m.Key}) // an error: the owner is gone
			}
			full = true
			continue
		}
		if err != nil {
			return
		}
		switch m.Verb {
		case put:
			s.addItem(m, files)
		case drop:
			closeAll(files)
			s.drop(m.Key, nil)
			full = false
		case end:
			s.finish()
			select {}
		}
	}
}

func (s *server) addItem(m message, files []int) {
	closeAll(s.replace(m, files)) // which may take its time
}

// replace holds an item in the place of a former one, and returns the files that are not held any more.
func (s *server) replace(m message, files []int) (former []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.items[m.Key]
	switch {
	case s.items == nil: // it is over
		return files
	case h == nil:
		h = &heldItem{files: files}
		s.items[m.Key] = h
	case len(files) > 0:
		former, h.files = h.files, files
	}
	h.message = m
	if h.expiry != nil {
		h.expiry.Stop()
		h.expiry = nil
	}
	if !m.Until.IsZero() {
		h.expiry = time.AfterFunc(time.Until(m.Until), func() { s.drop(m.Key, h) })
	}
	return former
}

// drop closes the files of the item with a key. With victim it does so only if the item is still victim and its time is
// over.
func (s *server) drop(key string, victim *heldItem) {
	s.mu.Lock()
	h := s.items[key]
	if h == nil || victim != nil && h != victim {
		s.mu.Unlock()
		return
	}
	if left := time.Until(h.Until); victim != nil && left > 0 { // the clock was set back, or Until is another one by now
		if h.expiry != nil {
			h.expiry.Reset(left)
		}
		s.mu.Unlock()
		return
	}
	delete(s.items, key)
	if h.expiry != nil {
		h.expiry.Stop()
	}
	alone := s.pending == 0
	s.mu.Unlock()
	closeAll(h.files) // which may take its time
	if victim != nil && alone {
		s.Log.Info("a session's time is over, and no daemon is there: its keeper has ended it", "session", key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endIfEmpty()
}

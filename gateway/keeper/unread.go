package keeper

import (
	"bytes"
	"io"
	"time"
)

// Unread is a writer for a log that nobody may read, such as a pipe whose reader hangs or a terminal that is stopped. Write
// never waits: another goroutine writes, and messages are dropped while so many wait that there is no room.
type Unread struct {
	messages chan []byte
	flush    chan chan struct{}
}

const (
	unreadMost = 1000        // messages that wait
	flushMost  = time.Second // for which Flush waits
)

// NewUnread returns a writer to another one, whose errors count for nothing.
func NewUnread(to io.Writer) *Unread {
	u := &Unread{make(chan []byte, unreadMost), make(chan chan struct{})}
	go func() {
		for {
			select {
			case b := <-u.messages:
				_, _ = to.Write(b)
			case done := <-u.flush:
				for len(u.messages) > 0 {
					_, _ = to.Write(<-u.messages)
				}
				close(done)
			}
		}
	}()
	return u
}

// Write implements io.Writer.
func (u *Unread) Write(b []byte) (int, error) {
	select {
	case u.messages <- bytes.Clone(b):
	default:
	}
	return len(b), nil
}

// Flush waits a second at most until everything is written.
func (u *Unread) Flush() {
	done, late := make(chan struct{}), time.After(flushMost)
	select {
	case u.flush <- done:
	case <-late:
		return
	}
	select {
	case <-done:
	case <-late:
	}
}

// Package logtest has a log for tests that read it while it is written.
package logtest

import (
	"log/slog"
	"strings"
	"sync"
)

// Log is what a logger or a program has written so far. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count is how often it has a text.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Logger is a logger that writes to it.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Reset forgets it.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

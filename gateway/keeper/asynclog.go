package keeper

import (
	"context"
	"log/slog"
	"time"
)

// asideMost is how many messages wait for a log at most; others are lost.
const asideMost = 1000

// Aside returns a logger that never waits for log, whose reader may hang while no daemon is there: what a keeper does
// must not. flush waits so long at most until all messages are taken.
func Aside(log *slog.Logger) (aside *slog.Logger, flush func(most time.Duration)) {
	waiting := make(chan func(), asideMost)
	go func() {
		for say := range waiting {
			say()
		}
	}()
	flush = func(most time.Duration) {
		over, late := make(chan struct{}), time.After(most)
		select {
		case waiting <- func() { close(over) }:
		case <-late:
			return
		}
		select {
		case <-over:
		case <-late:
		}
	}
	return slog.New(asideHandler{log.Handler(), waiting}), flush
}

// asideHandler hands messages to another goroutine.
type asideHandler struct {
	slog.Handler
	waiting chan<- func()
}

// Handle implements slog.Handler.
func (h asideHandler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	select {
	case h.waiting <- func() { _ = h.Handler.Handle(ctx, r) }: // an error: nobody hears of it
	default:
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h asideHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return asideHandler{h.Handler.WithAttrs(attrs), h.waiting}
}

// WithGroup implements slog.Handler.
func (h asideHandler) WithGroup(name string) slog.Handler {
	return asideHandler{h.Handler.WithGroup(name), h.waiting}
}

package keeper

import (
	"context"
	"log/slog"
	"time"
)

// maxWaiting is how many messages wait for a log at most; others are lost.
const maxWaiting = 1000

// AsyncLog returns a logger that never waits for log: log's reader may hang while no daemon is there, and a keeper must
// not. flush waits until all messages are written, and for most at the longest.
func AsyncLog(log *slog.Logger) (async *slog.Logger, flush func(most time.Duration)) {
	waiting := make(chan func(), maxWaiting)
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
	return slog.New(asyncHandler{log.Handler(), waiting}), flush
}

// asyncHandler is a slog.Handler that writes messages in another goroutine, so that the caller never waits for a slow
// reader.
type asyncHandler struct {
	slog.Handler
	waiting chan<- func()
}

// Handle implements slog.Handler.
func (h asyncHandler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	select {
	case h.waiting <- func() { _ = h.Handler.Handle(ctx, r) }: // an error: nobody hears of it
	default:
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h asyncHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return asyncHandler{h.Handler.WithAttrs(attrs), h.waiting}
}

// WithGroup implements slog.Handler.
func (h asyncHandler) WithGroup(name string) slog.Handler {
	return asyncHandler{h.Handler.WithGroup(name), h.waiting}
}

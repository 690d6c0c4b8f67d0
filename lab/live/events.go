package live

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// mostOpen bounds the streams of events at a time.
const mostOpen = 64

// events tells a page that is open what has changed, as server-sent events: "status" has the section of that name,
// "changed" says that the page is to be fetched again, "gone" that the run was deleted. Comments keep the line open. It
// ends with the request, or after "gone".
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		http.Error(w, fmt.Sprintf("%d pages are open already", mostOpen), http.StatusServiceUnavailable)
		return
	}
	defer s.leave()
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{}) // as long as the page is open
	w.Header().Set("Content-Type", "text/event-stream")
	watch := s.watchList
	if name := r.URL.Query().Get("run"); name != "" {
		watch = s.watchRun(name)
	}
	seen := r.URL.Query().Get("key")
	ticker := time.NewTicker(s.Look)
	defer ticker.Stop()
	for quiet := 0; ; quiet++ {
		text, key, last := watch(seen)
		if text == "" && quiet%10 == 0 {
			text = ": still here\n\n"
		}
		if text != "" {
			_ = stream.SetWriteDeadline(time.Now().Add(10 * time.Second)) // one that does not read is let go
			if _, err := w.Write([]byte(text)); err != nil || stream.Flush() != nil {
				return
			}
		}
		if seen = key; last {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= mostOpen {
		return false
	}
	s.open++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// event formats one server-sent event.
func event(kind string, data []byte) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", kind)
	for line := range bytes.Lines(data) {
		fmt.Fprintf(&b, "data: %s\n", bytes.TrimRight(line, "\n"))
	}
	if len(data) == 0 {
		b.WriteString("data:\n")
	}
	b.WriteByte('\n')
	return b.String()
}

// watchList returns an event when the list of runs is no longer the one with a key, the present list's key, and whether
// the stream ends: never.
func (s *Server) watchList(seen string) (text, key string, last bool) {
	entries, err := s.look()
	if err != nil {
		return "", seen, false // the next look may see it
	}
	if key = keyOf(entries); key == seen {
		return "", key, false
	}
	return event("changed", nil), key, false
}

// watchRun returns a function that looks for what a run's page with a key does not show. It returns the events to send,
// "": none, the key of what the reader has then, and whether the stream ends.
func (s *Server) watchRun(name string) func(seen string) (text, key string, last bool) {
	said, told := "", time.Now()
	return func(seen string) (text, key string, last bool) {
		e, ok, err := s.entry(name)
		switch {
		case err != nil:
			return "", seen, false
		case !ok:
			return event("gone", nil), seen, true
		}
		section, err := sectionOf(e)
		if err == nil && string(section) != said {
			said = string(section)
			text = event("status", section)
		}
		page, _ := s.shown.get(name)
		key = files(e)
		// The page is to be fetched again when the run's files have changed and a new report may be made, or when another
		// reader had one made since this one was last told.
		if due := key != seen && s.due(page, e); due || page.made.After(told) {
			told = page.made // not now: a reader that fetches at this moment may get the older report, and is told again
			if due {
				seen = key
			}
			return text + event("changed", nil), seen, false
		}
		return text, seen, false
	}
}

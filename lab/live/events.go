package live

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// maxStreams bounds the event streams that are open at the same time.
const maxStreams = 64

// events sends server-sent events to an open page until the request ends:
//
//	status   the HTML of the page's section "status"
//	changed  the page must be fetched again
//	gone     the run was deleted; the stream ends
//
// Comments keep the connection open.
func (s *Server) events(w http.ResponseWriter, request *http.Request) {
	if !s.openStream() {
		http.Error(w, fmt.Sprintf("%d pages are open already", maxStreams), http.StatusServiceUnavailable)
		return
	}
	defer s.closeStream()
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{}) // none: the stream lasts as long as the page is open
	w.Header().Set("Content-Type", "text/event-stream")
	watch := s.watchList
	if name := request.URL.Query().Get("run"); name != "" {
		watch = s.watchRun(name)
	}
	seen := request.URL.Query().Get("key")
	ticker := time.NewTicker(s.PollInterval)
	defer ticker.Stop()
	for quiet := 0; ; quiet++ {
		text, key, last := watch(seen)
		if text == "" && quiet%10 == 0 {
			text = ": still here\n\n"
		}
		if text != "" {
			_ = stream.SetWriteDeadline(time.Now().Add(10 * time.Second)) // ends the stream of a page that does not read
			if _, err := w.Write([]byte(text)); err != nil || stream.Flush() != nil {
				return
			}
		}
		if seen = key; last {
			return
		}
		select {
		case <-request.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Server) openStream() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= maxStreams {
		return false
	}
	s.streams++
	return true
}

func (s *Server) closeStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
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

// watchList returns the event "changed" when the list's key differs from seen, and the list's present key. last is
// always false: the stream goes on.
func (s *Server) watchList(seen string) (text, key string, last bool) {
	entries, err := s.runs()
	if err != nil {
		return "", seen, false // the next call may be able to read the folder
	}
	if key = keyOf(entries); key == seen {
		return "", key, false
	}
	return event("changed", nil), key, false
}

// watchRun returns a function that compares a run with the reader's page, whose key is seen. The function returns the
// events to send ("": none), the key of the page that the reader has after them, and whether the stream ends.
func (s *Server) watchRun(name string) func(seen string) (text, key string, last bool) {
	sentStatus, lastChanged := "", time.Now() // lastChanged: when the report of the last event "changed" was made
	return func(seen string) (text, key string, last bool) {
		entry, ok, err := s.entry(name)
		switch {
		case err != nil:
			return "", seen, false
		case !ok:
			return event("gone", nil), seen, true
		}
		section, err := sectionOf(entry)
		if err == nil && string(section) != sentStatus {
			sentStatus = string(section)
			text = event("status", section)
		}
		page, _ := s.reports.get(name)
		key = filesKey(entry)
		// The reader must fetch the page again when the run's files have changed and a new report may be made, or when
		// another reader had a report made since the last event.
		if due := key != seen && s.due(page, entry); due || page.made.After(lastChanged) {
			// Not the present time: a reader that fetches now may get the older report, and must then fetch again.
			lastChanged = page.made
			if due {
				seen = key
			}
			return text + event("changed", nil), seen, false
		}
		return text, seen, false
	}
}

// Tests of the connection by which lab and agent exchange requests and answers.

package agent

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// TestAnswersPassALongRequest: an answer reaches its request while the agent leaves another
// request half read, as one does that has an answer to write first.
func TestAnswersPassALongRequest(t *testing.T) {
	requests, toAgent := io.Pipe()
	toLab, answers := io.Pipe()
	t.Cleanup(func() { requests.Close(); answers.Close() })
	conn := NewConn(toLab, toAgent, "the agent", func() string { return "" })
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- conn.do(t.Context(), "First") }()
	var req request
	if err := json.NewDecoder(requests).Decode(&req); err != nil {
		t.Fatal(err)
	}
	go func() { second <- conn.do(t.Context(), "Second", strings.Repeat("x", 1<<20)) }()
	if _, err := io.ReadFull(requests, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(answers).Encode(response{ID: req.ID}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-first:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute): // by then the two wait for each other
		t.Error("the first request has no answer while the second is being read")
	}
	go io.Copy(io.Discard, requests)
	if err := json.NewEncoder(answers).Encode(response{ID: req.ID + 1}); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

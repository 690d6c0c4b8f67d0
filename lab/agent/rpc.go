package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// The lab and an agent speak JSON lines over the agent's standard input and
// output: the lab sends requests, the agent answers each once, in any order.
// The same bytes travel over a pipe into a namespace or over ssh.

type request struct {
	ID     uint64          `json:"id"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Cancel bool            `json:"cancel,omitempty"` // ends the request of the same ID
}

type response struct {
	ID     uint64          `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// handler serves one method.
type handler func(ctx context.Context, params json.RawMessage) (any, error)

// method adapts a typed function to a handler.
func method[P, R any](fn func(context.Context, P) (R, error)) handler {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var p P
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &p); err != nil {
				return nil, fmt.Errorf("decoding parameters: %w", err)
			}
		}
		return fn(ctx, p)
	}
}

// none is the result of methods that only succeed or fail.
type none struct{}

// serve answers requests from r on w until r ends. Requests still running are
// cancelled and not waited for: the end of the input means that the lab is gone.
func serve(ctx context.Context, r io.Reader, w io.Writer, methods map[string]handler) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{methods: methods, enc: json.NewEncoder(w), cancels: map[uint64]context.CancelFunc{}}
	defer cancel()
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<16))
	for {
		var req request
		if err := dec.Decode(&req); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading a request: %w", err)
		}
		s.accept(ctx, req)
	}
}

type server struct {
	methods map[string]handler

	mu      sync.Mutex // guards enc and cancels
	enc     *json.Encoder
	cancels map[uint64]context.CancelFunc
}

func (s *server) accept(ctx context.Context, req request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Cancel {
		if stop, ok := s.cancels[req.ID]; ok {
			stop()
		}
		return
	}
	ctx, stop := context.WithCancel(ctx)
	s.cancels[req.ID] = stop
	go func() { // ends with the request; the agent's end does not wait for it
		defer stop()
		resp := response{ID: req.ID}
		result, err := s.call(ctx, req)
		if result != nil { // a failed command has its output all the same
			var encErr error
			resp.Result, encErr = json.Marshal(result)
			err = errors.Join(err, encErr)
		}
		if err != nil {
			resp.Error = err.Error()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancels, req.ID)
		s.enc.Encode(resp) // a lost lab shows as the end of standard input
	}()
}

func (s *server) call(ctx context.Context, req request) (result any, err error) {
	h, ok := s.methods[req.Method]
	if !ok {
		return nil, fmt.Errorf("unknown method %q: lab and agent are of different versions", req.Method)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: internal error: %v", req.Method, p)
		}
	}()
	return h(ctx, req.Params)
}

// Peer is whom a conversation is with.
type Peer struct {
	Name string // "the agent of host a/client (process 4711)"
	// Ended says how the peer ended, once its output has; it may be empty, and the
	// function nil. It must not wait for ever.
	Ended func() string
}

// endsWithin bounds the wait for the end of a process whose output has ended.
const endsWithin = time.Second

// process is the Peer that runs as proc. It alone waits for the process: whoever
// needs its end waits for the channel, which is closed then.
func process(name string, proc *os.Process) (Peer, <-chan struct{}) {
	gone := make(chan struct{})
	var how string
	go func() { // ends with the process
		defer close(gone)
		if state, err := proc.Wait(); err == nil {
			how = state.String()
		}
	}()
	ended := func() string {
		select {
		case <-gone:
			return how
		case <-time.After(endsWithin):
			return "" // it lives, and does not answer any more
		}
	}
	return Peer{fmt.Sprintf("%s (process %d)", name, proc.Pid), ended}, gone
}

// Conn is the lab's end of a conversation with one agent. Its methods may be
// called from many goroutines.
type Conn struct {
	w    io.WriteCloser
	peer Peer
	done chan struct{} // closed when the agent's output ends

	mu      sync.Mutex // guards what follows and writes to w
	nextID  uint64
	waiting map[uint64]chan response
	err     error // why the conversation ended
}

// NewConn starts a conversation over the agent's output r, which is closed when it
// has ended, and its input w.
func NewConn(r io.ReadCloser, w io.WriteCloser, peer Peer) *Conn {
	c := &Conn{w: w, peer: peer, done: make(chan struct{}), waiting: map[uint64]chan response{}}
	go c.receive(r)
	return c
}

// Done is closed when the agent has ended or stopped answering.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says how the agent has ended, nil while it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the conversation; the agent then ends itself and all it started.
func (c *Conn) Close() error { return c.w.Close() }

func (c *Conn) receive(r io.ReadCloser) {
	defer r.Close()
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<16))
	for {
		var resp response
		if err := dec.Decode(&resp); err != nil {
			err = c.ended(err)
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			close(c.done)
			return
		}
		c.mu.Lock()
		ch := c.waiting[resp.ID]
		delete(c.waiting, resp.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- resp
		}
	}
}

// ended is the error of a conversation whose other end has stopped speaking.
func (c *Conn) ended(err error) error {
	if c.peer.Ended != nil {
		if how := c.peer.Ended(); how != "" {
			return fmt.Errorf("%s ended: %s", c.peer.Name, how)
		}
	}
	return fmt.Errorf("%s ended: %w", c.peer.Name, err)
}

// call sends one request and waits for its answer. When ctx ends first, the
// agent is told to cancel and call returns ctx's error at once.
func (c *Conn) call(ctx context.Context, name string, params, result any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("encoding parameters of %s: %w", name, err)
	}
	ch := make(chan response, 1)
	c.mu.Lock()
	c.nextID++
	id := c.nextID
	c.waiting[id] = ch
	err = c.send(request{ID: id, Method: name, Params: raw})
	c.mu.Unlock()
	if err != nil {
		return c.unheard(ctx, err)
	}
	select {
	case resp := <-ch:
		return resp.decode(result)
	case <-c.done:
		select { // the answer may have come just before the end
		case resp := <-ch:
			return resp.decode(result)
		default:
		}
		return c.Err()
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, id)
		c.send(request{ID: id, Cancel: true})
		c.mu.Unlock()
		return context.Cause(ctx)
	}
}

// unheard is the error of a request that could not be sent: how the peer ended, if
// that shows soon.
func (c *Conn) unheard(ctx context.Context, err error) error {
	select {
	case <-c.done:
		return c.Err()
	case <-time.After(endsWithin):
	case <-ctx.Done():
	}
	return err
}

func (c *Conn) send(req request) error {
	line, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if _, err := c.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("speaking to %s: %w", c.peer.Name, err)
	}
	return nil
}

func (r response) decode(result any) error {
	if len(r.Result) > 0 && result != nil {
		if err := json.Unmarshal(r.Result, result); err != nil {
			return fmt.Errorf("decoding an answer: %w", err)
		}
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}

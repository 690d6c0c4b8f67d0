package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"
)

// The lab and an agent exchange JSON lines over the agent's standard input and
// output, through a pipe or ssh. The lab sends requests. The agent carries them
// out at the same time, and answers each when it is done, so in any order.

// request asks an agent to carry out a verb.
type request struct {
	ID     uint64            `json:"id"`
	Verb   string            `json:"verb,omitempty"`
	Args   []json.RawMessage `json:"args,omitempty"`
	Cancel bool              `json:"cancel,omitempty"` // the request with this ID is no longer wanted; no verb
}

// response answers the request with the same ID.
type response struct {
	ID     uint64          `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// serve answers requests from r on w until r ends. Then it cancels requests that
// still run and does not wait for them, because the lab has ended.
func serve(ctx context.Context, r io.Reader, w io.Writer, v verbs, to receiver) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{verbs: v, receiver: to, enc: json.NewEncoder(w), cancels: map[uint64]context.CancelFunc{}}
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<16))
	for {
		var req request
		if err := dec.Decode(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		s.accept(ctx, req)
	}
}

// server is the state of serve.
type server struct {
	verbs    verbs
	receiver receiver

	mu      sync.Mutex // guards enc and cancels
	enc     *json.Encoder
	cancels map[uint64]context.CancelFunc
}

// accept starts to carry out a request, or cancels one.
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
	go func() { // ends with the request; nobody waits for it
		defer stop()
		resp := response{ID: req.ID}
		result, err := s.call(ctx, req)
		var bad error
		resp.Result, bad = json.Marshal(result) // with an error too: a failed command has its output
		if err = errors.Join(err, bad); err != nil {
			resp.Error = err.Error()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancels, req.ID)
		s.enc.Encode(resp) // if the lab has ended, serve notices by the end of r
	}()
}

// call decodes a request's arguments and calls the verb's method.
func (s *server) call(ctx context.Context, req request) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: internal error: %v", req.Verb, p)
		}
	}()
	verb, known := s.verbs[req.Verb]
	const before = 2 // a method's receiver and context come before the request's arguments
	if !known || reflect.TypeOf(verb).NumIn() != before+len(req.Args) {
		return nil, fmt.Errorf("unknown verb %q: lab and agent are of different versions", req.Verb)
	}
	method := reflect.ValueOf(verb)
	to, err := s.receiver(method.Type().In(0))
	if err != nil {
		return nil, err
	}
	in := []reflect.Value{reflect.ValueOf(to), reflect.ValueOf(ctx)}
	for i, raw := range req.Args {
		arg := reflect.New(method.Type().In(before + i))
		if err := json.Unmarshal(raw, arg.Interface()); err != nil {
			return nil, fmt.Errorf("decoding the arguments of %s: %w", req.Verb, err)
		}
		in = append(in, arg.Elem())
	}
	for _, out := range method.Call(in) {
		if out.Type() == reflect.TypeFor[error]() {
			err, _ = out.Interface().(error)
		} else {
			result = out.Interface()
		}
	}
	return result, err
}

// Conn is the lab's end of a conversation with one agent. Its methods may be
// called from many goroutines.
type Conn struct {
	w    io.WriteCloser
	name string          // "the agent of host a/client (process 4711)"
	open context.Context // ends with the agent's output; the cause says how the agent ended

	// writing is held while a request is written. It is another lock than mu, because a write may wait until the
	// agent reads, the agent may wait until its answers are read, and receive needs mu for those.
	writing sync.Mutex
	mu      sync.Mutex // guards what follows
	nextID  uint64
	waiting map[uint64]chan response
}

// NewConn starts a conversation over the agent's output r, which is closed when it
// has ended, and its input w. ended is called after the end of r, and returns how the agent
// ended, or "" if that is unknown. name is used in errors.
func NewConn(r io.ReadCloser, w io.WriteCloser, name string, ended func() string) *Conn {
	open, end := context.WithCancelCause(context.Background())
	c := &Conn{w: w, name: name, open: open, waiting: map[uint64]chan response{}}
	go func() {
		defer r.Close()
		err := c.receive(r)
		if how := ended(); how != "" {
			err = errors.New(how)
		}
		end(fmt.Errorf("%s ended: %w", name, err))
	}()
	return c
}

// Done is closed when the agent has ended or stopped answering.
func (c *Conn) Done() <-chan struct{} { return c.open.Done() }

// Err says how the agent has ended, nil while it has not.
func (c *Conn) Err() error { return context.Cause(c.open) }

// Close ends the conversation; the agent then ends itself and all it started.
func (c *Conn) Close() error { return c.w.Close() }

// Beat tells an agent with a time limit (Options.Patience) that the lab is still there. It sends an empty line, which
// the agent's decoder skips.
func (c *Conn) Beat() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.w.Write([]byte("\n"))
	return err
}

// receive gives answers to the requests that wait for them, until r ends.
func (c *Conn) receive(r io.Reader) error {
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<16))
	for {
		var resp response
		if err := dec.Decode(&resp); err != nil {
			return err
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

// ask sends one request and returns its answer. When ctx ends first, ask tells the agent to cancel
// the request and returns the cause at once.
func ask[R any](ctx context.Context, c *Conn, verb string, args ...any) (result R, err error) {
	err = c.request(ctx, &result, verb, args)
	return result, err
}

// do is ask for verbs without a result.
func (c *Conn) do(ctx context.Context, verb string, args ...any) error {
	return c.request(ctx, nil, verb, args)
}

// request is ask with a pointer to the result; nil: none is wanted.
func (c *Conn) request(ctx context.Context, result any, verb string, args []any) error {
	req := request{Verb: verb, Args: make([]json.RawMessage, len(args))}
	for i, arg := range args {
		var err error
		if req.Args[i], err = json.Marshal(arg); err != nil {
			return fmt.Errorf("encoding the arguments of %s: %w", verb, err)
		}
	}
	ch := make(chan response, 1)
	c.mu.Lock()
	c.nextID++
	req.ID = c.nextID
	c.waiting[req.ID] = ch
	c.mu.Unlock()
	if err := c.send(req); err != nil {
		select { // writing fails when the agent has ended; why it ended is known soon after
		case <-c.Done():
			return c.Err()
		case <-time.After(childEndTimeout):
		case <-ctx.Done():
		}
		return fmt.Errorf("speaking to %s: %w", c.name, err)
	}
	select {
	case resp := <-ch:
		return resp.decode(result)
	case <-c.Done():
		select { // of two ready channels select takes any, so look for an answer that came before the end
		case resp := <-ch:
			return resp.decode(result)
		default:
			return c.Err()
		}
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, req.ID)
		c.mu.Unlock()
		go c.send(request{ID: req.ID, Cancel: true}) // if the agent has ended, receive notices
		return context.Cause(ctx)
	}
}

func (c *Conn) send(req request) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return json.NewEncoder(c.w).Encode(req)
}

// decode stores the answer in result, and returns the agent's error.
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

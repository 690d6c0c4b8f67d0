package vm

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// port is a port whose two directions are apart.
type port struct{ in, out bytes.Buffer }

func (p *port) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *port) Write(b []byte) (int, error) { return p.out.Write(b) }

// FuzzReceive: frames arrive as they were sent, and no bytes of a guest end this process.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("o\x03\x00\x00\x00abc"))
	f.Add([]byte("o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &port{}
		p.in.Write(data)
		w := &wire{port: p}
		said, content, err := w.receive()
		if err != nil {
			return
		}
		if err := w.send(said, content); err != nil || !bytes.HasPrefix(data, p.out.Bytes()) {
			t.Errorf("%q came as %q, %q and left as %q, %v", data, said, content, p.out.Bytes(), err)
		}
	})
}

// TestFrameLimit: of content that the other side would refuse nothing is sent, so the conversation goes on.
func TestFrameLimit(t *testing.T) {
	p := &port{}
	w := &wire{port: p}
	if err := w.sendJSON(order, guestOrder{Env: []string{string(make([]byte, maxFrame))}}); !errors.Is(err, errFrame) ||
		p.out.Len() > 0 {
		t.Errorf("beyond the limit: %v, %d bytes sent", err, p.out.Len())
	}
	if err := w.send(order, make([]byte, maxFrame)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	p.in = p.out
	if said, content, err := w.receive(); said != order || len(content) != maxFrame || err != nil {
		t.Errorf("received %q, %d bytes, %v", said, len(content), err)
	}
}

// TestStatic: a guest has no libraries before it has its root.
func TestStatic(t *testing.T) {
	program, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := static(program); !errors.Is(err, ErrStatic) {
		t.Errorf("of /bin/sh: %v", err)
	}
	if err := static([]byte("#!/bin/sh")); err == nil || errors.Is(err, ErrStatic) {
		t.Errorf("of a script: %v", err)
	}
}

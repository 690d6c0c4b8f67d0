package vm

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// port stands for the port between machine and guest. What is written to it is not read from it.
type port struct{ in, out bytes.Buffer }

func (p *port) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *port) Write(b []byte) (int, error) { return p.out.Write(b) }

// FuzzReceive: a frame that receive accepts, sent again, has the same bytes. No bytes of a guest make this process
// panic.
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

// TestFrameLimit: of content that is too long for a frame no byte is sent, so later frames still arrive.
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

// TestStatic: a dynamically linked program is refused, because the initrd has no libraries.
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

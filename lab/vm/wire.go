// How the machine and its guest talk: frames on a virtual serial port. Both sides use this code.

package vm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// kind is the kind of a frame, that is of a message on the port between guest and machine.
type kind byte

// Kinds of frames that the guest sends.
const (
	hello  kind = 'h' // a guestHello: the first frame
	stdout kind = 'o' // output of the command
	stderr kind = 'e' // its error output
	exit   kind = 'x' // a guestExit: the last frame
)

// Kinds of frames that the machine sends.
const (
	order  kind = 'c' // a guestOrder: the first frame
	signal kind = 's' // one byte: the number of a signal for the command
)

// guestHello describes a guest that has booted.
type guestHello struct {
	Release string // of the guest's kernel
	CPU     string // model of the guest's CPU
}

// guestOrder says what the guest is to do.
type guestOrder struct {
	Command, Env, Shares []string // see Config
	Dir, Modules         string   // see Config and kernel.Kernel
	Release              string   // of the kernel
	Program              string   // path of the program that the initrd has as init
	Now                  int64    // the time for its clock: Unix time, ns
	Hostname             string
}

// guestExit is how the command ended, or why it was not started.
type guestExit struct {
	Code  int
	Error string
}

// maxFrame is the largest size of a frame's content, bytes.
const maxFrame = 1 << 20

// wire sends and receives frames. A frame is a byte with its kind, four bytes with its length, and the content.
type wire struct {
	port io.ReadWriter
	mu   sync.Mutex // held while a frame is sent
}

// errFrame is the error of a frame longer than maxFrame. No part of it is sent.
var errFrame = errors.New("more than a frame between the machine and its guest holds")

// send sends a frame of this kind. It may be called by several goroutines at once.
func (w *wire) send(k kind, content []byte) error {
	if len(content) > maxFrame {
		return fmt.Errorf("%w: %d bytes, and %d are the limit", errFrame, len(content), maxFrame)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	frame := append([]byte{byte(k)}, binary.LittleEndian.AppendUint32(nil, uint32(len(content)))...)
	_, err := w.port.Write(append(frame, content...))
	return err
}

// sendJSON sends a frame whose content is v as JSON.
func (w *wire) sendJSON(k kind, v any) error {
	content, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.send(k, content)
}

// receive waits for the next frame, and returns its kind and its content.
func (w *wire) receive() (kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(w.port, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes on the guest's port", size)
	}
	content := make([]byte, size)
	_, err := io.ReadFull(w.port, content)
	return kind(head[0]), content, err
}

// stream is an io.Writer that sends what is written to it as frames of a kind.
type stream struct {
	*wire
	kind kind
}

func (s stream) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); {
		part := p[sent:min(len(p), sent+maxFrame)]
		if err := s.send(s.kind, part); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return len(p), nil
}

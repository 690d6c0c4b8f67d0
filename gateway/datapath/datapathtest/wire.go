package datapathtest

import (
	"bytes"
	"errors"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Wire is an interface of a namespace that records every arriving frame and can send any
// frame.
type Wire struct {
	fd      int
	running sync.WaitGroup

	mu     sync.Mutex
	frames [][]byte // guarded by mu
	ended  bool     // guarded by mu
}

// NewWire listens on an interface until the test ends.
func NewWire(t testing.TB, s *netnstest.Space, link string) *Wire {
	t.Helper()
	w := &Wire{fd: -1}
	var err error
	s.Do(func() { err = w.open(link) })
	must(t, err)
	w.running.Go(w.read)
	t.Cleanup(func() {
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
		w.running.Wait()
		unix.Close(w.fd)
	})
	return w
}

// open opens the packet socket of a link.
func (w *Wire) open(link string) error {
	dev, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
	if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	patience := unix.NsecToTimeval((20 * time.Millisecond).Nanoseconds())
	return errors.Join(
		unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
		unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}),
	)
}

// Ignore has frames of more bytes than that not recorded from now on.
func (w *Wire) Ignore(t testing.TB, bytes uint32) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jf: 1, K: bytes},
		{Code: unix.BPF_RET | unix.BPF_K},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32},
	}
	must(t, unix.SetsockoptSockFprog(
		w.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}))
}

// read records every arriving frame until the socket is closed.
func (w *Wire) read() {
	b := make([]byte, 1<<17)
	for {
		n, _, err := unix.Recvfrom(w.fd, b, 0)
		w.mu.Lock()
		if err == nil {
			w.frames = append(w.frames, bytes.Clone(b[:n]))
		}
		ended := w.ended
		w.mu.Unlock()
		if ended {
			return
		}
	}
}

// Send sends frames unchanged. One that the kernel drops, because the receiver's queue is full, is sent again.
func (w *Wire) Send(t testing.TB, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		err := unix.Send(w.fd, f, 0)
		for end := time.Now().Add(time.Minute); err == unix.ENOBUFS && time.Now().Before(end); err = unix.Send(w.fd, f, 0) {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Fatalf("sending a frame of %d bytes: %v", len(f), err)
		}
	}
}

// Frames returns the recorded frames.
func (w *Wire) Frames() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames[:len(w.frames):len(w.frames)]
}

// holding counts the frames that contain a text.
func holding(frames [][]byte, text string) (n int) {
	for _, f := range frames {
		if bytes.Contains(f, []byte(text)) {
			n++
		}
	}
	return n
}

// await waits for a frame with a text after the first n frames.
func (w *Wire) await(t testing.TB, after int, text string) {
	t.Helper()
	netnstest.Await(t, "a frame with "+text, func() error {
		if holding(w.Frames()[after:], text) == 0 {
			return errors.New("none came")
		}
		return nil
	})
}

// anatomy describes a frame for test messages.
func anatomy(frame []byte) string {
	return gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).String()
}

// Tests of a server that gets its requests from the data path instead of a socket. main_test.go has the helpers: newLAN
// makes the server's interface (gateway) and returns the name of its other end; newWire sends and receives frames
// there; macOf(i) is the MAC of device i, and message makes a DHCP message of it.

package dhcp

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

// TestRequestsFromDataPath: with Requests set, the server answers exactly the requests from it, also after its
// interface was down or absent. Long: the steps of one run, each of which needs the state that the one before left.
func TestRequestsFromDataPath(t *testing.T) {
	w := newWire(t, newLAN(t))
	pipes := make(chan *os.File, 4)
	var opened atomic.Int32
	s, _ := start(t, leasesFile(t), func(c *Config) {
		c.Requests = func() (io.ReadCloser, error) {
			near, far, err := pair()
			if err == nil {
				pipes <- far
				opened.Add(1)
			}
			return near, err
		}
	})
	t.Cleanup(func() { (<-pipes).Close() })
	lan := w
	for name, change := range map[string]func(){
		"at once": func() {},
		"its interface was down": func() {
			run(t, "ip", "link", "set", gateway, "down")
			await(t, "the server's noticing", func() bool { return gone(<-pipes) })
			run(t, "ip", "link", "set", gateway, "up")
		},
		"its interface was away": func() {
			run(t, "ip", "link", "del", gateway)
			await(t, "the server's noticing", func() bool { return gone(<-pipes) })
			lan = newWire(t, newLAN(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			change()
			pipe := <-pipes
			mac := macOf(7)
			ask := message(t, dhcpv4.MessageTypeInform, mac, dhcpv4.WithClientIP(net.IP{10, 1, 0, 9}))
			unheard := message(t, dhcpv4.MessageTypeInform, mac, dhcpv4.WithClientIP(net.IP{10, 1, 0, 9}))
			lan.send(station{mac: mac}, unheard)
			if _, err := pipe.Write(station{mac: mac}.datagram(ask).frame()); err != nil {
				t.Fatal(err)
			}
			r, _ := lan.next(30 * time.Second)
			if r == nil || r.TransactionID != ask.TransactionID {
				t.Errorf("the answer is %v", r)
			}
			pipes <- pipe
		})
	}
	if n := s.Stats().Informs; n != 3 || opened.Load() != 3 {
		t.Errorf("%d requests were heard, in what was opened %d times", n, opened.Load())
	}
}

// pair returns a pipe that preserves frames.
func pair() (near, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far"), nil
}

// gone waits until a pipe's other end is closed.
func gone(pipe *os.File) bool {
	defer pipe.Close()
	_, err := pipe.Read(make([]byte, 1))
	return err != nil
}

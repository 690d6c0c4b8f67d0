// Helpers: a wire sends frames that no kernel would send.

package bindings

import (
	"net"
	"net/netip"
	"testing"

	"github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// wire sends frames by an interface.
type wire struct {
	t    *testing.T
	conn *packet.Conn
}

// experimental is IEEE 802's local experimental EtherType: nobody sends it.
const experimental = 0x88b5

// newWire opens a wire in the namespace in which do calls functions.
func newWire(t *testing.T, do func(func()), name string) *wire {
	t.Helper()
	w := &wire{t: t}
	var err error
	do(func() {
		var dev *net.Interface
		if dev, err = net.InterfaceByName(name); err == nil {
			w.conn, err = packet.Listen(dev, packet.Raw, experimental, nil)
		}
	})
	netnstest.Must(t, err)
	t.Cleanup(func() { w.conn.Close() })
	return w
}

// frame is the frame of a message to a group.
func (w *wire) frame(from sender, group netip.Addr, m ndp.Message) []byte {
	w.t.Helper()
	b := group.As16()
	frame, err := from.frame(Anchor{MAC: MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}}, group, m)
	netnstest.Must(w.t, err)
	return frame
}

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if _, err := w.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil && err != unix.ENOBUFS {
		w.t.Fatal(err)
	}
}

package pppoe

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// Peer is a client's MAC address and the number of its session.
type Peer struct {
	MAC     [6]byte
	Session uint16
}

// TerminatePeers tells clients that their sessions have ended where no concentrator is there to do so: PPP's
// Terminate-Request, and PADT. Nobody waits for answers.
func TerminatePeers(name string, peers []Peer) error {
	if len(peers) == 0 {
		return nil
	}
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("telling PPPoE clients that their sessions have ended: interface %s: %w", name, err)
	}
	conn, err := packet.Listen(dev, packet.Raw, pppoe.Discovery, nil)
	if err != nil {
		return fmt.Errorf("telling PPPoE clients that their sessions have ended: %w (it needs CAP_NET_RAW)", err)
	}
	end := ppp.Frame(ppp.LCP, ppp.Packet{Code: ppp.TerminateRequest, ID: 1})
	for _, p := range peers {
		for _, f := range []*pppoe.Frame{{PPP: end}, {Code: pppoe.PADT}} {
			f.To, f.From, f.Session = p.MAC, pppoe.MAC(dev.HardwareAddr), p.Session
			err = errors.Join(err, sendRetrying(conn, f))
		}
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("telling PPPoE clients that their sessions have ended: %w", err)
	}
	return nil
}

// sendRetrying sends a frame, and again while the link's queue is full.
func sendRetrying(conn *packet.Conn, f *pppoe.Frame) error {
	for tries := 0; ; tries++ {
		_, err := conn.WriteTo(f.Append(nil), &packet.Addr{HardwareAddr: f.To[:]})
		if !errors.Is(err, unix.ENOBUFS) || tries == 100 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

package persona

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// Addresses6 are a client's IPv6 addresses and its router.
type Addresses6 struct {
	LinkLocal netip.Addr
	// Global has the address that is made of the hardware address, by which the client sends, and a temporary one (RFC
	// 8981).
	Global [2]netip.Addr
	Router
}

// Router is a router that advertises the network.
type Router struct {
	Addr netip.Addr // link-local
	MAC  MAC
}

// NDP makes IPv6 addresses for any number of hardware addresses, over one packet socket. Its methods may be called from
// many goroutines.
type NDP struct {
	ifi *net.Interface
	lan netip.Prefix // a /64; advertisements of other prefixes are ignored

	mu      sync.Mutex // guards the fields below
	holds   int        // calls of Hold less calls of Unhold
	conn    *packet.Conn
	reader  sync.WaitGroup
	waiting map[MAC]chan Router // clients that wait for an advertisement, and take its router
}

// NewNDP makes one for the interface of that name and the network lan, a /64. Hold opens its socket.
func NewNDP(name string, lan netip.Prefix) (*NDP, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("making IPv6 addresses on %s: %w", name, err)
	}
	return &NDP{ifi: ifi, lan: lan.Masked(), waiting: map[MAC]chan Router{}}, nil
}

// Hold opens the socket, unless it is open. It stays open until Unhold has been called as often as Hold, and must be
// closed while traffic is measured: see DHCP.Hold.
func (d *NDP) Hold() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holds == 0 {
		if d.conn, err = d.listen(); err != nil {
			return fmt.Errorf("making IPv6 addresses on %s: opening a packet socket: %w", d.ifi.Name, err)
		}
		conn := d.conn
		d.reader.Go(func() { d.read(conn) })
	}
	d.holds++
	return nil
}

// Unhold undoes one Hold.
func (d *NDP) Unhold() {
	d.mu.Lock()
	if d.holds--; d.holds == 0 {
		defer d.reader.Wait()
		d.conn.Close()
		d.conn = nil
	}
	d.mu.Unlock()
}

// listen opens a packet socket that receives router advertisements.
func (d *NDP) listen() (*packet.Conn, error) {
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 5},
		bpf.LoadAbsolute{Off: 14 + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ethernetBytes + ip6Bytes, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: typeAdvertisement, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, err
	}
	// All protocols, because such a socket gets frames before the interface's eBPF programs.
	conn, err := packet.Listen(d.ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, err
	}
	// After an error advertisements that come in bursts may be lost, and solicitations are repeated.
	_ = sockbuf.ReceiveOn(conn, receiveBuffer)
	if rc, err := conn.SyscallConn(); err == nil {
		// This saves running the filter on frames that are sent.
		rc.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1) })
	}
	return conn, nil
}

// read tells the clients that wait of each advertisement, until the socket is closed. One to all hosts is for all.
func (d *NDP) read(conn *packet.Conn) {
	buf := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(buf)
		if errors.Is(err, unix.ENETDOWN) {
			continue // reported once; the socket stays usable
		}
		if err != nil {
			return
		}
		router, to, ok := parseAdvertisement(buf[:n], d.lan)
		if !ok {
			continue
		}
		d.tell(to, router)
	}
}

// tell tells the clients that wait, and that an advertisement to a MAC address is for, of its router.
func (d *NDP) tell(to MAC, router Router) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to[0]&1 == 0 { // one client's: of thousands, none is looked at but that
		if heard := d.waiting[to]; heard != nil {
			heard <- router
			delete(d.waiting, to)
		}
		return
	}
	for _, heard := range d.waiting {
		heard <- router
	}
	clear(d.waiting)
}

// Configure makes the client's addresses as phones do (RFC 4862, 8981): it announces the link-local address by
// duplicate address detection, solicits routers until one advertises the network, and announces two addresses of that.
// It does not wait for objections: the addresses are optimistic (RFC 4429), and made of hardware addresses that no two
// clients of the lab share, or by chance. put is called with each address before it is announced, so that the client
// answers for it. tries counts solicitations.
func (d *NDP) Configure(ctx context.Context, mac MAC, put func(netip.Addr) error) (
	a Addresses6, tries Tries, err error) {
	tries = Tries{Count: 1}
	own := interfaceID(mac)
	a.LinkLocal = addressIn(linkLocalNet, own)
	if err := d.announce(mac, a.LinkLocal, put); err != nil {
		return a, tries, err
	}
	if a.Router, err = d.solicit(ctx, mac, a.LinkLocal, &tries); err != nil {
		return a, tries, fmt.Errorf("soliciting routers: %w", err)
	}
	for i, id := range []uint64{own, rand.Uint64()} {
		a.Global[i] = addressIn(d.lan, id)
		if err := d.announce(mac, a.Global[i], put); err != nil {
			return a, tries, err
		}
	}
	return a, tries, nil
}

// announce takes an address and asks whether somebody else has it.
func (d *NDP) announce(mac MAC, ip netip.Addr, put func(netip.Addr) error) error {
	if err := put(ip); err != nil {
		return err
	}
	group, err := ndp.SolicitedNodeMulticast(ip)
	if err != nil {
		return fmt.Errorf("announcing %s: %w", ip, err)
	}
	return d.send(mac, netip.IPv6Unspecified(), group, &ndp.NeighborSolicitation{TargetAddress: ip})
}

// solicitInterval is the time between solicitations (RTR_SOLICITATION_INTERVAL, RFC 4861, 10). Routers may answer with
// one advertisement to all in 3 s.
const solicitInterval = 4 * time.Second

// solicit sends a router solicitation, repeatedly, until a router advertises the network.
func (d *NDP) solicit(ctx context.Context, mac MAC, from netip.Addr, tries *Tries) (Router, error) {
	heard := make(chan Router, 1)
	defer func() {
		d.mu.Lock()
		delete(d.waiting, mac)
		d.mu.Unlock()
	}()
	d.mu.Lock()
	d.waiting[mac] = heard
	d.mu.Unlock()
	message := &ndp.RouterSolicitation{Options: []ndp.Option{
		&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: net.HardwareAddr(mac[:])}}}
	for n := 1; ; n++ {
		if err := d.send(mac, from, netip.IPv6LinkLocalAllRouters(), message); err != nil {
			return Router{}, err
		}
		select {
		case router := <-heard:
			return router, nil
		case <-ctx.Done():
			return Router{}, context.Cause(ctx)
		case <-time.After(solicitInterval):
		}
		err := fmt.Errorf("no advertisement of %s within %s", d.lan, solicitInterval)
		if n == maxSends {
			return Router{}, fmt.Errorf("sent %d times: %w", n, err)
		}
		tries.Add(Tries{1, err})
	}
}

// send sends a message from a client to a multicast group.
func (d *NDP) send(from MAC, src, group netip.Addr, m ndp.Message) error {
	frame, err := neighbourFrame(from, src, group, m)
	if err != nil {
		return err
	}
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	if conn == nil {
		return errors.New("the socket is not held open")
	}
	return sendRetrying(conn, frame)
}

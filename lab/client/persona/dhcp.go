package persona

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

const (
	// Waiting for a server. RFC 2131, 4.1, begins with 4 s; on a LAN of this lab an
	// answer that takes a second is lost.
	firstWait = time.Second
	lastWait  = 4 * time.Second
	most      = 12 // times a message is sent: 43 s in all

	// A link whose queue is full is tried again after a while, this often.
	retryPause = time.Millisecond
	maxRetries = 2000

	receiveBuffer = 4 << 20 // bytes: some 5,000 replies
)

var broadcastAddr = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Lease is what a server gave a client.
type Lease struct {
	Addr   netip.Prefix // with the mask of option 1
	Router netip.Addr   // the first of option 3; the zero Addr: none
	Server netip.Addr   // option 54
	From   MAC          // the hardware address the server spoke from
}

// Tries is how often a client asked.
type Tries struct {
	Count   int   // of leases: one, and one more for each message sent again
	Refusal error // of the first attempt that failed; nil without one
}

// Add counts the tries of one more attempt.
func (t *Tries) Add(more Tries) {
	t.Count += more.Count
	if t.Refusal == nil {
		t.Refusal = more.Refusal
	}
}

// DHCP asks for leases as any number of clients, over one packet socket. Its
// methods may be called from many goroutines, one exchange each.
type DHCP struct {
	// Own: the interface has the hardware address of its one client, and replies may be sent
	// to that address. Otherwise the client asks for broadcasts: a reply to an address that
	// the client does not have yet takes an entry of the server's neighbour table, which has
	// about a thousand entries for the whole machine.
	Own bool

	ifi *net.Interface

	mu      sync.Mutex // guards what follows
	holds   int
	conn    *packet.Conn
	reader  sync.WaitGroup
	waiting map[dhcpv4.TransactionID]exchange
}

// exchange is a message that waits for its reply.
type exchange struct {
	mac     MAC
	replies chan reply
}

// NewDHCP makes clients for an interface. Hold opens its socket.
func NewDHCP(name string) (*DHCP, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("leasing on %s: %w", name, err)
	}
	return &DHCP{ifi: ifi, waiting: map[dhcpv4.TransactionID]exchange{}}, nil
}

// Hold opens the socket until as many calls of Rest have followed. An open socket
// looks at every packet that comes in, so it is not held while traffic is measured.
func (d *DHCP) Hold() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holds == 0 {
		if d.conn, err = d.listen(); err != nil {
			return fmt.Errorf("leasing on %s: opening a packet socket: %w", d.ifi.Name, err)
		}
		conn := d.conn
		d.reader.Go(func() { d.read(conn) })
	}
	d.holds++
	return nil
}

// Unhold undoes one Hold.
func (d *DHCP) Unhold() {
	d.mu.Lock()
	if d.holds--; d.holds == 0 {
		defer d.reader.Wait()
		d.conn.Close()
		d.conn = nil
	}
	d.mu.Unlock()
}

// listen opens a packet socket that receives what is sent to DHCP clients.
func (d *DHCP) listen() (*packet.Conn, error) {
	if d.Own { // a filter for each client takes longer than to read what else comes in
		return packet.Listen(d.ifi, packet.Raw, unix.ETH_P_IP, nil)
	}
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: 14 + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 4},
		bpf.LoadMemShift{Off: 14},
		bpf.LoadIndirect{Off: 14 + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: dhcpv4.ClientPort, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, err
	}
	// All protocols: such a socket comes before the programs, which drop replies.
	conn, err := packet.Listen(d.ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, err
	}
	_ = sockbuf.ReceiveOn(conn, receiveBuffer) // without it, replies that come in bursts are lost and asked for again
	if rc, err := conn.SyscallConn(); err == nil {
		// Without it, the filter also looks at what is sent.
		rc.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1) })
	}
	return conn, nil
}

// read hands each reply to the exchange that waits for it, until the socket is closed.
func (d *DHCP) read(conn *packet.Conn) {
	buf := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(buf)
		if errors.Is(err, unix.ENETDOWN) {
			continue // reported once; the socket stays usable
		}
		if err != nil {
			return
		}
		r, err := parseReply(buf[:n])
		if err != nil {
			continue
		}
		d.mu.Lock()
		x := d.waiting[r.TransactionID]
		d.mu.Unlock()
		if x.mac == MAC(r.ClientHWAddr) {
			select {
			case x.replies <- r:
			default: // nobody waits, or the exchange has more replies than it reads
			}
		}
	}
}

func (d *DHCP) send(frame []byte) error {
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	if conn == nil {
		return errors.New("the socket is not held open")
	}
	return sendRetrying(conn, frame)
}

// sendRetrying sends a frame, again while the link's queue is full.
func sendRetrying(conn *packet.Conn, frame []byte) error {
	for n := 1; ; n++ {
		_, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ENOBUFS) || n == maxRetries {
			return fmt.Errorf("sending: %w", err)
		}
		time.Sleep(retryPause) // the link's queue is full: thousands release together
	}
}

func newID() (id dhcpv4.TransactionID) {
	binary.NativeEndian.PutUint32(id[:], rand.Uint32())
	return id
}

// await enters an exchange under an identifier of its own.
func (d *DHCP) await(mac MAC) (dhcpv4.TransactionID, exchange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		id := newID()
		if _, taken := d.waiting[id]; !taken {
			x := exchange{mac, make(chan reply, 8)}
			d.waiting[id] = x
			return id, x
		}
	}
}

func (d *DHCP) forget(id dhcpv4.TransactionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, id)
}

// ask sends a frame, again and again, until want takes a reply.
func (x exchange) ask(ctx context.Context, d *DHCP, frame []byte, tries *Tries, want func(reply) bool) (reply, error) {
	wait := firstWait
	for n := 1; ; n++ {
		if err := d.send(frame); err != nil {
			return reply{}, err
		}
		over := time.After(time.Duration(float64(wait) * (0.9 + 0.2*rand.Float64())))
		for silent := false; !silent; {
			select {
			case r := <-x.replies:
				if want(r) {
					return r, nil
				}
			case <-over:
				silent = true
			case <-ctx.Done():
				return reply{}, context.Cause(ctx)
			}
		}
		err := fmt.Errorf("no answer to a message within %s", wait)
		if n == most {
			return reply{}, fmt.Errorf("sent %d times: %w", n, err)
		}
		tries.Add(Tries{1, err})
		wait = min(2*wait, lastWait)
	}
}

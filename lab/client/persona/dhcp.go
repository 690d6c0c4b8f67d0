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
	// A message without an answer is sent again after firstWait, and then after pauses that grow to lastWait. RFC 2131,
	// 4.1, begins with 4 s; in this lab's LAN an answer that takes longer than a second is lost.
	firstWait = time.Second
	lastWait  = 4 * time.Second
	maxSends  = 12 // of one message, in 43 s

	// A frame that finds the interface's queue full is sent again after retryPause, up to maxRetries times.
	retryPause = time.Millisecond
	maxRetries = 2000

	receiveBuffer = 4 << 20 // bytes: some 5,000 replies
)

var broadcastAddr = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Lease is the lease of one client.
type Lease struct {
	Addr   netip.Prefix // the client's address, with the mask of option 1
	Router netip.Addr   // the first router of option 3; the zero Addr: none
	Server netip.Addr   // the server's address, option 54
	From   MAC          // the server's hardware address
}

// Tries counts a client's attempts to get a lease.
type Tries struct {
	Count   int   // 1, and 1 more for each repeated message
	Refusal error // error of the first attempt that failed; nil: none failed
}

// Add adds the tries of another attempt.
func (t *Tries) Add(more Tries) {
	t.Count += more.Count
	if t.Refusal == nil {
		t.Refusal = more.Refusal
	}
}

// DHCP is a DHCP client for any number of hardware addresses, over one packet socket. Its methods may be called from
// many goroutines, one exchange each.
type DHCP struct {
	// SingleClient is true when the interface has one client, whose hardware address it has. Servers may then send replies
	// to the client's address. Else clients ask for broadcast replies, because a reply to an address that nobody has yet
	// takes an entry of the server's neighbour table, which has about a thousand entries for the whole machine.
	SingleClient bool

	ifi *net.Interface

	mu      sync.Mutex // guards the fields below
	holds   int        // calls of Hold less calls of Unhold
	conn    *packet.Conn
	reader  sync.WaitGroup
	waiting map[dhcpv4.TransactionID]exchange
}

// exchange is a client that waits for the reply to its message.
type exchange struct {
	mac     MAC
	replies chan reply
}

// NewDHCP makes a DHCP client for the interface of that name. Hold opens its socket.
func NewDHCP(name string) (*DHCP, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("leasing on %s: %w", name, err)
	}
	return &DHCP{ifi: ifi, waiting: map[dhcpv4.TransactionID]exchange{}}, nil
}

// Hold opens the socket, unless it is open. It stays open until Unhold has been called as often as Hold. An open socket
// costs CPU time for every packet that comes in, so it must be closed while traffic is measured.
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
	if d.SingleClient { // no filter: to load one for each client takes longer than to read the few other packets
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
	// All protocols, because such a socket gets frames before the interface's eBPF programs, which drop replies of DHCP.
	conn, err := packet.Listen(d.ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, err
	}
	// After an error replies that come in bursts may be lost, and messages are repeated.
	_ = sockbuf.ReceiveOn(conn, receiveBuffer)
	if rc, err := conn.SyscallConn(); err == nil {
		// This saves running the filter on frames that are sent.
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
			default: // nobody waits any more, or there are more replies than the exchange reads
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

// sendRetrying sends a frame, and tries again while the interface's queue is full.
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

// await registers an exchange under a new transaction identifier.
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

// ask sends a frame, repeatedly, until a reply comes for which want returns true.
func (x exchange) ask(ctx context.Context, d *DHCP, frame []byte, tries *Tries, want func(reply) bool) (reply, error) {
	wait := firstWait
	for n := 1; ; n++ {
		if err := d.send(frame); err != nil {
			return reply{}, err
		}
		timeout := time.After(time.Duration(float64(wait) * (0.9 + 0.2*rand.Float64())))
		for timedOut := false; !timedOut; {
			select {
			case r := <-x.replies:
				if want(r) {
					return r, nil
				}
			case <-timeout:
				timedOut = true
			case <-ctx.Done():
				return reply{}, context.Cause(ctx)
			}
		}
		err := fmt.Errorf("no answer to a message within %s", wait)
		if n == maxSends {
			return reply{}, fmt.Errorf("sent %d times: %w", n, err)
		}
		tries.Add(Tries{1, err})
		wait = min(2*wait, lastWait)
	}
}

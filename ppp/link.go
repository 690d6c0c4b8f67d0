package ppp

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

// Reasons why a link ended.
var (
	ErrNoAgreement = errors.New("the two ends could not agree on the link's options")
	ErrNoAddress   = errors.New("the two ends could not agree on addresses")
	ErrSilent      = errors.New("the other end does not answer")
	ErrRefused     = errors.New("the login was refused")
	ErrPeerClosed  = errors.New("the other end closed the link")
)

// Config is the configuration of one end.
type Config struct {
	Server bool
	// MRU is the largest information of a frame that this end takes, bytes; 0: 1492. MaxMRU is the largest that the peer
	// may name; 0: 1492, as PPPoE without RFC 4638 has it.
	MRU, MaxMRU int
	// Methods are a server's in the order in which it asks for them, and those that a client can; nil: Methods.
	Methods []Method
	Name    string     // of a server, in its challenges
	Address netip.Addr // of a server
	IPv6    bool       // also negotiate interface identifiers
	// InterfaceID is the interface identifier of this end, which it keeps; zero: a random one, or what the peer proposes.
	InterfaceID [8]byte

	User, Password string // of a client
	AskDNS         bool   // a client asks for DNS servers

	// EchoInterval is the time between Echo-Requests; 0: none. A link ends when EchoFailures of them, 0: 5, have no reply.
	EchoInterval time.Duration
	EchoFailures int
}

// Handler is told what a link does. It is called from the Link's methods, and may call them.
type Handler interface {
	// Send sends a frame: protocol and information, without PPPoE's header. It keeps nothing of it.
	Send(frame []byte)
	// Authenticate checks what a server's peer presented, now or later; Decide has the answer.
	Authenticate(Credentials)
	// Opened tells the addresses. It is called again where they were negotiated anew.
	Opened(Terms)
	// Closed tells that the link has ended. It is the last call.
	Closed(why error)
}

// Terms are what two ends have agreed on.
type Terms struct {
	Local, Peer     netip.Addr
	DNS             [2]netip.Addr // of a client; invalid: none
	LocalID, PeerID [8]byte       // IPv6 interface identifiers; zero: no IPv6
	MTU             int           // bytes of an IP packet to the peer
}

// Link is one end of a PPP link. Its methods must not be called at the same time.
type Link struct {
	cfg     Config
	handler Handler
	now     time.Time // of the present call
	ended   bool
	started bool // the network phase
	why     error
	unknown uint8 // identifier of Protocol-Rejects
	grant   Grant

	link    lcp
	v4      ipcp
	v6      ipv6cp
	control automaton
	net4    automaton
	net6    automaton
	server  authServer
	client  authClient
}

// New creates an end that is not open yet.
func New(cfg Config, h Handler) *Link {
	cfg.MRU, cfg.MaxMRU = cmp.Or(cfg.MRU, 1492), cmp.Or(cfg.MaxMRU, 1492)
	cfg.EchoFailures = cmp.Or(cfg.EchoFailures, 5)
	if cfg.Methods == nil {
		cfg.Methods = Methods
	}
	l := &Link{cfg: cfg, handler: h}
	l.link = lcp{Link: l, mru: cfg.MRU, magic: random32()}
	l.v4 = ipcp{Link: l, addr: netip.IPv4Unspecified()}
	if cfg.Server {
		l.v4.addr = cfg.Address
	} else if cfg.AskDNS {
		l.v4.dns = [2]netip.Addr{netip.IPv4Unspecified(), netip.IPv4Unspecified()}
	}
	l.v6 = ipv6cp{Link: l, id: cfg.InterfaceID}
	if cfg.InterfaceID == ([8]byte{}) {
		l.v6.id = [8]byte(differing(cfg.InterfaceID))
	}
	l.control = automaton{proto: LCP, layer: &l.link, send: l.send}
	l.net4 = automaton{proto: IPCP, layer: &l.v4, send: l.send}
	l.net6 = automaton{proto: IPV6CP, layer: &l.v6, send: l.send}
	l.server, l.client = authServer{Link: l}, authClient{Link: l}
	return l
}

func (l *Link) send(frame []byte) {
	if !l.ended {
		l.handler.Send(frame)
	}
}

// Open begins: frames can be sent from now on.
func (l *Link) Open(now time.Time) {
	l.now = now
	l.control.do(now, open, Packet{}, nil)
	l.control.do(now, up, Packet{}, nil)
}

// Receive handles a frame of the peer. Frames that are no PPP are dropped.
func (l *Link) Receive(now time.Time, frame []byte) {
	l.now = now
	if l.ended {
		return
	}
	proto, rest, err := SplitFrame(frame)
	if err != nil {
		return
	}
	if proto != LCP && l.control.state != opened {
		return // silently discarded: RFC 1661, 3.4
	}
	switch proto {
	case IPv4, IPv6:
		return // not for the control plane
	case LCP, PAP, CHAP, IPCP, IPV6CP:
	default:
		l.reject(proto, rest)
		return
	}
	p, err := ParsePacket(rest)
	if err != nil {
		return
	}
	switch {
	case proto == LCP:
		before := l.control.state
		l.control.receive(now, p)
		// A client that negotiates the link anew must log in anew, in another session; unless it has not begun to: then it
		// has missed the acknowledgement of its request.
		again := l.cfg.Server && (l.started || l.server.presented)
		if current := l.control.state; before == opened && current != opened && current != closing &&
			(again || current == stopping) {
			l.finish(ErrPeerClosed)
		}
	case (proto == PAP || proto == CHAP) && l.cfg.Server:
		l.server.receive(proto, p)
	case proto == PAP || proto == CHAP:
		l.client.receive(proto, p)
	case !l.started: // before the login: RFC 1661, 3.5
	case proto == IPCP:
		l.net4.receive(now, p)
	case !l.cfg.IPv6:
		l.reject(proto, rest)
	default:
		l.net6.receive(now, p)
	}
}

// reject tells the peer that a protocol is not spoken.
func (l *Link) reject(proto Protocol, info []byte) {
	l.unknown++
	data := append(binary.BigEndian.AppendUint16(nil, uint16(proto)), info...)
	l.send(Frame(LCP, Packet{ProtocolReject, l.unknown, data[:min(len(data), l.room())]}))
}

// room is layer's: no frame is longer than the peer and the Ethernet below take.
func (l *Link) room() int {
	return max(leastMRU, min(l.link.peer.mru, l.cfg.MaxMRU)) - headerLen
}

// Tick does everything that is due. It must be called at the time that Next returns, and may be called at any time.
func (l *Link) Tick(now time.Time) {
	l.now = now
	for _, due := range []func(){
		func() { l.control.tick(now) }, func() { l.net4.tick(now) }, func() { l.net6.tick(now) },
		l.server.tick, l.client.tick, l.link.echo,
	} {
		if l.ended {
			return
		}
		due()
	}
}

// Next is when Tick is due; zero: when something was received.
func (l *Link) Next() (first time.Time) {
	if l.ended {
		return first
	}
	for _, t := range []time.Time{
		l.control.next(), l.net4.next(), l.net6.next(), l.server.due, l.client.due, l.link.echoNext} {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Decide answers Handler.Authenticate. The peer of a link that ended meanwhile is not told.
func (l *Link) Decide(now time.Time, ok bool, g Grant) {
	l.now = now
	if l.ended || !l.server.pending {
		return
	}
	l.grant = g
	l.server.decide(ok, g)
	if ok {
		l.network()
	} else {
		l.Close(now, ErrRefused)
	}
}

// Close ends the link in order. Closed follows when the peer has confirmed it, or does not answer.
func (l *Link) Close(now time.Time, reason error) {
	l.now = now
	if l.why == nil {
		l.why = reason
	}
	if l.control.state == closing || l.control.state == stopping {
		return
	}
	l.control.do(now, shut, Packet{}, nil)
	if l.control.state < closing { // there is nobody to wait for
		l.finish(reason)
	}
}

// Abort ends the link without a word to the peer.
func (l *Link) Abort(reason error) { l.finish(reason) }

// established begins the login.
func (l *Link) established() {
	if l.cfg.EchoInterval > 0 {
		l.link.echoes, l.link.echoNext = 0, l.now.Add(l.cfg.EchoInterval)
	}
	switch {
	case l.cfg.Server:
		l.server.begin(l.cfg.Methods[l.link.method])
	case l.link.peer.method != "":
		l.client.begin(l.link.peer.method)
	default:
		l.network()
	}
}

// lowered ends the protocols above LCP.
func (l *Link) lowered() {
	l.started = false
	l.link.echoNext = time.Time{}
	l.server.end()
	l.client.end()
	l.net4.do(l.now, down, Packet{}, nil)
	l.net6.do(l.now, down, Packet{}, nil)
}

// network begins the negotiation of addresses.
func (l *Link) network() {
	l.started = true
	l.net4.do(l.now, open, Packet{}, nil)
	l.net4.do(l.now, up, Packet{}, nil)
	if l.cfg.IPv6 {
		l.net6.do(l.now, open, Packet{}, nil)
		l.net6.do(l.now, up, Packet{}, nil)
	}
}

// networkUp tells the Handler the terms that were agreed on.
func (l *Link) networkUp() {
	if l.net4.state == opened {
		l.handler.Opened(l.terms())
	}
}

// State is the state of an open link, with which Restore continues it in another process.
type State struct {
	Magic, PeerMagic uint32
	PeerMRU          int // and no more than MaxMRU
	Grant            Grant
	LocalID, PeerID  [8]byte // zero: no IPv6
}

// State returns what Restore needs; false: the link is not open.
func (l *Link) State() (State, bool) {
	t := l.terms()
	s := State{Magic: l.link.magic, PeerMagic: l.link.peer.magic, PeerMRU: t.MTU, Grant: l.grant, LocalID: t.LocalID,
		PeerID: t.PeerID}
	return s, !l.ended && l.net4.state == opened
}

// Restore is a server's end that another process had opened. Handler.Opened is not called again.
func Restore(cfg Config, h Handler, s State, now time.Time) *Link {
	l := New(cfg, h)
	l.now = now
	l.link.magic, l.link.peer = s.Magic, lcpPeer{mru: s.PeerMRU, magic: s.PeerMagic}
	l.grant, l.v4.peer, l.started = s.Grant, s.Grant.Addr, true
	l.control.state, l.net4.state = opened, opened
	l.net4.restarts, l.net6.restarts = maxConfigure, maxConfigure
	if cfg.IPv6 {
		l.net6.state = stopped // until the client asks
	}
	if cfg.IPv6 && s.PeerID != ([8]byte{}) {
		l.v6.id, l.v6.peer, l.net6.state = s.LocalID, s.PeerID, opened
	}
	if cfg.EchoInterval > 0 {
		l.link.echoNext = now.Add(cfg.EchoInterval)
	}
	return l
}

func (l *Link) terms() Terms {
	t := Terms{Local: l.v4.addr, Peer: l.v4.peer, DNS: l.v4.dns, MTU: min(l.link.peer.mru, l.cfg.MaxMRU)}
	if l.net6.state == opened {
		t.LocalID, t.PeerID = l.v6.id, l.v6.peer
	}
	return t
}

// rejected handles a Protocol-Reject.
func (l *Link) rejected(proto Protocol) {
	switch proto {
	case IPCP:
		l.net4.do(l.now, rxjMinus, Packet{}, nil)
	case IPV6CP:
		l.net6.do(l.now, rxjMinus, Packet{}, nil)
	case LCP, PAP, CHAP:
		l.control.do(l.now, rxjMinus, Packet{}, nil)
	}
}

// finish ends the link.
func (l *Link) finish(reason error) {
	if l.ended {
		return
	}
	l.ended = true
	if l.why != nil {
		reason = l.why
	}
	l.handler.Closed(reason)
}

func random32() uint32 {
	for {
		if v := uint32(random64()); v != 0 {
			return v
		}
	}
}

func random64() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}

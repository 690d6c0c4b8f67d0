package ppp

import (
	"encoding/binary"
	"slices"
	"time"
)

// Options of LCP (RFC 1661, 6).
const (
	optMRU   = 1
	optAuth  = 3
	optMagic = 5
)

const (
	defaultMRU = 1500 // where a request has no MRU (RFC 1661, 6.1)
	leastMRU   = 128
	magicLen   = 4
)

// lcp is the link control protocol of a link.
type lcp struct {
	*Link
	mru      int    // asked of the peer; 0: the option was rejected
	magic    uint32 // ours; 0: the option was rejected
	method   int    // server: index into cfg.Methods
	peer     lcpPeer
	echoes   int // requests without a reply
	echoID   uint8
	echoNext time.Time // the next request; zero: none
}

// lcpPeer is what the peer's acknowledged LCP request contained.
type lcpPeer struct {
	mru    int
	magic  uint32
	method Method // client: how to authenticate
}

func (l *lcp) request() (options []Option) {
	if l.mru != 0 {
		options = append(options, option16(optMRU, uint16(l.mru)))
	}
	if l.cfg.Server {
		options = append(options, Option{optAuth, l.cfg.Methods[l.method].option()})
	}
	if l.magic != 0 {
		options = append(options, option32(optMagic, l.magic))
	}
	return options
}

func (l *lcp) judge(options []Option, final bool) (Code, []Option) {
	var naks, rejects []Option
	peer := lcpPeer{mru: defaultMRU}
	for _, o := range options {
		switch {
		case o.Type == optMRU && len(o.Data) == 2:
			v := int(binary.BigEndian.Uint16(o.Data))
			if fit := min(max(v, leastMRU), l.cfg.MaxMRU); fit != v {
				naks = append(naks, option16(optMRU, uint16(fit)))
			}
			peer.mru = v
		case o.Type == optMagic && len(o.Data) == magicLen:
			peer.magic = binary.BigEndian.Uint32(o.Data)
			if peer.magic == 0 || peer.magic == l.magic { // its own request, looped back: RFC 1661, 6.4
				naks = append(naks, option32(optMagic, random32()))
			}
		case o.Type == optAuth && !l.cfg.Server:
			m, known := methodOf(o.Data)
			if !known || !slices.Contains(l.cfg.Methods, m) {
				naks = append(naks, Option{optAuth, l.cfg.Methods[0].option()})
			}
			peer.method = m
		default:
			rejects = append(rejects, o)
		}
	}
	return l.verdict(naks, rejects, options, final, func() { l.peer = peer })
}

// verdict is the answer to a request with the options to be rejected or changed.
func (l *Link) verdict(naks, rejects, all []Option, final bool, agree func()) (Code, []Option) {
	switch {
	case len(rejects) > 0:
		return ConfigureReject, rejects
	case len(naks) > 0 && final:
		return ConfigureReject, slices.DeleteFunc(slices.Clone(all), func(o Option) bool {
			return !slices.ContainsFunc(naks, func(n Option) bool { return n.Type == o.Type })
		})
	case len(naks) > 0:
		return ConfigureNak, naks
	}
	agree()
	return ConfigureAck, nil
}

func (l *lcp) refused(code Code, options []Option) bool {
	for _, o := range options {
		switch {
		case o.Type == optMRU && code == ConfigureReject:
			l.mru = 0
		case o.Type == optMRU && len(o.Data) == 2:
			l.mru = min(max(int(binary.BigEndian.Uint16(o.Data)), leastMRU), l.cfg.MRU)
		case o.Type == optMagic && code == ConfigureReject:
			l.magic = 0
		case o.Type == optMagic:
			l.magic = random32()
		case o.Type == optAuth && l.cfg.Server:
			if code == ConfigureReject || !l.choose(o.Data) {
				return false
			}
		}
	}
	return true
}

// choose takes the method that the peer proposes, or else the next one.
func (l *lcp) choose(proposed []byte) bool {
	next := l.method + 1
	if m, known := methodOf(proposed); known {
		if index := slices.Index(l.cfg.Methods, m); index > l.method {
			next = index
		}
	}
	if next >= len(l.cfg.Methods) {
		return false
	}
	l.method = next
	return true
}

func (l *lcp) changed(to layerState) {
	switch to {
	case layerUp:
		l.established()
	case layerDown:
		l.lowered()
	case layerFinished:
		l.finish(ErrNoAgreement)
	}
}

func (l *lcp) extra(p Packet) bool {
	switch p.Code {
	case ProtocolReject:
		if len(p.Data) >= protocolLen {
			l.rejected(Protocol(binary.BigEndian.Uint16(p.Data)))
		}
	case EchoRequest:
		if len(p.Data) < magicLen || l.magic != 0 && binary.BigEndian.Uint32(p.Data) == l.magic {
			break // too short, or our own
		}
		reply := append(binary.BigEndian.AppendUint32(nil, l.magic), p.Data[magicLen:]...)
		l.control.do(l.now, rxr, p, reply)
	case EchoReply:
		if p.ID == l.echoID && len(p.Data) >= magicLen && (l.magic == 0 || binary.BigEndian.Uint32(p.Data) != l.magic) {
			l.echoes = 0
		}
	case DiscardRequest:
	default:
		return false
	}
	return true
}

// echo sends the next Echo-Request, or gives the link up after too many without a reply.
func (l *lcp) echo() {
	if l.echoNext.IsZero() || l.now.Before(l.echoNext) {
		return
	}
	if l.echoes >= l.cfg.EchoFailures {
		l.finish(ErrSilent)
		return
	}
	l.echoes++
	l.echoID++
	l.echoNext = l.now.Add(l.cfg.EchoInterval)
	l.send(Frame(LCP, Packet{EchoRequest, l.echoID, binary.BigEndian.AppendUint32(nil, l.magic)}))
}

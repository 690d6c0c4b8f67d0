package dns

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	miekg "github.com/miekg/dns"
)

// screen reads a client's message. It returns the query to forward, or the reply to send at once, or neither for
// messages that get no answer.
func (p *policy) screen(raw []byte) (query, reply *miekg.Msg) {
	q := new(miekg.Msg)
	if len(raw) < 12 || q.Unpack(raw) != nil || q.Response {
		return nil, nil
	}
	if rcode := fault(q); rcode != miekg.RcodeSuccess {
		return nil, respond(q, rcode)
	}
	question := q.Question[0]
	name := miekg.CanonicalName(question.Name)
	if _, local := p.local[name]; local {
		return nil, p.localReply(q, name)
	}
	switch {
	case question.Qtype == miekg.TypeAAAA && !p.ipv6:
		return nil, respond(q, miekg.RcodeSuccess)
	case (question.Qtype == miekg.TypeHTTPS || question.Qtype == miekg.TypeSVCB) &&
		(p.watched(name) || slices.ContainsFunc(p.gardenPorts(name), func(d gardenPort) bool { return !d.shut })):
		// These records name further addresses, which would not be open. Without them clients ask for A records.
		return nil, respond(q, miekg.RcodeSuccess)
	}
	return q, nil
}

// localReply returns the reply to a query for one of the gateway's own names.
func (p *policy) localReply(q *miekg.Msg, name string) *miekg.Msg {
	r := respond(q, miekg.RcodeSuccess)
	r.Authoritative = true
	question := q.Question[0]
	head := miekg.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: miekg.ClassINET, Ttl: localTTL}
	switch addr6, has6 := p.local6[name]; {
	case question.Qtype == miekg.TypeA:
		r.Answer = []miekg.RR{&miekg.A{Hdr: head, A: p.local[name].AsSlice()}}
	case question.Qtype == miekg.TypeAAAA && has6:
		r.Answer = []miekg.RR{&miekg.AAAA{Hdr: head, AAAA: addr6.AsSlice()}}
	}
	return r
}

// fault returns the rcode with which a query is refused; RcodeSuccess: it is forwarded.
func fault(q *miekg.Msg) int {
	opt := q.IsEdns0()
	switch {
	case q.Opcode != miekg.OpcodeQuery:
		return miekg.RcodeNotImplemented
	case len(q.Question) != 1 || len(q.Answer) > 0 || len(q.Ns) > 0:
		return miekg.RcodeFormatError
	case opt != nil && opt.Version() != 0:
		return miekg.RcodeBadVers
	case q.Question[0].Qclass != miekg.ClassINET:
		return miekg.RcodeRefused
	}
	switch t := q.Question[0].Qtype; {
	case t == miekg.TypeNone, t == miekg.TypeOPT, t >= 128 && t <= 255:
		// QTYPEs and meta-types (RFC 6895, 3.1): ANY, AXFR …
		return miekg.RcodeRefused
	}
	return miekg.RcodeSuccess
}

// respond returns an empty reply to a query.
func respond(q *miekg.Msg, rcode int) *miekg.Msg {
	r := &miekg.Msg{MsgHdr: miekg.MsgHdr{
		Id: q.Id, Response: true, Opcode: q.Opcode, Rcode: rcode,
		RecursionDesired: q.RecursionDesired, RecursionAvailable: true, CheckingDisabled: q.CheckingDisabled,
	}}
	if len(q.Question) > 0 {
		r.Question = q.Question[:1]
	}
	if opt := q.IsEdns0(); opt != nil {
		r.SetEdns0(udpBytes, opt.Do())
	} else if rcode > 0xf { // does not fit without EDNS
		r.Rcode = miekg.RcodeServerFailure
	}
	return r
}

// forward returns the query for an upstream. It contains only the client's question and the bits for recursion and
// DNSSEC.
func forward(q *miekg.Msg, id uint16, edns bool) *miekg.Msg {
	f := &miekg.Msg{
		MsgHdr: miekg.MsgHdr{
			Id: id, RecursionDesired: q.RecursionDesired,
			CheckingDisabled: q.CheckingDisabled, AuthenticatedData: q.AuthenticatedData,
		},
		Question: []miekg.Question{q.Question[0]},
	}
	if !edns {
		return f
	}
	opt := q.IsEdns0()
	return f.SetEdns0(udpBytes, opt != nil && opt.Do())
}

// answers reports whether a message is an upstream's answer to a forwarded query. Servers that do not
// understand a query may answer with the header alone.
func answers(f, m *miekg.Msg) bool {
	if !m.Response || m.Id != f.Id || m.Opcode != miekg.OpcodeQuery {
		return false
	}
	if len(m.Question) == 0 {
		return len(m.Answer) == 0 && m.Rcode != miekg.RcodeSuccess && m.Rcode != miekg.RcodeNameError
	}
	return len(m.Question) == 1 &&
		m.Question[0].Qtype == f.Question[0].Qtype && m.Question[0].Qclass == f.Question[0].Qclass &&
		miekg.CanonicalName(m.Question[0].Name) == miekg.CanonicalName(f.Question[0].Name)
}

// gardenPort is what to do with an address of a name: open all of it, open one port, or keep its HTTP closed.
type gardenPort struct {
	protocol uint8
	port     uint16 // 0: all ports
	shut     bool
}

// opening is an address to open.
type opening struct {
	addr netip.Addr
	ttl  time.Duration
	gardenPort
}

// gardenPorts returns the ports that a canonical name opens of its addresses.
func (p *policy) gardenPorts(name string) (all []gardenPort) {
	if p.probes.contains(name) { // first, so that there is no moment without it
		all = append(all, gardenPort{shut: true})
	}
	if p.garden.contains(name) {
		all = append(all, gardenPort{})
	}
	for _, g := range p.ports {
		if g.contains(name) {
			all = append(all, g.gardenPort)
		}
	}
	return all
}

// replyFor returns the reply made from an upstream's answer, and the addresses to open before it is sent.
func (p *policy) replyFor(q, answer *miekg.Msg) (*miekg.Msg, []opening) {
	r := respond(q, answer.Rcode)
	r.AuthenticatedData = answer.AuthenticatedData
	r.RecursionAvailable = answer.RecursionAvailable
	r.Answer, r.Ns = answer.Answer, answer.Ns
	for _, rr := range answer.Extra { // options between the gateway and the upstream are not passed on
		if t := rr.Header().Rrtype; t != miekg.TypeOPT && t != miekg.TypeTSIG && t != miekg.TypeSIG {
			r.Extra = append(r.Extra, rr)
		}
	}
	if r.Rcode != miekg.RcodeSuccess {
		return r, nil
	}
	p.tell(q.Question[0], answer.Answer)
	return r, p.learn(q.Question[0], answer.Answer)
}

// watched reports whether somebody wants to know the addresses of a canonical name.
func (p *policy) watched(name string) bool {
	return p.watcher != nil && p.watcher.Watches(strings.TrimSuffix(name, "."))
}

// tell tells the watcher the addresses of a question's name.
func (p *policy) tell(question miekg.Question, answer []miekg.RR) {
	name := miekg.CanonicalName(question.Name)
	if question.Qtype != miekg.TypeA && question.Qtype != miekg.TypeAAAA || !p.watched(name) {
		return
	}
	var addrs []netip.Addr
	good := minOpen
	for _, a := range addressesOf(name, answer) {
		addrs, good = append(addrs, a.addr), max(good, min(a.ttl, maxOpen))
	}
	if len(addrs) > 0 {
		p.watcher.Learned(strings.TrimSuffix(name, "."), addrs, good+openGrace)
	}
}

// learn returns what the addresses of a question's name open if the name is in the garden or a probe's: those of
// the name or of the end of its CNAME chain, never those of other names in the answer.
func (p *policy) learn(question miekg.Question, answer []miekg.RR) (open []opening) {
	name := miekg.CanonicalName(question.Name)
	ports := p.gardenPorts(name)
	if question.Qtype != miekg.TypeA && question.Qtype != miekg.TypeAAAA || len(ports) == 0 {
		return nil
	}
	for _, d := range ports {
		for _, a := range addressesOf(name, answer) {
			if d.shut || p.openable(a.addr) {
				open = append(open, opening{a.addr, a.ttl, d})
			}
		}
	}
	return open
}

// address is an address of an answer, and for how long it is good.
type address struct {
	addr netip.Addr
	ttl  time.Duration
}

// addressesOf returns the addresses of a name in an answer, of either family.
func addressesOf(name string, answer []miekg.RR) []address {
	for range maxChain {
		var found []address
		next := ""
		for _, rr := range answer {
			if h := rr.Header(); h.Class != miekg.ClassINET || miekg.CanonicalName(h.Name) != name {
				continue
			}
			switch rr := rr.(type) {
			case *miekg.CNAME:
				next = miekg.CanonicalName(rr.Target)
			case *miekg.A:
				if addr, ok := netip.AddrFromSlice(rr.A.To4()); ok {
					found = append(found, address{addr, time.Duration(rr.Hdr.Ttl) * time.Second})
				}
			case *miekg.AAAA:
				if addr, ok := netip.AddrFromSlice(rr.AAAA.To16()); ok && !addr.Is4In6() {
					found = append(found, address{addr, time.Duration(rr.Hdr.Ttl) * time.Second})
				}
			}
		}
		if len(found) > 0 || next == "" {
			return found
		}
		name = next
	}
	return nil
}

// closesAt is when an address learned now is closed again.
func (o opening) closesAt(now time.Time) time.Time {
	if o.shut {
		return now.Add(shutTime)
	}
	return now.Add(min(max(o.ttl, minOpen), maxOpen) + openGrace)
}

// pack encodes a reply in at most size bytes, truncated if needed (RFC 2181, 9).
func pack(r *miekg.Msg, size int) ([]byte, error) {
	r.Compress = true
	r.Truncate(size)
	return r.Pack()
}

// replySize is the largest reply over UDP, bytes (RFC 6891, 6.2.3).
func replySize(q *miekg.Msg) int {
	if opt := q.IsEdns0(); opt != nil {
		return min(max(int(opt.UDPSize()), miekg.MinMsgSize), udpBytes)
	}
	return miekg.MinMsgSize
}

package pppoe

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// cookies makes AC-Cookies: keyed hashes of a client's MAC address and the time. So the concentrator remembers nothing
// of an offer, and only a client that received the offer can answer it.
type cookies struct{ key [32]byte }

const (
	cookieLen  = 16
	cookieTime = 30 * time.Second // a cookie is right for one to two of these
)

func (c *cookies) cookieAt(mac pppoe.MAC, slot int64) []byte {
	h := hmac.New(sha256.New, c.key[:])
	h.Write(mac[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(slot)))
	return h.Sum(nil)[:cookieLen]
}

func (c *cookies) current(mac pppoe.MAC, now time.Time) []byte {
	return c.cookieAt(mac, now.UnixNano()/int64(cookieTime))
}

func (c *cookies) valid(mac pppoe.MAC, cookie []byte, now time.Time) bool {
	slot := now.UnixNano() / int64(cookieTime)
	return hmac.Equal(cookie, c.cookieAt(mac, slot)) || hmac.Equal(cookie, c.cookieAt(mac, slot-1))
}

// receive handles a frame of either stage.
func (s *Server) receive(b []byte) {
	f, err := pppoe.Parse(b)
	if errors.Is(err, pppoe.ErrTags) { // the tags before are whole, and say what they say
		err = nil
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case err != nil || f.From[0]&1 != 0 || f.From == (pppoe.MAC{}) || f.From == s.mac:
		s.counts.Malformed++
	case f.Code == pppoe.PADI && (f.To == pppoe.Broadcast || f.To == s.mac):
		s.counts.PADI++
		if s.affords(f.From) {
			s.offer(&f, now)
		}
	case f.To != s.mac:
	case f.Code == pppoe.PADR:
		s.counts.PADR++
		s.answerPADR(&f, now)
	case f.Code == pppoe.PADT:
		if n := s.sessions[f.Session]; n != nil && n.mac == f.From {
			n.padtReceived = true
			n.link.Abort(ppp.ErrPeerClosed)
			s.schedule(n)
		}
	case f.PPP != nil:
		s.control(&f, now)
	}
}

// affords reports whether a sender may ask once more. Senders with a session are known.
func (s *Server) affords(mac pppoe.MAC) bool {
	if s.senders.Spend(mac, len(s.byMAC[mac]) > 0, budget.Now()) {
		return true
	}
	s.counts.Throttled++
	return false
}

// control hands a session's frame to its link. A frame for a session that is none comes from a client that missed the
// end: it is told.
func (s *Server) control(f *pppoe.Frame, now time.Time) {
	n := s.sessions[f.Session]
	if n == nil || n.mac != f.From {
		s.counts.Strays++
		if s.strayBudget.Spend(strays, budget.Now()) {
			s.send(&pppoe.Frame{To: f.From, Code: pppoe.PADT, Session: f.Session})
		}
		return
	}
	n.handleFrame(now, f.PPP)
}

// offer answers a PADI.
func (s *Server) offer(f *pppoe.Frame, now time.Time) {
	wanted, _ := f.Tag(pppoe.ServiceName) // some clients leave out that they take any
	if !s.serves(wanted) {
		return
	}
	answer := &pppoe.Frame{To: f.From, From: s.mac, Code: pppoe.PADO}
	answer.Tags = append(answer.Tags, pppoe.Tag{Type: pppoe.ACName, Value: []byte(s.cfg.Name)})
	answer.Tags = append(answer.Tags, s.services(wanted)...)
	answer.Tags = append(answer.Tags, pppoe.Tag{Type: pppoe.ACCookie, Value: s.cookie.current(f.From, now)})
	answer.Tags = append(answer.Tags, s.returned(f)...)
	b := answer.Append(nil)
	switch {
	case b == nil: // the client's own tags are too long for an answer
		return
	case s.cfg.Delay == 0:
		s.counts.Offered++
		s.wire.send(b)
		return
	}
	select {
	case s.delayed <- waitingPADO{now.Add(s.cfg.Delay), b}:
		s.counts.Offered++
	default:
		s.counts.Throttled++
	}
}

// waitingPADO is an offer (PADO) that is sent after a delay.
type waitingPADO struct {
	sentAt time.Time
	frame  []byte
}

// offerLater sends the offers that wait, until Close.
func (s *Server) offerLater() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case o := <-s.delayed:
			wait, stop := context.WithDeadline(s.ctx, o.sentAt)
			<-wait.Done()
			stop()
			if s.ctx.Err() == nil {
				s.wire.send(o.frame)
			}
		}
	}
}

// serves reports whether a service is offered; the empty name asks for any.
func (s *Server) serves(name []byte) bool {
	return len(name) == 0 || s.cfg.Services == nil || slices.Contains(s.cfg.Services, string(name))
}

// services lists the services of an offer: the requested one, and all that there are.
func (s *Server) services(wanted []byte) []pppoe.Tag {
	tags := []pppoe.Tag{{Type: pppoe.ServiceName, Value: wanted}}
	for _, name := range s.cfg.Services {
		if name != string(wanted) {
			tags = append(tags, pppoe.Tag{Type: pppoe.ServiceName, Value: []byte(name)})
		}
	}
	return tags
}

// returned are the tags that an answer repeats unchanged, and the payload that is granted.
func (s *Server) returned(f *pppoe.Frame) (tags []pppoe.Tag) {
	for _, t := range []pppoe.TagType{pppoe.HostUniq, pppoe.RelaySessionID} {
		if v, found := f.Tag(t); found {
			tags = append(tags, pppoe.Tag{Type: t, Value: v})
		}
	}
	if payload := s.payload(f); payload > pppoe.MTU {
		tags = append(tags, pppoe.Tag{Type: pppoe.PPPMaxPayload, Value: binary.BigEndian.AppendUint16(nil, uint16(payload))})
	}
	return tags
}

// payload is the largest payload for a client: RFC 2516's, unless it asks for more and gets it (RFC 4638). It is no
// more than the interface carries now.
func (s *Server) payload(f *pppoe.Frame) int {
	granted := pppoe.MTU
	if v, found := f.Tag(pppoe.PPPMaxPayload); found && len(v) == 2 {
		granted = max(granted, min(int(binary.BigEndian.Uint16(v)), s.cfg.MaxPayload))
	}
	if carried := s.wire.mtu(s.dev.Name) - pppoe.Overhead; carried > 0 {
		granted = min(granted, carried)
	}
	return granted
}

// answerPADR answers a PADR.
func (s *Server) answerPADR(f *pppoe.Frame, now time.Time) {
	cookie, _ := f.Tag(pppoe.ACCookie)
	if !s.cookie.valid(f.From, cookie, now) {
		s.counts.Refused++
		return
	}
	uniq, _ := f.Tag(pppoe.HostUniq)
	for _, n := range s.byMAC[f.From] {
		if n.waitElement != nil && n.stage != terminating && string(n.uniq) == string(uniq) { // the PADS was lost
			s.confirm(f, n)
			return
		}
	}
	if !s.affords(f.From) {
		return
	}
	if wanted, _ := f.Tag(pppoe.ServiceName); !s.serves(wanted) {
		s.refuse(f, pppoe.ServiceNameError, "no such service")
		return
	}
	// A client that asks with another Host-Uniq has forgotten what it began: it has rebooted.
	for pending := s.pending(f.From); len(pending) >= s.cfg.PerMAC; pending = pending[1:] {
		s.displace(pending[0], errAnew)
	}
	if !s.makePlace(f.From) {
		s.refuse(f, pppoe.ACSystemError, "too many sessions")
		return
	}
	n, err := s.add(f.From, s.free())
	if err != nil {
		s.cfg.Log.Error("pppoe: beginning a session", "err", err)
		s.refuse(f, pppoe.ACSystemError, "out of order")
		return
	}
	n.setStage(discovered)
	n.uniq, n.began, n.payload = slices.Clone(uniq), now, s.payload(f)
	n.circuit, n.remote = line(f)
	n.link = ppp.New(s.linkConfig(n.payload), n)
	s.counts.Begun++
	s.confirm(f, n)
	n.link.Open(now)
	s.schedule(n)
}

// pending is an address's sessions that have not logged in, the oldest first. One that logs in takes the place of the
// oldest where there are too many.
func (s *Server) pending(mac pppoe.MAC) []*session {
	return slices.DeleteFunc(slices.Clone(s.byMAC[mac]), func(n *session) bool { return n.waitElement == nil })
}

// confirm sends the PADS.
func (s *Server) confirm(f *pppoe.Frame, n *session) {
	wanted, _ := f.Tag(pppoe.ServiceName)
	tags := append([]pppoe.Tag{{Type: pppoe.ServiceName, Value: wanted}}, s.returned(f)...)
	s.send(&pppoe.Frame{To: f.From, Code: pppoe.PADS, Session: n.id, Tags: tags})
}

// refuse sends a PADS without a session.
func (s *Server) refuse(f *pppoe.Frame, why pppoe.TagType, text string) {
	s.counts.Refused++
	tags := append([]pppoe.Tag{{Type: why, Value: []byte(text)}}, s.returned(f)...)
	s.send(&pppoe.Frame{To: f.From, Code: pppoe.PADS, Tags: tags})
}

// free is a session ID that is not in use: the next one, so that one that ended is not soon that of another client. The
// caller has made sure that there is one.
func (s *Server) free() uint16 {
	for {
		s.lastID++
		if s.lastID != 0 && s.sessions[s.lastID] == nil {
			return s.lastID
		}
	}
}

// send sends a frame of this concentrator.
func (s *Server) send(f *pppoe.Frame) {
	f.From = s.mac
	if b := f.Append(nil); b != nil { // nil: the client's own tags are too long
		s.wire.send(b)
	}
}

// Sub-tags of the access node's tag (TR-101, R-124), and the Broadband Forum's number.
const (
	adsl      = 3561
	circuitID = 1
	remoteID  = 2
)

// line is the access line of a client, as its access node names it.
func line(f *pppoe.Frame) (circuit, remote string) {
	for _, t := range f.Tags {
		if t.Type != pppoe.VendorSpecific || len(t.Value) < 4 || binary.BigEndian.Uint32(t.Value) != adsl {
			continue
		}
		options, err := ppp.ParseLabels(t.Value[4:])
		if err != nil {
			continue
		}
		for _, o := range options {
			switch o.Type {
			case circuitID:
				circuit = string(o.Data)
			case remoteID:
				remote = string(o.Data)
			}
		}
	}
	return circuit, remote
}

var (
	errMoved   = errors.New("the subscriber has logged in again")
	errStopped = errors.New("the gateway stopped during the login")
)

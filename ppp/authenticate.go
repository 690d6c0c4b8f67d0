package ppp

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/netip"
	"time"
)

// Timing of authentication.
const (
	authResend  = 3 * time.Second
	authTries   = 10               // challenges, or requests of a client
	papPatience = 30 * time.Second // of a server for PAP's request
)

// Grant is what a server gives a peer that has logged in.
type Grant struct {
	Addr netip.Addr    // the peer's address
	DNS  [2]netip.Addr // its servers; invalid: none
	// InterfaceID is the peer's interface identifier, without which it has no IPv6; zero: it chooses one.
	InterfaceID [8]byte `json:",omitzero"`
	// Message is shown to the peer, and Proof is what Credentials.Right or a RADIUS server
	// returned for MS-CHAPv2.
	Message, Proof string
}

// authServer has the peer log in.
type authServer struct {
	*Link
	method    Method
	challenge []byte
	id        uint8
	tries     int
	due       time.Time // of the next challenge, or the end of patience; zero: neither
	pending   bool      // the handler decides
	presented bool      // it was asked: a second login in this link could get the first one's answer
	reply     []byte    // the frame that ended it, for a peer that did not get it
}

// begin asks the peer to log in.
func (a *authServer) begin(m Method) {
	a.method, a.tries, a.pending, a.reply = m, 0, false, nil
	if m == MethodPAP {
		a.due = a.now.Add(papPatience)
		return
	}
	a.challenge = make([]byte, challengeLen)
	rand.Read(a.challenge)
	a.id++
	a.ask()
}

// ask sends the challenge.
func (a *authServer) ask() {
	a.tries++
	a.due = a.now.Add(authResend)
	data := append(append([]byte{challengeLen}, a.challenge...), a.cfg.Name...)
	a.send(Frame(CHAP, Packet{Challenge, a.id, data[:min(len(data), a.room())]}))
}

// end forgets the login.
func (a *authServer) end() { a.due, a.pending, a.reply = time.Time{}, false, nil }

func (a *authServer) tick() {
	switch {
	case a.due.IsZero() || a.now.Before(a.due):
	case a.method == MethodPAP || a.tries >= authTries:
		a.due = time.Time{}
		a.Close(a.now, fmt.Errorf("%w: the peer does not log in", ErrSilent))
	default:
		a.ask()
	}
}

// receive handles a packet of PAP or CHAP.
func (a *authServer) receive(proto Protocol, p Packet) {
	c := Credentials{Method: a.method, ID: p.ID}
	switch {
	case proto == PAP && a.method == MethodPAP && p.Code == AuthenticateRequest:
		name, rest, ok := counted(p.Data)
		password, _, ok2 := counted(rest)
		if !ok || !ok2 {
			return
		}
		c.User, c.Password = string(name), string(password)
	case proto == CHAP && a.method != MethodPAP && p.Code == Response && p.ID == a.id:
		value, name, ok := counted(p.Data)
		if !ok || len(value) != a.method.responseLen() {
			return
		}
		c.User, c.Challenge, c.Response = string(name), a.challenge, append([]byte(nil), value...)
	default:
		return
	}
	if a.reply != nil { // decided: the peer did not get the answer
		a.reply[protocolLen+1] = p.ID
		a.send(a.reply)
		return
	}
	if a.pending { // asked again before it is decided: the answer is to what the peer asked last (RFC 1334, 2.2.2)
		a.id = p.ID
		return
	}
	if a.due.IsZero() {
		return
	}
	a.id, a.pending, a.presented, a.due = p.ID, true, true, time.Time{}
	a.handler.Authenticate(c)
}

func (m Method) responseLen() int {
	if m == MethodMSCHAPv2 {
		return msResponseLen
	}
	return challengeLen
}

// counted splits a value after its length in one byte.
func counted(b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return nil, nil, false
	}
	return b[1 : 1+b[0]], b[1+b[0]:], true
}

// decide ends the login.
func (a *authServer) decide(ok bool, g Grant) {
	a.pending = false
	text, code := g.Message[:min(len(g.Message), 200)], Failure
	switch {
	case a.method == MethodPAP:
		text = text[:min(len(text), a.room()-1)]
		verdict := AuthenticateNak
		if ok {
			verdict = AuthenticateAck
		}
		a.reply = Frame(PAP, Packet{verdict, a.id, append([]byte{byte(len(text))}, text...)})
		a.send(a.reply)
		return
	case !ok && a.method == MethodMSCHAPv2: // RFC 2759, 6: wrong, and not to be tried again
		text = fmt.Sprintf("E=691 R=0 C=%X V=3 M=%s", a.challenge, text)
	case ok && a.method == MethodMSCHAPv2:
		if text != "" {
			text = " M=" + text
		}
		text = g.Proof + text
	}
	if ok {
		code = Success
	}
	a.reply = Frame(CHAP, Packet{code, a.id, []byte(text[:min(len(text), a.room())])})
	a.send(a.reply)
}

// authClient logs in.
type authClient struct {
	*Link
	method Method
	id     uint8
	tries  int
	due    time.Time
	expect string // MS-CHAPv2: what the server must prove
	done   bool

	challenge Packet // the last one, and the answer to it
	answer    []byte // nil: none
}

func (a *authClient) begin(m Method) {
	a.method, a.tries, a.done, a.expect, a.answer = m, 0, false, "", nil
	if m == MethodPAP {
		a.ask()
	} else {
		a.due = a.now.Add(authTries * authResend) // for the challenge
	}
}

// ask sends PAP's request.
func (a *authClient) ask() {
	a.tries++
	a.id++
	a.due = a.now.Add(authResend)
	user, password := a.cfg.User, a.cfg.Password
	data := append(append([]byte{byte(len(user))}, user...), byte(len(password)))
	a.send(Frame(PAP, Packet{AuthenticateRequest, a.id, append(data, password...)}))
}

func (a *authClient) end() { a.due = time.Time{} }

func (a *authClient) tick() {
	switch {
	case a.due.IsZero() || a.now.Before(a.due):
	case a.method == MethodPAP && a.tries < authTries:
		a.ask()
	default:
		a.due = time.Time{}
		a.Close(a.now, fmt.Errorf("%w: the server does not answer the login", ErrSilent))
	}
}

func (a *authClient) receive(proto Protocol, p Packet) {
	switch {
	case proto == PAP && a.method == MethodPAP && p.ID == a.id && p.Code == AuthenticateAck:
		a.accepted()
	case proto == PAP && a.method == MethodPAP && p.ID == a.id && p.Code == AuthenticateNak:
		text, _, _ := counted(p.Data)
		a.refused(string(text))
	case proto == CHAP && a.method != MethodPAP && p.Code == Challenge:
		a.respond(p)
	case proto == CHAP && a.method != MethodPAP && p.ID == a.id && p.Code == Success:
		if a.method == MethodMSCHAPv2 &&
			(a.expect == "" || len(p.Data) < len(a.expect) || string(p.Data[:len(a.expect)]) != a.expect) {
			a.refused("the server does not know the password")
			return
		}
		a.accepted()
	case proto == CHAP && a.method != MethodPAP && p.ID == a.id && p.Code == Failure:
		a.refused(string(p.Data))
	}
}

// respond answers a challenge. One that is sent again gets the same answer: the server may check the first one still,
// and prove the password by it.
func (a *authClient) respond(p Packet) {
	if a.answer != nil && p.ID == a.challenge.ID && bytes.Equal(p.Data, a.challenge.Data) {
		a.send(a.answer)
		return
	}
	challenge, _, ok := counted(p.Data)
	if !ok {
		return
	}
	a.id = p.ID
	value := DigestResponse(p.ID, a.cfg.Password, challenge)
	if a.method == MethodMSCHAPv2 {
		peer := make([]byte, challengeLen)
		rand.Read(peer)
		response := NTResponse(challenge, peer, a.cfg.User, a.cfg.Password)
		a.expect = AuthenticatorResponse(a.cfg.Password, response, peer, challenge, a.cfg.User)
		value = append(append(append(peer, make([]byte, 8)...), response...), 0)
	}
	if !a.done {
		a.due = a.now.Add(authTries * authResend)
	}
	a.challenge = Packet{Challenge, p.ID, bytes.Clone(p.Data)}
	a.answer = Frame(CHAP, Packet{Response, p.ID, append(append([]byte{byte(len(value))}, value...), a.cfg.User...)})
	a.send(a.answer)
}

func (a *authClient) accepted() {
	if !a.done {
		a.done, a.due = true, time.Time{}
		a.network()
	}
}

func (a *authClient) refused(text string) {
	if !a.done {
		a.due = time.Time{}
		a.Close(a.now, fmt.Errorf("%w: %q", ErrRefused, text))
	}
}

package ppp

import "time"

// state is the state of an automaton (RFC 1661, 4.2).
type state uint8

const (
	initial state = iota
	starting
	closed
	stopped
	closing
	stopping
	reqSent
	ackRcvd
	ackSent
	opened
	states
)

// event is what an automaton reacts to (RFC 1661, 4.3).
type event uint8

const (
	up       event = iota // the layer below is up
	down                  // and no longer
	open                  // this layer shall be opened
	shut                  // and closed
	toPlus                // the timer expired, and may be restarted
	toMinus               // and may not
	rcrPlus               // a Configure-Request that can be acknowledged
	rcrMinus              // and one that cannot
	rca                   // a Configure-Ack
	rcn                   // a Configure-Nak or Configure-Reject
	rtr                   // a Terminate-Request
	rta                   // a Terminate-Ack
	ruc                   // an unknown code
	rxjPlus               // a rejection that is allowed
	rxjMinus              // and one that ends the layer
	rxr                   // Echo and Discard
	events
)

// actions are carried out in the order of their bits (RFC 1661, 4.4).
type actions uint16

const (
	tld actions = 1 << iota // this layer is down
	irc                     // initialize the restart count
	zrc                     // zero it: wait once more
	scr                     // send a Configure-Request
	sca                     // send a Configure-Ack
	scn                     // send a Configure-Nak or Configure-Reject
	str                     // send a Terminate-Request
	sta                     // send a Terminate-Ack
	scj                     // send a Code-Reject
	ser                     // send an Echo-Reply
	tlu                     // this layer is up
	tls                     // the layer below is needed
	tlf                     // and no longer
)

// transition is what an event does in a state: actions, and the next state.
type transition struct {
	do actions
	to state
}

// same is a transition for events that cannot happen in a state: nothing changes.
var same = transition{to: states}

// transitions is the table of RFC 1661, 4.1. The usual way of one end:
//
//	             open, up        request acknowledged       peer's request acknowledged
//	initial ──────────────▶ reqSent ──────────────▶ ackRcvd ──────────────────┐
//	                          │  peer's request acknowledged                  ▼
//	                          └─────────────────▶ ackSent ──────────────▶  opened
//	                                              request acknowledged        │
//	stopped ◀──── stopping ◀──── Terminate-Request of the peer ───────────────┤
//	closed  ◀──── closing  ◀──── closed here ─────────────────────────────────┘
var transitions = [events][states]transition{
	up: {initial: {0, closed}, starting: {irc | scr, reqSent}, closed: same, stopped: same, closing: same,
		stopping: same, reqSent: same, ackRcvd: same, ackSent: same, opened: same},
	down: {initial: same, starting: same, closed: {0, initial}, stopped: {tls, starting}, closing: {0, initial},
		stopping: {0, starting}, reqSent: {0, starting}, ackRcvd: {0, starting}, ackSent: {0, starting},
		opened: {tld, starting}},
	open: {initial: {tls, starting}, starting: {0, starting}, closed: {irc | scr, reqSent}, stopped: {0, stopped},
		closing: {0, stopping}, stopping: {0, stopping}, reqSent: {0, reqSent}, ackRcvd: {0, ackRcvd}, ackSent: {0, ackSent},
		opened: {0, opened}},
	shut: {initial: {0, initial}, starting: {tlf, initial}, closed: {0, closed}, stopped: {0, closed},
		closing: {0, closing}, stopping: {0, closing}, reqSent: {irc | str, closing}, ackRcvd: {irc | str, closing},
		ackSent: {irc | str, closing}, opened: {tld | irc | str, closing}},
	toPlus: {initial: same, starting: same, closed: same, stopped: same, closing: {str, closing},
		stopping: {str, stopping}, reqSent: {scr, reqSent}, ackRcvd: {scr, reqSent}, ackSent: {scr, ackSent}, opened: same},
	toMinus: {initial: same, starting: same, closed: same, stopped: same, closing: {tlf, closed},
		stopping: {tlf, stopped}, reqSent: {tlf, stopped}, ackRcvd: {tlf, stopped}, ackSent: {tlf, stopped}, opened: same},
	rcrPlus: {initial: same, starting: same, closed: {sta, closed}, stopped: {irc | scr | sca, ackSent},
		closing: {0, closing}, stopping: {0, stopping}, reqSent: {sca, ackSent}, ackRcvd: {sca | tlu, opened},
		ackSent: {sca, ackSent}, opened: {tld | scr | sca, ackSent}},
	rcrMinus: {initial: same, starting: same, closed: {sta, closed}, stopped: {irc | scr | scn, reqSent},
		closing: {0, closing}, stopping: {0, stopping}, reqSent: {scn, reqSent}, ackRcvd: {scn, ackRcvd},
		ackSent: {scn, reqSent}, opened: {tld | scr | scn, reqSent}},
	rca: {initial: same, starting: same, closed: {sta, closed}, stopped: {sta, stopped}, closing: {0, closing},
		stopping: {0, stopping}, reqSent: {irc, ackRcvd}, ackRcvd: {scr, reqSent}, ackSent: {irc | tlu, opened},
		opened: {tld | scr, reqSent}},
	rcn: {initial: same, starting: same, closed: {sta, closed}, stopped: {sta, stopped}, closing: {0, closing},
		stopping: {0, stopping}, reqSent: {irc | scr, reqSent}, ackRcvd: {scr, reqSent}, ackSent: {irc | scr, ackSent},
		opened: {tld | scr, reqSent}},
	rtr: {initial: same, starting: same, closed: {sta, closed}, stopped: {sta, stopped}, closing: {sta, closing},
		stopping: {sta, stopping}, reqSent: {sta, reqSent}, ackRcvd: {sta, reqSent}, ackSent: {sta, reqSent},
		opened: {tld | zrc | sta, stopping}},
	rta: {initial: same, starting: same, closed: {0, closed}, stopped: {0, stopped}, closing: {tlf, closed},
		stopping: {tlf, stopped}, reqSent: {0, reqSent}, ackRcvd: {0, reqSent}, ackSent: {0, ackSent},
		opened: {tld | scr, reqSent}},
	ruc: {initial: same, starting: same, closed: {scj, closed}, stopped: {scj, stopped}, closing: {scj, closing},
		stopping: {scj, stopping}, reqSent: {scj, reqSent}, ackRcvd: {scj, ackRcvd}, ackSent: {scj, ackSent},
		opened: {scj, opened}},
	rxjPlus: {initial: same, starting: same, closed: {0, closed}, stopped: {0, stopped}, closing: {0, closing},
		stopping: {0, stopping}, reqSent: {0, reqSent}, ackRcvd: {0, reqSent}, ackSent: {0, ackSent}, opened: {0, opened}},
	rxjMinus: {initial: same, starting: same, closed: {tlf, closed}, stopped: {tlf, stopped}, closing: {tlf, closed},
		stopping: {tlf, stopped}, reqSent: {tlf, stopped}, ackRcvd: {tlf, stopped}, ackSent: {tlf, stopped},
		opened: {tld | irc | str, stopping}},
	rxr: {initial: same, starting: same, closed: {0, closed}, stopped: {0, stopped}, closing: {0, closing},
		stopping: {0, stopping}, reqSent: {0, reqSent}, ackRcvd: {0, ackRcvd}, ackSent: {0, ackSent}, opened: {ser, opened}},
}

// Timing of RFC 1661, 4.6.
const (
	restartTime  = 3 * time.Second
	maxConfigure = 10 // Configure-Requests without an answer
	maxTerminate = 2
	maxFailure   = 5 // Configure-Naks without an agreement; then options are rejected
)

// layer is what differs between the protocols that use an automaton.
type layer interface {
	// request returns the options of the next Configure-Request.
	request() []Option
	// judge answers the peer's Configure-Request by ConfigureAck, or by ConfigureNak or ConfigureReject with the options
	// that are refused. With final set it rejects what it would not acknowledge.
	judge(options []Option, final bool) (Code, []Option)
	// refused takes a Configure-Nak or a Configure-Reject of our request into account. False: without the option the layer
	// cannot work.
	refused(code Code, options []Option) bool
	// changed is told that the layer is up, or no longer, or finished.
	changed(to layerState)
	// room is the largest data of a packet that the peer takes, bytes.
	room() int
	// extra handles codes beyond CodeReject; false: an unknown code.
	extra(p Packet) bool
}

// layerState says how far a protocol has come, for the layers above it.
type layerState uint8

const (
	layerUp layerState = iota
	layerDown
	layerFinished
)

// automaton is RFC 1661's option negotiation automaton for one protocol.
type automaton struct {
	proto Protocol
	layer layer
	send  func([]byte) // a whole frame

	state    state
	restarts int       // left
	deadline time.Time // of the restart timer; zero: it does not run
	id       uint8     // of the last packet of ours that is no answer
	asked    uint8     // of the last Configure-Request; Code-Rejects do not change it
	answered bool      // it has an answer: what a wire repeats is no second one
	sent     []byte    // options of the last Configure-Request
	naks     int       // sent since the last agreement
}

// do carries out an event. in is the packet that caused it, reply what is sent for it. Long: one step an action, in the
// order in which they are done.
func (a *automaton) do(now time.Time, e event, in Packet, reply []byte) {
	t := transitions[e][a.state]
	if t == same {
		return
	}
	a.state = t.to
	has := func(x actions) bool { return t.do&x != 0 }
	if has(tld) {
		a.layer.changed(layerDown)
	}
	switch {
	case has(irc) && has(str):
		a.restarts = maxTerminate
	case has(irc):
		a.restarts = maxConfigure
	case has(zrc):
		a.restarts = 0
		a.deadline = now.Add(restartTime)
	}
	if has(scr) {
		a.configure(now)
	}
	switch {
	case has(sca):
		a.naks = 0
		a.answer(ConfigureAck, in.ID, reply)
	case has(scn):
		a.naks++
		a.answer(Code(reply[0]), in.ID, reply[1:])
	}
	if has(str) {
		a.id++
		a.restarts--
		a.deadline = now.Add(restartTime)
		a.answer(TerminateRequest, a.id, nil)
	}
	if has(sta) {
		a.answer(TerminateAck, in.ID, nil)
	}
	if has(scj) {
		a.id++
		rejected := in.Append(nil)
		a.answer(CodeReject, a.id, rejected[:min(len(rejected), a.layer.room())])
	}
	if has(ser) {
		a.answer(EchoReply, in.ID, reply[:min(len(reply), a.layer.room())])
	}
	if a.state < closing || a.state == opened {
		a.deadline = time.Time{}
	} else if a.deadline.IsZero() {
		a.deadline = now.Add(restartTime)
	}
	if has(tlu) {
		a.layer.changed(layerUp)
	}
	if has(tlf) {
		a.layer.changed(layerFinished)
	}
}

// configure sends a Configure-Request.
func (a *automaton) configure(now time.Time) {
	a.id++
	a.asked, a.answered = a.id, false
	a.restarts--
	a.deadline = now.Add(restartTime)
	a.sent = AppendOptions(nil, a.layer.request())
	a.answer(ConfigureRequest, a.id, a.sent)
}

func (a *automaton) answer(code Code, id uint8, data []byte) {
	a.send(Frame(a.proto, Packet{code, id, data}))
}

// tick handles the restart timer.
func (a *automaton) tick(now time.Time) {
	switch {
	case a.deadline.IsZero() || now.Before(a.deadline):
	case a.restarts > 0:
		a.do(now, toPlus, Packet{}, nil)
	default:
		a.do(now, toMinus, Packet{}, nil)
	}
}

// receive handles a packet of the automaton's protocol.
func (a *automaton) receive(now time.Time, p Packet) {
	switch p.Code {
	case ConfigureRequest:
		options, err := ParseOptions(p.Data)
		if err != nil {
			return // silently discarded: RFC 1661, 5.1
		}
		code, reply := a.layer.judge(options, a.naks >= maxFailure)
		if code == ConfigureAck {
			a.do(now, rcrPlus, p, p.Data)
		} else {
			a.do(now, rcrMinus, p, AppendOptions([]byte{byte(code)}, reply))
		}
	case ConfigureAck:
		if p.ID == a.asked && !a.answered && string(p.Data) == string(a.sent) {
			a.answered = true
			a.do(now, rca, p, nil)
		}
	case ConfigureNak, ConfigureReject:
		options, err := ParseOptions(p.Data)
		if err != nil || p.ID != a.asked || a.answered {
			return
		}
		a.answered = true
		if a.state < reqSent { // there is no negotiation to take it into account
			a.do(now, rcn, p, nil)
		} else if a.layer.refused(p.Code, options) {
			a.do(now, rcn, p, nil)
		} else {
			a.do(now, rxjMinus, p, nil)
		}
	case TerminateRequest:
		a.do(now, rtr, p, nil)
	case TerminateAck:
		a.do(now, rta, p, nil)
	case CodeReject:
		rejected, err := ParsePacket(p.Data)
		if err == nil && rejected.Code <= CodeReject {
			a.do(now, rxjMinus, p, nil) // without these codes nothing can be agreed
		} else {
			a.do(now, rxjPlus, p, nil)
		}
	default:
		if !a.layer.extra(p) {
			a.do(now, ruc, p, nil)
		}
	}
}

// next is when tick is due; zero: not at all.
func (a *automaton) next() time.Time { return a.deadline }

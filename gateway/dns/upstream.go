package dns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

const (
	// downTime is how long an upstream that did not answer is tried last.
	downTime = 10 * time.Second
	// worthAnswering is how long a client's query is worth answering.
	worthAnswering = 5 * time.Second
	// maxStrays is how many unexpected datagrams are read for one query: it bounds a forger's guesses.
	maxStrays = 16
)

var (
	errStrays    = errors.New("only datagrams that are no answer came")
	errNoMessage = errors.New("its answer is no DNS message to the question")
)

// upstream is a resolver.
type upstream struct {
	addr netip.AddrPort
	down atomic.Int64 // Unix nanoseconds until when it is tried last
	edns edns
	log  *slog.Logger

	mu         sync.Mutex   // guards what follows
	unanswered int          // queries without an answer since the last answer
	lastAnswer time.Time    // of the last answer, or of the first query
	warned     bool         // since the last answer
	logged     budget.Clock // of warnings: clients must not fill the log
}

// An upstream is reported when it has answered nothing for downTime and silentMin queries: the silence
// may be that of the servers of a single name.
const silentMin = 3

// countOutcome counts a query's outcome, and logs when the upstream stops answering and when it answers again.
func (u *upstream) countOutcome(err error, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lastAnswer.IsZero() {
		u.lastAnswer = now
	}
	if err == nil {
		if u.warned {
			u.log.Info("an upstream resolver answers again", "upstream", u.addr)
		}
		u.unanswered, u.lastAnswer, u.warned = 0, now, false
		return
	}
	u.unanswered++
	if since := now.Sub(u.lastAnswer); !u.warned && u.unanswered >= silentMin && since >= downTime &&
		u.logged.Spend(budget.Minutely, now.UnixNano()) {
		u.warned = true
		u.log.Warn("an upstream resolver does not answer", "upstream", u.addr, "queries", u.unanswered, "seconds",
			int(since.Seconds()), "err", err)
	}
}

// upstreams are the resolvers that queries are forwarded to, in the order of the configuration.
type upstreams []*upstream

// order returns the upstreams in the order to try: responsive ones first.
func (list upstreams) order(now time.Time) upstreams {
	up := make(upstreams, 0, len(list))
	var down upstreams
	for _, u := range list {
		if u.down.Load() > now.UnixNano() {
			down = append(down, u)
		} else {
			up = append(up, u)
		}
	}
	return append(up, down...)
}

// exchangeAny tries one upstream after the other, twice, for the answer to a query. It returns a refusal only if no
// upstream has a better answer.
func (list upstreams) exchangeAny(ctx context.Context, q *miekg.Msg, timeout time.Duration) (*miekg.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, worthAnswering)
	defer cancel()
	var refusal *miekg.Msg
	var failure error
	for round := range 2 {
		for _, u := range list.order(time.Now()) {
			m, err := u.askWithFallback(ctx, q, timeout<<round, round > 0)
			switch {
			case ctx.Err() != nil && err != nil:
				u.countOutcome(err, time.Now())
				return refusal, ctx.Err()
			case err != nil:
				u.countOutcome(err, time.Now())
				u.down.Store(time.Now().Add(downTime).UnixNano())
				failure = fmt.Errorf("asking upstream %s: %w", u.addr, err)
				continue
			}
			u.countOutcome(nil, time.Now())
			u.down.Store(0)
			if m.Rcode == miekg.RcodeSuccess || m.Rcode == miekg.RcodeNameError {
				return m, nil
			}
			refusal = m
		}
		if refusal != nil {
			return refusal, nil
		}
	}
	return nil, failure
}

// askWithFallback asks with EDNS, and without where the upstream refuses it (RFC 6891, 6.2.2 and 7). again means that
// no upstream has answered in time: some networks drop queries with EDNS.
func (u *upstream) askWithFallback(ctx context.Context, q *miekg.Msg, timeout time.Duration, again bool) (
	*miekg.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case u.edns.refused(time.Now()):
		return u.exchangeUDP(ctx, q, false)
	case again && q.IsEdns0() == nil:
		m, err := u.exchangeUDP(ctx, q, false)
		if err == nil && u.edns.unansweredWithEDNS.Add(1) >= silentMin {
			u.edns.askWithout(u, "it answers queries without only")
		}
		return m, err
	}
	m, err := u.exchangeUDP(ctx, q, true)
	if err != nil {
		return nil, err
	}
	if !refusesEDNS(m) {
		u.edns.unansweredWithEDNS.Store(0)
		return m, nil
	}
	if plain, err := u.exchangeUDP(ctx, q, false); err == nil {
		if !refusesEDNS(plain) {
			u.edns.askWithout(u, rcodeText(m.Rcode))
		}
		return plain, nil
	}
	return m, nil
}

// exchangeUDP asks over UDP, and over TCP if the answer does not fit. Each query has a random identifier and its own
// socket, so a port of its own.
func (u *upstream) exchangeUDP(ctx context.Context, q *miekg.Msg, edns bool) (*miekg.Msg, error) {
	m, err := u.exchange(ctx, "udp", forward(q, randomID(), edns))
	if err == nil && m.Truncated {
		return u.exchange(ctx, "tcp", forward(q, randomID(), edns))
	}
	return m, err
}

func (u *upstream) exchange(ctx context.Context, network string, f *miekg.Msg) (*miekg.Msg, error) {
	query, err := f.Pack()
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, u.addr.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if network == "tcp" {
		return exchangeTCP(conn, f, query)
	}
	return exchangeUDP(conn, f, query)
}

// exchangeUDP ignores datagrams that are not the answer: anybody can send them.
func exchangeUDP(conn net.Conn, f *miekg.Msg, query []byte) (*miekg.Msg, error) {
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buf := make([]byte, 2*udpBytes) // a longer datagram is truncated and then does not decode
	for range maxStrays {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		m := new(miekg.Msg)
		if m.Unpack(buf[:n]) == nil && answers(f, m) {
			return m, nil
		}
	}
	return nil, errStrays
}

func exchangeTCP(conn net.Conn, f *miekg.Msg, query []byte) (*miekg.Msg, error) {
	if err := writeFrame(conn, query); err != nil {
		return nil, err
	}
	raw, err := readFrame(conn, maxBytes)
	if err != nil {
		return nil, err
	}
	m := new(miekg.Msg)
	if m.Unpack(raw) != nil || !answers(f, m) {
		return nil, errNoMessage
	}
	return m, nil
}

// readFrame reads a message over TCP, which starts with its length (RFC 1035, 4.2.2).
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > limit {
		return nil, fmt.Errorf("reading a message of %d bytes: more than %d", n, limit)
	}
	raw := make([]byte, n)
	_, err := io.ReadFull(r, raw)
	return raw, err
}

// writeFrame writes length and message together, so that they are one segment.
func writeFrame(w io.Writer, raw []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...))
	return err
}

func randomID() uint16 {
	var b [2]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint16(b[:])
}

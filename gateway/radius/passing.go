// Requests of servers about sessions that are not here: other gateways are asked to carry them out.

package radius

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc3576"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Others carries a request about sessions that are not here out at other gateways, by their CarryOut. It returns what
// CarryOut there answered, ErrNotThere, or why the gateway that has the session could not be asked.
type Others func(ctx context.Context, request []byte) (answer []byte, err error)

// ErrNotThere means that no other gateway has a session as a request says.
var ErrNotThere = errors.New("no other gateway has the session")

const (
	// passedAtOnce bounds the requests that other gateways are asked to carry out at the same time.
	passedAtOnce = 64
	// passedFor is how long that may take.
	passedFor = 6 * time.Second
)

// mayBeElsewhere reports whether another gateway may carry a request out that this one does not.
func (d *Dynamic) mayBeElsewhere(cause rfc3576.ErrorCause) bool {
	return d.cfg.Others != nil && (cause == rfc3576.ErrorCause_Value_SessionContextNotFound ||
		cause == rfc3576.ErrorCause_Value_NASIdentificationMismatch)
}

// pass has a request carried out elsewhere, and then calls done with why it was not; 0: it was. here is why it was not
// carried out here. It returns false if too many are being passed on.
func (d *Dynamic) pass(p *radius.Packet, here rfc3576.ErrorCause, done func(rfc3576.ErrorCause)) bool {
	body, err := p.MarshalBinary()
	if err != nil {
		return false
	}
	select {
	case d.passing <- struct{}{}:
	default:
		return false
	}
	go func() {
		defer func() { <-d.passing }()
		ctx, cancel := context.WithTimeout(context.Background(), passedFor)
		defer cancel()
		answer, err := d.cfg.Others(ctx, body)
		switch {
		case errors.Is(err, ErrNotThere):
			done(here)
		case err != nil:
			d.log.Warn("radius: a server's request is about no session of this gateway, and others cannot be asked", "err", err)
			done(rfc3576.ErrorCause_Value_ProxyRequestNotRoutable)
		default:
			done(causeOf(answer))
		}
	}()
	return true
}

// CarryOut carries out a request that another gateway passes on, whose server it knows, and returns an answer of the
// form of Others. It does not pass the request on.
func (d *Dynamic) CarryOut(request []byte) ([]byte, error) {
	p, err := radius.Parse(request, nil)
	if err != nil {
		return nil, err
	}
	found, cause := d.carryOut(p)
	attrs := append([]any{"code", p.Code.String()}, logUsers(p, found)...)
	if cause != 0 {
		attrs = append(attrs, "error-cause", uint32(cause), "why", inWords(cause))
	}
	d.log.Info("radius: a server's request, from another gateway", attrs...)
	return binary.BigEndian.AppendUint32(nil, uint32(cause)), nil
}

// causeOf is why CarryOut did not carry a request out; 0: it did.
func causeOf(answer []byte) rfc3576.ErrorCause {
	if len(answer) != 4 {
		return rfc3576.ErrorCause_Value_ProxyProcessingError
	}
	return rfc3576.ErrorCause(binary.BigEndian.Uint32(answer))
}

// CarriedOut reports whether an answer of CarryOut says that a request was carried out, and whether the gateway has no
// such session.
func CarriedOut(answer []byte) (done, unknown bool) {
	cause := causeOf(answer)
	return cause == 0, cause == rfc3576.ErrorCause_Value_SessionContextNotFound ||
		cause == rfc3576.ErrorCause_Value_NASIdentificationMismatch
}

// Names reports whether a request that is passed on is about a session.
func (d *Dynamic) Names(request []byte, s session.Session) bool {
	p, err := radius.Parse(request, nil)
	return err == nil && s.State == session.Authenticated && d.matches(s, p)
}

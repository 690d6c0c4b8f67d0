package device

import (
	"cmp"
	"context"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Servers asks RADIUS servers about devices: Access-Requests with the Service-Type Call-Check and the MAC address as
// User-Name (RFC 2865, 5.6).
type Servers struct {
	RADIUS interface {
		Authenticate(context.Context, session.Credentials) (session.Login, error)
	}
	Format     string        // of config.MACFormats
	VLANs      bool          // the User-Name is the device's VLANs, where they are known
	Password   string        // empty: the User-Name
	Randomised bool          // also about devices whose address is randomised
	Limit      time.Duration // the longest time of a question at all servers together
}

// Ask implements Source.
func (s Servers) Ask(ctx context.Context, c session.Credentials) (session.Login, error) {
	if !s.Randomised && Randomised(c.Key.MAC) {
		return session.Login{}, session.ErrRejected
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	c.User = Format(c.Key.MAC, s.Format)
	if s.VLANs {
		c.User = cmp.Or(c.VLANs.String(), c.User)
	}
	c.Password = cmp.Or(s.Password, c.User)
	login, err := s.RADIUS.Authenticate(ctx, c)
	login.Way = session.ByMAC
	return login, err
}

package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/client/persona"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// KindPPPoE is a persona with a PPPoE session of its own. It gets its address by logging in, so its lease is its login.
const KindPPPoE = "pppoe"

// sessionMTU is the largest IP packet that a PPPoE session carries, bytes.
const sessionMTU = traffic.EthernetMTU - pppoe.Overhead

var pppoeKind = Kind{
	Name:       KindPPPoE,
	MaxClients: maxPersonas, MaxSending: maxPersonas,
	Leases: true, Shared: true, PPPoE: true, CleanKind: KindPersona,
	Needs: Needs{KiB: 40, Files: 1},
	MTU:   sessionMTU,

	Times: Times{Stay: 3 * time.Millisecond, Storm: 2 * time.Millisecond},
	open:  func(cfg Config) (host, error) { return newPPPoEHost(cfg) },
}

// pppoeHost is what the PPPoE clients of one host share.
type pppoeHost struct {
	*personaHost
	sessions *persona.Sessions
}

func newPPPoEHost(cfg Config) (*pppoeHost, error) {
	cfg.Singly = true // segmentation offload is impossible: each packet needs a PPPoE header with its own length
	cfg.LAN6, cfg.Gateway6 = cfg.Sessions6, netip.Addr{}
	h, err := newPersonaHost(cfg, sessionMTU)
	if err != nil {
		return nil, err
	}
	net6 := netip.Prefix{}
	if cfg.Family.Has6() {
		net6 = cfg.Sessions6
	}
	lines, err := persona.NewSessions(cfg.Parent, net6)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return &pppoeHost{h, lines}, nil
}

func (h *pppoeHost) attach(c *Client) attachment {
	return &pppoeClient{personaClient: &personaClient{Client: c, host: h.personaHost}, sessions: h.sessions}
}

// hold does nothing, because the sockets are open all the time: clients must answer the concentrator's echo requests.
func (h *pppoeHost) hold() (done func(), err error) { return func() {}, nil }

func (h *pppoeHost) close() error { return errors.Join(h.sessions.Close(), h.personaHost.close()) }

// pppoeClient is one PPPoE client.
type pppoeClient struct {
	*personaClient
	sessions *persona.Sessions
	session  *persona.Session // nil: it has none
}

// lease sets up a session and logs in. It does nothing while the client has a session.
func (c *pppoeClient) lease(ctx context.Context) (Tries, error) {
	c.state.Lock()
	defer c.state.Unlock()
	if c.session != nil {
		if err := c.session.Err(); err != nil {
			return Tries{Count: 1}, fmt.Errorf("its PPPoE session is over: %w", err)
		}
		return Tries{Count: 1}, nil
	}
	a := c.cfg.Account
	session, tries, err := c.sessions.Dial(
		ctx, c.mac(), persona.Account{User: strings.ReplaceAll(a.User, "%d", fmt.Sprint(c.Num)), Password: a.Password})
	if err != nil {
		return tries, err
	}
	c.session = session
	terms, id := session.Terms(), session.ID()
	h, ip := c.host, terms.Local
	if !h.claim(ip, c.Num) {
		return tries, fmt.Errorf("%w: %s", errAddressInUse, ip)
	}
	if err := h.link.SetRouter(terms.Peer); err != nil {
		return tries, err
	}
	if err := h.link.SetRouterMAC(terms.Peer, id.Concentrator); err != nil {
		return tries, err
	}
	if err := h.link.PutInSession(ip, c.mac(), id); err != nil {
		return tries, err
	}
	c.held.Addr = netip.PrefixFrom(ip, ip.BitLen())
	c.setIP(ip)
	return tries, c.lease6(session)
}

// lease6 gives the client the IPv6 address that the session made, if any. The caller has locked state.
func (c *pppoeClient) lease6(session *persona.Session) error {
	ip, router := session.Address6()
	if !ip.IsValid() {
		return nil
	}
	if err := c.host.link.SetRouter6(router, session.ID().Concentrator); err != nil {
		return err
	}
	if err := c.host.link.PutInSession(ip, c.mac(), session.ID()); err != nil {
		return err
	}
	c.held6 = append(c.held6, ip)
	c.setIP(ip)
	return nil
}

func (c *pppoeClient) release(ctx context.Context) error {
	c.state.Lock()
	defer c.state.Unlock()
	if c.session == nil {
		return nil
	}
	err := c.session.HangUp(ctx)
	c.session = nil
	err = errors.Join(err, c.dropAddresses6())
	if c.held.Addr.IsValid() {
		err = errors.Join(err, c.dropAddress())
	}
	return err
}

var (
	_ host       = (*pppoeHost)(nil)
	_ attachment = (*pppoeClient)(nil)
)

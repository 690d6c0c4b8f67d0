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

// KindPPPoE is a persona behind a PPPoE session of its own: to lease an address is to log in.
const KindPPPoE = "pppoe"

const lineMTU = traffic.EthernetMTU - pppoe.Overhead

var pppoeKind = Kind{
	Name: KindPPPoE,
	Most: mostPersonas, MostSending: mostPersonas,
	Leases: true, Shared: true, Line: true, Beside: KindPersona,
	Needs: Needs{KiB: 40, Files: 1},
	MTU:   lineMTU,
	Times: Times{Stay: 3 * time.Millisecond, Storm: 2 * time.Millisecond},
	open:  func(cfg Config) (host, error) { return newLineHost(cfg) },
}

// lineHost is what the PPPoE clients of one host share.
type lineHost struct {
	*personaHost
	lines *persona.Lines
}

func newLineHost(cfg Config) (*lineHost, error) {
	cfg.Singly = true // a session's header tells the length of one packet
	h, err := newPersonaHost(cfg, lineMTU)
	if err != nil {
		return nil, err
	}
	lines, err := persona.NewLines(cfg.Parent)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return &lineHost{h, lines}, nil
}

func (h *lineHost) attach(c *Client) attachment {
	return &lineClient{personaClient: &personaClient{Client: c, host: h.personaHost}, lines: h.lines}
}

// hold does nothing: the sockets stay open, because concentrators send echo requests.
func (h *lineHost) hold() (done func(), err error) { return func() {}, nil }

func (h *lineHost) close() error { return errors.Join(h.lines.Close(), h.personaHost.close()) }

// lineClient is one PPPoE client.
type lineClient struct {
	*personaClient
	lines *persona.Lines
	line  *persona.Line // nil without a session
}

// lease sets a session up and logs in. A second call does nothing while the session lives.
func (c *lineClient) lease(ctx context.Context) (Tries, error) {
	c.state.Lock()
	defer c.state.Unlock()
	if c.line != nil {
		if err := c.line.Err(); err != nil {
			return Tries{Count: 1}, fmt.Errorf("its PPPoE session is over: %w", err)
		}
		return Tries{Count: 1}, nil
	}
	a := c.cfg.Account
	line, tries, err := c.lines.Dial(
		ctx, c.mac(), persona.Account{User: strings.ReplaceAll(a.User, "%d", fmt.Sprint(c.Num)), Password: a.Password})
	if err != nil {
		return tries, err
	}
	c.line = line
	terms, at := line.Terms(), line.Session()
	h, ip := c.host, terms.Local
	if !h.claim(ip, c.Num) {
		return tries, fmt.Errorf("%w: %s", errTaken, ip)
	}
	if err := h.link.SetRouter(terms.Peer); err != nil {
		return tries, err
	}
	if err := h.link.SetRouterMAC(terms.Peer, at.Concentrator); err != nil {
		return tries, err
	}
	if err := h.link.PutOnLine(ip, c.mac(), at); err != nil {
		return tries, err
	}
	c.held.Addr = netip.PrefixFrom(ip, ip.BitLen())
	c.setIP(ip)
	return tries, nil
}

func (c *lineClient) release(ctx context.Context) error {
	c.state.Lock()
	defer c.state.Unlock()
	if c.line == nil {
		return nil
	}
	err := c.line.HangUp(ctx)
	c.line = nil
	if c.held.Addr.IsValid() {
		err = errors.Join(err, c.depart())
	}
	return err
}

var (
	_ host       = (*lineHost)(nil)
	_ attachment = (*lineClient)(nil)
)

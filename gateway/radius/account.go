// Accounting-Requests: the events of sessions, and the start and end of the gateway.

package radius

import (
	"fmt"
	"strings"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// statusTypes is Acct-Status-Type of each kind of event (RFC 2866, 5.1).
var statusTypes = map[session.Kind]rfc2866.AcctStatusType{
	session.Started: rfc2866.AcctStatusType_Value_Start,
	session.Updated: rfc2866.AcctStatusType_Value_InterimUpdate,
	session.Ended:   rfc2866.AcctStatusType_Value_Stop,
}

// terminateCauses is Acct-Terminate-Cause of each cause (RFC 2866, 5.10).
var terminateCauses = map[session.Cause]rfc2866.AcctTerminateCause{
	session.UserRequest:    rfc2866.AcctTerminateCause_Value_UserRequest,
	session.LostCarrier:    rfc2866.AcctTerminateCause_Value_LostCarrier,
	session.LeaseEnded:     rfc2866.AcctTerminateCause_Value_LostCarrier,
	session.LeaseReleased:  rfc2866.AcctTerminateCause_Value_LostCarrier,
	session.IdleTimeout:    rfc2866.AcctTerminateCause_Value_IdleTimeout,
	session.SessionTimeout: rfc2866.AcctTerminateCause_Value_SessionTimeout,
	session.Quota:          rfc2866.AcctTerminateCause_Value_SessionTimeout,
	session.AdminReset:     rfc2866.AcctTerminateCause_Value_AdminReset,
	session.NASReboot:      rfc2866.AcctTerminateCause_Value_NASReboot,
	session.NASRequest:     rfc2866.AcctTerminateCause_Value_NASRequest,
}

// event returns the request that reports an event.
func (c *Client) event(e session.Event) (*accountingRequest, error) {
	status, known := statusTypes[e.Kind]
	if !known {
		return nil, fmt.Errorf("unknown kind of event %q", e.Kind)
	}
	cause := rfc2866.AcctTerminateCause_Value_NASError // for causes without a RADIUS value
	if v, known := terminateCauses[e.Cause]; known {
		cause = v
	}
	return &accountingRequest{cfg: &c.cfg, at: e.At, addAttributes: func(p builder) {
		p.number(rfc2866.AcctStatusType_Type, uint32(status))
		p.text(rfc2866.AcctSessionID_Type, e.ID)
		p.text(rfc2865.UserName_Type, e.User)
		p.number(rfc2866.AcctAuthentic_Type, uint32(c.authentic(e.Session)))
		p.client(&c.cfg, e.Key, e.Attachment.VLANs, e.PPPoE.Session)
		p.addresses6(e.FurtherAddrs...)
		p.prefixes6(&c.cfg, e.Session)
		p.line(e.PPPoE.Session)
		p.routes(e.PPPoE.Routes)
		p.attachment(e.Attachment.Circuit, e.Attachment.Remote)
		if e.Guest != nil && e.Guest.Terms != "" {
			p.text(rfc2869.ConnectInfo_Type, "terms "+e.Guest.Terms) // RFC 2869, 5.11
		}
		for _, class := range e.Class {
			p.Add(rfc2865.Class_Type, class)
		}
		if e.Kind != session.Started {
			// Rounded: with a clock that is being slewed, an hour's session may be slightly shorter.
			p.number(rfc2866.AcctSessionTime_Type, seconds(e.At.Sub(e.Began).Round(time.Second)))
			p.counts(e.Counts, c.cfg.SwapOctets)
		}
		if e.Kind == session.Ended {
			p.number(rfc2866.AcctTerminateCause_Type, uint32(cause))
		}
	}}, nil
}

// authentic is Acct-Authentic of a session. Of a device that did not log in it is who let it in.
func (c *Client) authentic(s session.Session) rfc2866.AcctAuthentic {
	local := c.cfg.LocalUsers != "" && strings.HasPrefix(s.User, c.cfg.LocalUsers) || s.Guest != nil
	if local || s.Way == session.ByList || c.cfg.LocalAccounts && s.Way != session.ByMAC {
		return rfc2866.AcctAuthentic_Value_Local
	}
	return rfc2866.AcctAuthentic_Value_RADIUS
}

// counts adds a session's counts. The upper halves of octet counts are separate attributes (RFC 2869, 5.1); packet
// counts have only a lower half.
func (b builder) counts(n session.Counts, swap bool) {
	inBytes, inPackets, outBytes, outPackets := n.UpBytes, n.UpPackets, n.DownBytes, n.DownPackets
	if swap {
		inBytes, inPackets, outBytes, outPackets = outBytes, outPackets, inBytes, inPackets
	}
	b.number(rfc2866.AcctInputOctets_Type, uint32(inBytes))
	b.number(rfc2869.AcctInputGigawords_Type, uint32(inBytes>>32))
	b.number(rfc2866.AcctOutputOctets_Type, uint32(outBytes))
	b.number(rfc2869.AcctOutputGigawords_Type, uint32(outBytes>>32))
	b.number(rfc2866.AcctInputPackets_Type, uint32(inPackets))
	b.number(rfc2866.AcctOutputPackets_Type, uint32(outPackets))
}

// restart is Accounting-On or -Off.
func (c *Client) restart(enabled bool) *accountingRequest {
	status := rfc2866.AcctStatusType_Value_AccountingOff
	if enabled {
		status = rfc2866.AcctStatusType_Value_AccountingOn
	}
	return &accountingRequest{cfg: &c.cfg, at: time.Now(), addAttributes: func(p builder) {
		p.number(rfc2866.AcctStatusType_Type, uint32(status))
		p.text(rfc2866.AcctSessionID_Type, c.boot)
	}}
}

// maxClass is how many bytes of Class attributes, with their headers, fit into an accounting packet beside the longest
// values of all other attributes.
const maxClass = radius.MaxPacketLength - headerSize - 6*(maxValue+2) - maxRoutes*32 - maxAddresses6*18 -
	2*most6*20 - 256

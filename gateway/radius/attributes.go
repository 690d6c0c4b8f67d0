package radius

import (
	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"
	"layeh.com/radius/rfc3162"
	"layeh.com/radius/rfc3576"
	"layeh.com/radius/rfc4818"
	"layeh.com/radius/rfc6911"
)

// packets is a set of packet kinds: those that may carry an attribute.
type packets uint16

// Packets that are sent, and those of servers.
const (
	portalRequest packets = 1 << iota // Access-Request of a client at the portal
	lineRequest                       // Access-Request of a PPPoE client
	start                             // Accounting-Request
	update
	stop
	onOff  // Accounting-On and -Off
	reply  // answer to a Disconnect- or CoA-Request
	accept // Access-Accept
	reject // Access-Reject
	challenge
	naming   // Disconnect- or CoA-Request: of which session or gateway it is, or signed with it
	changing // CoA-Request: what is changed

	logins   = portalRequest | lineRequest
	sessions = start | update | stop
	counted  = update | stop
)

// byMSCHAP is when attributes of MS-CHAP are sent.
const byMSCHAP = "of PPPoE clients that use MS-CHAPv2, and from a [portal elsewhere](../uam.md) by `\"mschapv2\"`"

// attachedAt is what circuit and remote ID are.
const attachedAt = "the line, as a PPPoE client's access node says, or a [relay or switch](../relays.md) by DHCP"

// avp describes an attribute that gatewayd sends or understands. docs/reference/gatewayd-radius.md is made of these.
type avp struct {
	name   string
	vendor uint32 // 0: none
	kind   radius.Type
	in     packets
	value  string // unit and meaning, in Markdown
}

// attributes are all attributes, those of vendors last. Others that a server sends in an answer are ignored; in
// a Disconnect- or CoA-Request they are refused.
var attributes = []avp{
	{"User-Name", 0, rfc2865.UserName_Type, logins | sessions | accept | naming,
		"the user, or a device's MAC address (`devices.mac_format`); in an Access-Accept: replaces the name that was sent. " +
			"Upper and lower case are one name"},
	{"User-Password", 0, rfc2865.UserPassword_Type, logins,
		"with `radius.method = \"pap\"`, of PPPoE clients that use PAP, and from a [portal elsewhere](../uam.md) by " +
			"`\"pap\"` or `\"plain\"`"},
	{"CHAP-Password", 0, rfc2865.CHAPPassword_Type, logins,
		"with `radius.method = \"chap\"`, of PPPoE clients that use CHAP, and from a [portal elsewhere](../uam.md) by " +
			"`\"chap\"`"},
	{"NAS-IP-Address", 0, rfc2865.NASIPAddress_Type, logins | sessions | onOff | naming,
		"`radius.nas_address`; not sent without it. In a request: must be it, or without it an address of the machine"},
	{"NAS-Port", 0, rfc2865.NASPort_Type, logins | sessions | naming,
		"PPPoE clients: the PPPoE session; others with `radius.nas_port_id = \"vlan\"`: the VLAN, of a pair outer · 4096 + " +
			"inner"},
	{"Service-Type", 0, rfc2865.ServiceType_Type, logins | sessions | accept,
		"sent: Login (portal, in Access-Requests), Call-Check (`devices.radius`, likewise) or Framed (PPPoE). In an " +
			"Access-Accept: none, Login or Framed, and Call-Check where that was sent; others admit nobody"},
	{"Framed-Protocol", 0, rfc2865.FramedProtocol_Type, lineRequest | sessions, "PPPoE clients: PPP"},
	{"Framed-IP-Address", 0, rfc2865.FramedIPAddress_Type, portalRequest | sessions | accept | naming,
		"the client's address; in an Access-Accept: that of a PPPoE client"},
	{"Filter-Id", 0, rfc2865.FilterID_Type, accept | changing,
		"the name of a `[[limits.profile]]`, whose limits hold where the packet has none of its own. Without such tables " +
			"it is not understood"},
	{"Reply-Message", 0, rfc2865.ReplyMessage_Type, reject | challenge | naming,
		"shown to the user, at most 300 bytes. In a Disconnect- or CoA-Request: ignored"},
	{"Framed-Route", 0, rfc2865.FramedRoute_Type, sessions | accept,
		"PPPoE clients: a network behind the client, `192.0.2.0/28 0.0.0.0 1`; 16 at most. Next hop and metrics are not used"},
	{"Class", 0, rfc2865.Class_Type, sessions | accept | naming,
		"returned in accounting, all of them in order; in a request: one of the session's"},
	{"Session-Timeout", 0, rfc2865.SessionTimeout_Type, accept | changing,
		"seconds from the session's start; 0 does not limit"},
	{"Idle-Timeout", 0, rfc2865.IdleTimeout_Type, accept | changing,
		"seconds without a packet of the client; 0 does not limit"},
	{"Called-Station-Id", 0, rfc2865.CalledStationID_Type, logins | sessions | naming,
		"`radius.called_station_id`; not sent without it"},
	{"Calling-Station-Id", 0, rfc2865.CallingStationID_Type, logins | sessions | naming,
		"the client's MAC address, `02-00-00-00-00-01`"},
	{"NAS-Identifier", 0, rfc2865.NASIdentifier_Type, logins | sessions | onOff | naming, "`radius.nas_identifier`"},
	{"Proxy-State", 0, rfc2865.ProxyState_Type, reply | naming, "returned in the answer"},
	{"Acct-Status-Type", 0, rfc2866.AcctStatusType_Type, sessions | onOff,
		"Start, Interim-Update, Stop, Accounting-On, Accounting-Off"},
	{"Acct-Delay-Time", 0, rfc2866.AcctDelayTime_Type, sessions | onOff, "seconds since the event"},
	{"Acct-Input-Octets", 0, rfc2866.AcctInputOctets_Type, counted,
		"bytes of IP packets that the client sent, modulo 2³²; with `radius.swap_octets` those that it received"},
	{"Acct-Output-Octets", 0, rfc2866.AcctOutputOctets_Type, counted,
		"bytes of IP packets that the client received, modulo 2³²; with `radius.swap_octets` those that it sent"},
	{"Acct-Session-Id", 0, rfc2866.AcctSessionID_Type, logins | sessions | onOff | naming,
		"the session, 16 hexadecimal digits; in an Access-Request that of the session to come"},
	{"Acct-Authentic", 0, rfc2866.AcctAuthentic_Type, sessions,
		"RADIUS, or Local where `auth.methods` does not have it, of vouchers and of click-through; of devices by who let " +
			"them in"},
	{"Acct-Session-Time", 0, rfc2866.AcctSessionTime_Type, counted, "seconds, by the monotonic clock"},
	{"Acct-Input-Packets", 0, rfc2866.AcctInputPackets_Type, counted, "packets, as Acct-Input-Octets"},
	{"Acct-Output-Packets", 0, rfc2866.AcctOutputPackets_Type, counted, "packets, as Acct-Output-Octets"},
	{"Acct-Terminate-Cause", 0, rfc2866.AcctTerminateCause_Type, stop | naming,
		"User-Request (logout, or the client hung up), Lost-Carrier (lease or line ended), Idle-Timeout, Session-Timeout " +
			"(time or bytes used up), Admin-Reset (`gatewayd logout`, Disconnect-Request), NAS-Reboot, NAS-Request (the " +
			"address went to another client), NAS-Error. In a Disconnect-Request: ignored"},
	{"Acct-Input-Gigawords", 0, rfc2869.AcctInputGigawords_Type, counted, "2³² bytes, as Acct-Input-Octets"},
	{"Acct-Output-Gigawords", 0, rfc2869.AcctOutputGigawords_Type, counted, "2³² bytes, as Acct-Output-Octets"},
	{"Event-Timestamp", 0, rfc2869.EventTimestamp_Type, sessions | onOff | naming,
		"Unix time of the event; in a request: within 5 minutes of the gateway's clock"},
	{"CHAP-Challenge", 0, rfc2865.CHAPChallenge_Type, logins, "beside CHAP-Password"},
	{"NAS-Port-Type", 0, rfc2865.NASPortType_Type, logins | sessions | naming,
		"portal: `radius.nas_port_type`, Wireless-802.11 or Ethernet; PPPoE: Ethernet"},
	{"Port-Limit", 0, rfc2865.PortLimit_Type, accept, "sessions of the user at once"},
	{"Message-Authenticator", 0, rfc2869.MessageAuthenticator_Type, logins | reply | accept | reject | challenge | naming,
		"of every Access-Request, the first attribute. Access-Accepts, -Rejects and -Challenges without a right one are " +
			"dropped; in other requests it may be missing, and is answered by one"},
	{"Connect-Info", 0, rfc2869.ConnectInfo_Type, sessions,
		"click-through: the version of `portal.terms` that was accepted, such as `terms 5d9b98b5`"},
	{"Acct-Interim-Interval", 0, rfc2869.AcctInterimInterval_Type, accept | changing,
		"seconds between updates, 60 at least; 0: `radius.interim`"},
	{"NAS-Port-Id", 0, rfc2869.NASPortID_Type, logins | sessions | naming,
		"`lan.interface`; with `radius.nas_port_id = \"vlan\"` the client's VLAN, `7`, or pair, `100:20`"},
	{"Framed-Pool", 0, rfc2869.FramedPool_Type, accept,
		"PPPoE clients: the name in `pppoe.pool` of the pool that the address is of"},
	{"Error-Cause", 0, rfc3576.ErrorCause_Type, reply, "why a request was refused"},
	{"Framed-Interface-Id", 0, rfc3162.FramedInterfaceID_Type, sessions | accept | naming,
		"PPPoE clients with `pppoe.ipv6`: the interface identifier that a client was given; on Ethernet not carried " +
			"out. In a Disconnect- or CoA-Request: that, or the last 8 bytes of one of the session's IPv6 addresses"},
	{"Framed-IPv6-Prefix", 0, rfc3162.FramedIPv6Prefix_Type, sessions | accept | naming,
		"the client's own /64s, with `lan.client_prefixes`, or of its PPPoE session; in an Access-Accept: the /64s that " +
			"it is to have. In a Disconnect- or CoA-Request: of the session, each that is given"},
	{"Framed-IPv6-Route", 0, rfc3162.FramedIPv6Route_Type, sessions | accept,
		"networks behind the client, while its session lasts: of \"2001:db8:7::/48 :: 1\" the first word counts"},
	{"Framed-IPv6-Pool", 0, rfc3162.FramedIPv6Pool_Type, accept,
		"the name in `lan.prefix_pool` of the network that the client's /64 is of, unless it has Framed-IPv6-Prefix"},
	{"Delegated-IPv6-Prefix", 0, rfc4818.DelegatedIPv6Prefix_Type, sessions | accept | naming,
		"prefixes that are delegated to the client; in an Access-Accept: those of `dhcp6.pd_pool` that it is to have. " +
			"In a Disconnect- or CoA-Request: of the session, each that is given"},
	{"Framed-IPv6-Address", 0, rfc6911.FramedIPv6Address_Type, portalRequest | sessions | accept | naming,
		"each global IPv6 address that the client has (RFC 6911); in an Access-Accept: what DHCPv6 gives it (IA_NA), with " +
			"`lan.client_prefixes` or `dhcp6.mode = \"stateful\"`. In a Disconnect- or CoA-Request: of the session, each " +
			"that is given"},
	{"DNS-Server-IPv6-Address", 0, rfc6911.DNSServerIPv6Address_Type, accept,
		"the client's DNS servers, instead of the gateway: by router advertisements with `lan.client_prefixes`"},
	{"Route-IPv6-Information", 0, rfc6911.RouteIPv6Information_Type, accept,
		"networks that the client reaches by the gateway (RFC 4191): by router advertisements with `lan.client_prefixes`"},
	{"Delegated-IPv6-Prefix-Pool", 0, rfc6911.DelegatedIPv6PrefixPool_Type, accept,
		"the name in `dhcp6.prefix_pool` of the network that the client's prefix is of, unless it has " +
			"Delegated-IPv6-Prefix"},
	{"Stateful-IPv6-Address-Pool", 0, rfc6911.StatefulIPv6AddressPool_Type, accept,
		"the name in `lan.prefix_pool` of the network out of whose /64 for the client DHCPv6 gives it an address, unless " +
			"it has Framed-IPv6-Address"},

	{"MS-CHAP-Challenge", vendorMicrosoft, msChallenge, logins, byMSCHAP},
	{"MS-CHAP2-Response", vendorMicrosoft, msCHAP2Response, logins, byMSCHAP},
	{"MS-CHAP2-Success", vendorMicrosoft, msCHAP2Success, accept, "passed on to the client"},
	{"ADSL-Agent-Circuit-Id", vendorADSL, adslCircuit, logins | sessions, attachedAt},
	{"ADSL-Agent-Remote-Id", vendorADSL, adslRemote, logins | sessions, attachedAt},
	{"WISPr-Bandwidth-Max-Up", vendorWISPr, wisprMaxUp, accept | changing,
		"bits a second from the client; 0 does not limit"},
	{"WISPr-Bandwidth-Max-Down", vendorWISPr, wisprMaxDown, accept | changing,
		"bits a second to the client; 0 does not limit"},
	{"ChilliSpot-Bandwidth-Max-Up", vendorChilliSpot, chilliMaxUp, accept | changing,
		"1000 bits a second from the client; 0 does not limit"},
	{"ChilliSpot-Bandwidth-Max-Down", vendorChilliSpot, chilliMaxDown, accept | changing,
		"1000 bits a second to the client; 0 does not limit"},
	{"Mikrotik-Rate-Limit", vendorMikrotik, mikrotikRate, accept | changing,
		"`512k/4M`: bits a second from the client and to it; one number is both. What follows (bursts, priority, minimum) " +
			"is not carried out. Of several rates for one direction the lowest holds, and so with quotas"},
	{"Huawei-Layer4-Session-Limit", vendorHuawei, huaweiConnections, accept | changing,
		"[connections](../nat.md#connections-of-a-client) of the client at once; 0 does not limit. Where " +
			"`limits.connections` is not set a CoA-Request with it is refused, and an Access-Accept's is not carried out: the " +
			"log says so"},
	{"WISPr-Session-Terminate-Time", vendorWISPr, wisprTerminate, accept | changing,
		"the session's end, if Session-Timeout is not earlier: `2026-12-31T23:59:59+01:00`, without a time zone in the " +
			"gateway's"},
	{"ChilliSpot-Max-Input-Octets", vendorChilliSpot, chilliMaxInput, accept | changing,
		"bytes of the session that the client may send (with `radius.swap_octets`: receive), modulo 2³²; 0 does not limit"},
	{"ChilliSpot-Max-Output-Octets", vendorChilliSpot, chilliMaxOutput, accept | changing,
		"the same, that it may receive (send)"},
	{"ChilliSpot-Max-Total-Octets", vendorChilliSpot, chilliMaxTotal, accept | changing, "the same, both together"},
	{"ChilliSpot-Max-Input-Gigawords", vendorChilliSpot, chilliMaxInputHigh, accept | changing, "2³² bytes, to be added"},
	{"ChilliSpot-Max-Output-Gigawords", vendorChilliSpot, chilliMaxOutputHigh, accept | changing,
		"2³² bytes, to be added"},
	{"ChilliSpot-Max-Total-Gigawords", vendorChilliSpot, chilliMaxTotalHigh, accept | changing, "2³² bytes, to be added"},
	{"Mikrotik-Recv-Limit", vendorMikrotik, mikrotikRecv, accept | changing, "as ChilliSpot-Max-Input-Octets"},
	{"Mikrotik-Xmit-Limit", vendorMikrotik, mikrotikXmit, accept | changing, "as ChilliSpot-Max-Output-Octets"},
	{"Mikrotik-Total-Limit", vendorMikrotik, mikrotikTotal, accept | changing, "as ChilliSpot-Max-Total-Octets"},
	{"Mikrotik-Recv-Limit-Gigawords", vendorMikrotik, mikrotikRecvHigh, accept | changing, "2³² bytes, to be added"},
	{"Mikrotik-Xmit-Limit-Gigawords", vendorMikrotik, mikrotikXmitHigh, accept | changing, "2³² bytes, to be added"},
	{"Mikrotik-Total-Limit-Gigawords", vendorMikrotik, mikrotikTotalHigh, accept | changing, "2³² bytes, to be added"},
}

// identifying are attributes that say of what a request is, and signed ones.
var identifying = func() map[radius.Type]bool {
	all := map[radius.Type]bool{}
	for _, a := range attributes {
		if a.in&naming != 0 {
			all[a.kind] = true
		}
	}
	return all
}()

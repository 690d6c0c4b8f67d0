// Tests that the table of attributes, which makes a page of the manual, is what the package sends and understands.
// newClient makes a Client, newDynamic a Dynamic (the server of CoA and Disconnect requests) with a table of one
// session; credentials, testKey and testEvent are a login, a client and an accounting event.

package radius

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"
	"layeh.com/radius/rfc3576"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/goldentest"
)

//go:generate go test -count=1 -run ^TestPageOfAttributes$ . -args -update

const attributesPage = "../../docs/reference/gatewayd-radius.md"

// words are the packets in the order of the page.
var words = []struct {
	in   packets
	text string
}{
	{portalRequest, "Access-Request (portal)"}, {lineRequest, "Access-Request (PPPoE)"}, {start, "Start"},
	{update, "Interim-Update"}, {stop, "Stop"}, {onOff, "Accounting-On, -Off"},
	{reply, "answers to Disconnect- and CoA-Requests"},
	{accept, "Access-Accept"}, {reject, "Access-Reject"}, {challenge, "Access-Challenge"},
	{naming, "Disconnect- and CoA-Request, of what it is"}, {changing, "CoA-Request, what is changed"},
}

const sentPackets = logins | sessions | onOff | reply

// page renders the page of attributes.
func page() string {
	var b strings.Builder
	b.WriteString(`# RADIUS attributes

What gatewayd sends to RADIUS servers and understands of them, made from its source (` +
		"`gateway/radius/attributes.go`" +
		`). How servers are configured: [gateway.md](../gateway.md) and the [reference](../gateway-reference.md). Attributes of vendors are inside of Vendor-Specific (26), with the vendor's number before a dot.
Other attributes of an answer are ignored; a Disconnect- or CoA-Request with others is refused. Texts that are empty are not sent.

`)
	table := func(title string, of packets) {
		fmt.Fprintf(&b, "## %s\n\n| Attribute | Number | In | Value |\n|---|--:|---|---|\n", title)
		for _, a := range attributes {
			if a.in&of == 0 {
				continue
			}
			number := fmt.Sprint(a.kind)
			if a.vendor != 0 {
				number = fmt.Sprintf("%d.%d", a.vendor, a.kind)
			}
			var in []string
			for _, w := range words {
				if a.in&of&w.in != 0 {
					in = append(in, w.text)
				}
			}
			text := strings.Join(in, ", ")
			for _, all := range []struct {
				in   packets
				text string
			}{{sessions | logins, "Access-Requests, Start, Interim-Update, Stop"}, {logins, "Access-Requests"}} {
				if a.in&all.in == all.in {
					text = strings.Replace(text, names(all.in), all.text, 1)
					break
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", a.name, number, text, a.value)
		}
		b.WriteString("\n")
	}
	table("Sent", sentPackets)
	table("Understood", ^sentPackets)
	return strings.TrimSpace(b.String()) + "\n"
}

func names(in packets) string {
	var all []string
	for _, w := range words {
		if in&w.in != 0 {
			all = append(all, w.text)
		}
	}
	return strings.Join(all, ", ")
}

// TestPageOfAttributes: the page is what the table says.
func TestPageOfAttributes(t *testing.T) {
	goldentest.Compare(t, attributesPage, page())
}

// attributeUse records in which packets a test saw an attribute, by "vendor.type".
type attributeUse map[string]packets

// add adds the attributes of a packet.
func (s attributeUse) add(in packets, all radius.Attributes) {
	for _, a := range all {
		if a.Type != rfc2865.VendorSpecific_Type {
			s[fmt.Sprintf("0.%d", a.Type)] |= in
			continue
		}
		s[fmt.Sprintf("%d.%d", binary.BigEndian.Uint32(a.Attribute), a.Attribute[4])] |= in
	}
}

// compare holds what was seen against the table. Message-Authenticator in answers is the transport's.
func (s attributeUse) compare(t *testing.T, of packets) {
	t.Helper()
	want, name := attributeUse{}, map[string]string{}
	for _, a := range attributes {
		key := fmt.Sprintf("%d.%d", a.vendor, a.kind)
		name[key] = a.name
		if in := a.in & of; in != 0 {
			want[key] = in
		}
	}
	for key := range maps.Keys(s) {
		if s[key] != want[key] {
			t.Errorf("%s %s is in: %s; the table has: %s", name[key], key, names(s[key]), names(want[key]))
		}
	}
	for key, in := range want {
		if s[key] == 0 {
			t.Errorf("%s %s is nowhere; the table has: %s", name[key], key, names(in))
		}
	}
}

// TestAttributesSent: the table has the attributes of all packets that are sent. Long: the steps of one run, each of
// which needs the state that the one before left.
func TestAttributesSent(t *testing.T) {
	s := attributeUse{}
	cfg := Config{
		Servers: []Server{{Address: loopbackPort(), Secret: testSecret}}, NASIdentifier: "here",
		NASAddress: netip.MustParseAddr("192.0.2.1"), NASPortID: "lan0", VLANPorts: true, CalledStationID: "Guests",
		Prefixes: testPrefixes,
	}
	note := func(in packets, data []byte, err error) {
		t.Helper()
		p, bad := radius.Parse(data, []byte(testSecret))
		if err != nil || bad != nil {
			t.Fatal(err, bad)
		}
		s.add(in, p.Attributes)
	}
	for _, cfg.Method = range []Method{PAP, CHAP} {
		c := newClient(t, cfg)
		credentials := session.Credentials{User: "ann", Password: "x", Key: testKey, SessionID: "5f3c"}
		credentials.FurtherAddrs = testFurther
		line := credentials
		line.FurtherAddrs, credentials.Circuit, credentials.Remote = nil, "port 7", "switch"
		credentials.VLANs = session.VLANs{Outer: 100, Inner: 20}
		line.Key.Addr, line.Port, line.Circuit, line.Remote = netip.Addr{}, 7, "eth 1", "line"
		chap, ms := line, line
		chap.CHAP = &session.CHAP{Challenge: make([]byte, 16), Response: make([]byte, 16)}
		ms.CHAP = &session.CHAP{Microsoft: true, Challenge: make([]byte, 16), Response: make([]byte, msResponse)}
		byCHAP, byMS := credentials, credentials // from a portal elsewhere
		byCHAP.CHAP, byMS.CHAP = chap.CHAP, ms.CHAP
		for in, all := range map[packets][]session.Credentials{
			portalRequest: {credentials, byCHAP, byMS}, lineRequest: {line, chap, ms}} {
			for _, credentials := range all {
				data, err := (&accessRequest{cfg: &c.cfg, credentials: credentials}).packet([]byte(testSecret), 1, time.Now())
				note(in, data, err)
			}
		}
		for in, kind := range map[packets]session.Kind{start: session.Started, update: session.Updated, stop: session.Ended} {
			e := testEvent(kind, time.Minute, session.UserRequest)
			e.Attachment = session.Attachment{Circuit: "port 7", Remote: "switch"}
			for _, line := range []session.PPPoESession{
				{}, {Session: 7, Routes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}}} {
				e.PPPoE, e.IPv6, e.Guest = line, &session.Grant6{InterfaceID: 7}, &session.Guest{Terms: "5d9b98b5"}
				r, err := c.event(e)
				if err != nil {
					t.Fatal(err)
				}
				data, err := r.packet([]byte(testSecret), 1, time.Now())
				note(in, data, err)
			}
		}
		data, err := c.restart(true).packet([]byte(testSecret), 1, time.Now())
		note(onOff, data, err)
	}
	d, _ := newDynamic(t)
	request := packet(t, func(p builder) {
		p.Add(rfc2869.MessageAuthenticator_Type, make([]byte, 16))
		p.text(rfc2865.ProxyState_Type, "state")
	})
	for _, cause := range []rfc3576.ErrorCause{0, rfc3576.ErrorCause_Value_MissingAttribute} {
		note(reply, d.answer(request, dynamicServer.Addr(), nil, cause), nil)
	}
	s.compare(t, sentPackets)
}

// TestAttributesUnderstood: whatever attribute a server sends, it has an effect if the table says so, and otherwise
// none. Long: it tries each kind of packet.
func TestAttributesUnderstood(t *testing.T) {
	s := attributeUse{}
	profiles := map[string]Profile{"512k/4M": {Sessions: 2, Limits: session.Limits{UpBps: 1}}}
	c := newClient(t, Config{Servers: []Server{{Address: loopbackPort(), Secret: testSecret}}, Profiles: profiles,
		Connections: true})
	d, _ := newDynamic(t)
	d.cfg.Profiles, d.cfg.Connections = profiles, true
	credentials := session.Credentials{User: "ann", Port: 7, Key: testKey}
	outcome := func(code radius.Code, all radius.Attributes) any {
		login, err := c.decide(credentials, &radius.Packet{Code: code, Attributes: all})
		return []any{login, fmt.Sprint(err)}
	}
	try := func(a *radius.AVP) {
		all := radius.Attributes{a}
		for in, code := range map[packets]radius.Code{
			accept: radius.CodeAccessAccept, reject: radius.CodeAccessReject, challenge: radius.CodeAccessChallenge} {
			if !reflect.DeepEqual(outcome(code, all), outcome(code, nil)) {
				s.add(in, all)
			}
		}
		coa := builder{radius.New(radius.CodeCoARequest, []byte(testSecret))}
		coa.text(rfc2866.AcctSessionID_Type, "5f3c")
		coa.Attributes = append(coa.Attributes, a)
		switch _, cause := d.parseChange(coa.Packet); cause {
		case 0:
			s.add(changing, all)
		case rfc3576.ErrorCause_Value_MissingAttribute:
			s.add(naming, all)
		}
	}
	values := [][]byte{{0, 0, 0, 5}, {10, 9, 8, 7}, []byte("198.51.100.0/28"), []byte("2099-01-01T00:00:00Z"),
		[]byte("512k/4M"),
		[]byte("2001:db8:7::/48"), {0, 64, 0x20, 1, 0xd, 0xb8, 0, 1, 0, 2}, {0x20, 1, 0xd, 0xb8, 15: 9}, {7: 9}}
	for kind := 1; kind < 256; kind++ {
		for _, value := range values {
			if radius.Type(kind) != rfc2865.VendorSpecific_Type {
				try(&radius.AVP{Type: radius.Type(kind), Attribute: value})
				continue
			}
			for _, vendor := range []uint32{9, vendorMicrosoft, vendorADSL, vendorWISPr, vendorChilliSpot,
				vendorMikrotik, vendorHuawei} {
				for kind := byte(1); kind <= huaweiConnections; kind++ {
					inner := append(binary.BigEndian.AppendUint32(nil, vendor), kind, byte(2+len(value)))
					try(&radius.AVP{Type: rfc2865.VendorSpecific_Type, Attribute: slices.Concat(inner, value)})
				}
			}
		}
	}
	s["0.80"] |= accept | reject | challenge // Message-Authenticator, which TestForgeriesAreDropped shows
	s.compare(t, ^sentPackets)
}

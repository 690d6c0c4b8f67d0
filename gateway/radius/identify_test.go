// Tests of how a Disconnect or CoA request names a session and this gateway. newDynamic makes the server of such
// requests with a table of one session, which counts what is done to it (dynamic_test.go).

package radius

import (
	"net/netip"
	"testing"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"
	"layeh.com/radius/rfc3576"
	"layeh.com/radius/rfc6911"
)

// TestDynamicComparesAll: a request that names a session with another value of any attribute changes nothing.
func TestDynamicComparesAll(t *testing.T) {
	d, o := newDynamic(t)
	d.cfg.NASPortID, d.cfg.CalledStationID, o.s.Class = "lan0", "AA-BB", [][]byte{[]byte("gold"), []byte("7")}
	ask := func(fill func(builder)) *radius.Packet {
		request := packet(t, fill)
		found, cause := d.carryOut(request)
		p, err := radius.Parse(d.answer(request, dynamicServer.Addr(), found, cause), []byte(testSecret))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, tt := range map[string]struct {
		fill func(builder)
		same bool
	}{
		"another spelling of the user": {func(p builder) { p.text(rfc2865.UserName_Type, "ANN") }, true},
		"another user":                 {func(p builder) { p.text(rfc2865.UserName_Type, "anna") }, false},
		"all of the session": {func(p builder) {
			p.text(rfc2869.NASPortID_Type, "lan0")
			p.text(rfc2865.CalledStationID_Type, "AA-BB")
			p.number(rfc2865.NASPortType_Type, uint32(rfc2865.NASPortType_Value_Wireless80211))
			p.text(rfc2865.Class_Type, "gold")
			p.text(rfc2865.Class_Type, "7")
		}, true},
		"NAS-Port-Id":       {func(p builder) { p.text(rfc2869.NASPortID_Type, "lan1") }, false},
		"Called-Station-Id": {func(p builder) { p.text(rfc2865.CalledStationID_Type, "AA-BC") }, false},
		"NAS-Port-Type": {
			func(p builder) { p.number(rfc2865.NASPortType_Type, uint32(rfc2865.NASPortType_Value_Ethernet)) }, false},
		"Class":            {func(p builder) { p.text(rfc2865.Class_Type, "silver") }, false},
		"one Class of two": {func(p builder) { p.text(rfc2865.Class_Type, "7") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := o.kicked
			answer := ask(func(p builder) {
				p.text(rfc2866.AcctSessionID_Type, "5f3c")
				tt.fill(p)
			})
			cause, _ := numericAttr(answer, rfc3576.ErrorCause_Type)
			if (o.kicked > before) != tt.same ||
				!tt.same && rfc3576.ErrorCause(cause) != rfc3576.ErrorCause_Value_SessionContextNotFound {
				t.Errorf("%d ended, answered by %v", o.kicked-before, answer)
			}
		})
	}
}

// TestDynamicForAnotherGateway: requests for another gateway are refused, whether this one's address is configured or
// is any of the machine's, and whatever else the request has.
func TestDynamicForAnotherGateway(t *testing.T) {
	d, o := newDynamic(t)
	name := func(s string) func(builder) { return func(p builder) { p.text(rfc2865.NASIdentifier_Type, s) } }
	addr := func(s string) func(builder) {
		return func(p builder) { p.address(rfc2865.NASIPAddress_Type, netip.MustParseAddr(s)) }
	}
	short := func(p builder) { p.Add(rfc2865.NASIPAddress_Type, []byte{127, 0, 0}) }
	for _, configured := range []string{"", "192.0.2.7"} {
		ours := "127.0.0.1"
		if configured != "" {
			d.cfg.NASAddress, ours = netip.MustParseAddr(configured), configured
		}
		for _, tt := range []struct {
			ours bool
			of   []func(builder)
		}{
			{true, nil}, {true, []func(builder){addr(ours)}}, {true, []func(builder){name("here"), addr(ours)}},
			{false, []func(builder){addr("192.0.2.99")}}, {false, []func(builder){name("here"), addr("192.0.2.99")}},
			{false, []func(builder){name("there"), addr(ours)}},
			{false, []func(builder){name("Here")}}, {false, []func(builder){short}},
			{false, []func(builder){addr(ours), addr("192.0.2.99")}},
		} {
			before := o.kicked + o.changed
			for code, change := range map[radius.Code]func(builder){
				radius.CodeDisconnectRequest: func(builder) {},
				radius.CodeCoARequest:        func(p builder) { p.number(rfc2865.SessionTimeout_Type, 60) },
			} {
				p := builder{radius.New(code, []byte(testSecret))}
				p.text(rfc2866.AcctSessionID_Type, "5f3c")
				change(p)
				for _, f := range tt.of {
					f(p)
				}
				_, cause := d.carryOut(p.Packet)
				if tt.ours != (cause == 0) || !tt.ours && cause != rfc3576.ErrorCause_Value_NASIdentificationMismatch {
					t.Errorf("%v with the address %q configured is answered with error %d", p.Attributes, configured, cause)
				}
			}
			if done := o.kicked + o.changed - before; (done == 2) != tt.ours {
				t.Errorf("%d done", done)
			}
		}
	}
}

// TestDynamicByIPv6Address: a session is found by any of its global IPv6 addresses, several of which must all be its
// own, and together with IPv4. Others, and values that are no such address, find none.
func TestDynamicByIPv6Address(t *testing.T) {
	for _, tt := range []struct {
		of    []string
		found bool
	}{
		{[]string{"2001:db8:1::5"}, true}, {[]string{"fd00:1::5", "2001:db8:1::5"}, true},
		{[]string{"fd00:1::5", "10.1.0.9"}, true}, {[]string{"fd00:1::5", "10.1.0.8"}, false},
		{[]string{"2001:db8:1::6"}, false}, {[]string{"2001:db8:1::5", "2001:db8:1::6"}, false},
		{[]string{"fe80::5"}, false}, {[]string{"::ffff:10.1.0.9"}, false}, {[]string{"::"}, false},
	} {
		d, o := newDynamic(t)
		o.s.FurtherAddrs = testFurther
		_, cause := d.carryOut(packet(t, func(p builder) {
			for _, text := range tt.of {
				a := netip.MustParseAddr(text)
				if a.Is4() {
					p.address(rfc2865.FramedIPAddress_Type, a)
				} else {
					p.Add(rfc6911.FramedIPv6Address_Type, a.AsSlice())
				}
			}
		}))
		if (o.kicked == 1) != tt.found || !tt.found && cause != rfc3576.ErrorCause_Value_SessionContextNotFound {
			t.Errorf("%v: %d ended, Error-Cause %d", tt.of, o.kicked, cause)
		}
	}
	d, o := newDynamic(t)
	for _, short := range [][]byte{{}, {10, 1, 0, 9}, make([]byte, 17)} {
		d.carryOut(packet(t, func(p builder) { p.Add(rfc6911.FramedIPv6Address_Type, short) }))
	}
	if o.kicked > 0 {
		t.Error("a value of another length ends a session")
	}
}

// packet is a Disconnect-Request.
func packet(t *testing.T, fill func(builder)) *radius.Packet {
	t.Helper()
	p := builder{radius.New(radius.CodeDisconnectRequest, []byte(testSecret))}
	fill(p)
	return p.Packet
}

// TestDynamicInterim: 0 has the default interval, as at a login, and less than the least one the least.
func TestDynamicInterim(t *testing.T) {
	d, o := newDynamic(t)
	d.cfg.InterimDefault = 5 * time.Minute
	for i, tt := range []struct {
		every uint32
		want  time.Duration
	}{{900, 15 * time.Minute}, {0, 5 * time.Minute}, {1, time.Minute}} {
		d.receive(dynamicServer, d.request(t, radius.CodeCoARequest, byte(i), testSecret, func(p builder) {
			p.text(rfc2866.AcctSessionID_Type, "5f3c")
			p.number(rfc2869.AcctInterimInterval_Type, tt.every)
		}), time.Now())
		if o.changed != i+1 || o.s.Limits.Interim != tt.want {
			t.Errorf("%d s: %v, %d changes", tt.every, o.s.Limits.Interim, o.changed)
		}
	}
}

// DHCP messages with mistakes, for comparison with dnsmasq (TestAnswersAsDnsmasqDoes in clients_test.go). Options are
// written as bytes: code, length, value.

package dhcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// oddMessage is an unusual message, as real devices send it, and the answer that dnsmasq gives.
type oddMessage struct {
	options      []byte         // after the cookie
	file, sname  []byte         // contents of these fields
	edit         func(b []byte) // changes the encoded message at last; nil: not at all
	from         netip.AddrPort // source address; zero: 0.0.0.0:68
	uses         string         // ciaddr; empty: none
	size         int            // bytes of the whole message; 0: up to the end of the options
	answerPrefix string         // how our answer must begin where it differs from dnsmasq's; empty: it must be the same
}

// Options of messages.
var (
	isDiscover = []byte{53, 1, 1} // message type
	isRequest  = []byte{53, 1, 3}
	isInform   = []byte{53, 1, 8}
	asks       = []byte{55, 3, 1, 3, 6}                             // requests options 1 (mask), 3 (router) and 6 (DNS)
	inParts    = []byte{55, 1, 1, 55, 0, 55, 2, 3, 6}               // the same in three parts (RFC 3396)
	ofServer   = []byte{54, 4, 10, 1, 0, 1}                         // server identifier: the server that is tested
	ofOther    = []byte{54, 4, 192, 168, 1, 1}                      // that of another server
	byRelay    = slices.Concat([]byte{82, 6, 1, 4}, []byte("port")) // relay agent information
	end        = []byte{255}
	// whole is the answer to asks; dnsmasq 2.90 takes the first part of a list.
	whole = "OFFER to one, hardware 1 6, ciaddr 0.0.0.0 and an address: true 1: true 3: true 6: true"
)

// wants is the option by which a client asks for an address (50).
func wants(a string) []byte { return append([]byte{50, 4}, netip.MustParseAddr(a).AsSlice()...) }

// at is an edit that overwrites bytes from an offset on.
func at(offset int, with ...byte) func([]byte) {
	return func(b []byte) { copy(b[offset:], with) }
}

// oddMessages are DHCP messages with a part that is bad or missing, one of a device each.
var oddMessages = map[string]oddMessage{
	"no End":                 {options: slices.Concat(isDiscover, asks)},
	"no End, padded":         {options: slices.Concat(isDiscover, asks), size: 300},
	"no End, with relay":     {options: slices.Concat(isDiscover, asks, byRelay, []byte{0}), answerPrefix: "OFFER to one"},
	"cut in an option":       {options: slices.Concat(isDiscover, asks, []byte{12, 40, 'a', 'b'})},
	"cut after a code":       {options: slices.Concat(isDiscover, asks, []byte{12})},
	"cut before the type":    {options: slices.Concat([]byte{12, 40, 'a', 'b'}, isDiscover)},
	"cut in the type":        {options: []byte{53, 1}},
	"type empty, then right": {options: slices.Concat([]byte{53, 0}, isDiscover, asks, end)},
	"type of three bytes":    {options: slices.Concat([]byte{53, 3, 1, 9, 9}, asks, end)},
	"type twice":             {options: slices.Concat(isDiscover, isRequest, asks, end)},
	"type after End":         {options: slices.Concat(end, isDiscover)},
	"no type":                {options: slices.Concat(asks, end)},
	"no options":             {},
	"unknown type":           {options: slices.Concat([]byte{53, 1, 99}, asks, end)},
	"another cookie":         {options: slices.Concat(isDiscover, asks, end), edit: at(236, 1, 2, 3, 4)},
	"a reply":                {options: slices.Concat(isDiscover, asks, end), edit: at(0, 2)},
	"padded between":         {options: slices.Concat([]byte{0, 0}, isDiscover, []byte{0}, asks, []byte{0, 0}, end)},
	"something after End":    {options: slices.Concat(isDiscover, asks, end, []byte{1, 2, 3})},
	"wish empty":             {options: slices.Concat(isDiscover, []byte{50, 0}, asks, end)},
	"wish short":             {options: slices.Concat(isDiscover, []byte{50, 2, 10, 1}, asks, end)},
	"wish long": {
		options: slices.Concat(isDiscover, []byte{50, 8, 10, 1, 30, 1, 10, 1, 30, 2}, asks, end)},
	"wish twice":             {options: slices.Concat(isDiscover, wants("10.1.30.3"), wants("10.1.30.4"), asks, end)},
	"wish empty, then right": {options: slices.Concat(isDiscover, []byte{50, 0}, wants("10.1.30.5"), asks, end)},
	"wish zero":              {options: slices.Concat(isDiscover, wants("0.0.0.0"), asks, end)},
	"wish of all":            {options: slices.Concat(isDiscover, wants("255.255.255.255"), asks, end)},
	"identifier empty":       {options: slices.Concat(isDiscover, []byte{61, 0}, asks, end)},
	"identifier twice":       {options: slices.Concat(isDiscover, []byte{61, 2, 0, 7, 61, 2, 0, 8}, asks, end)},
	"identifier of 255": {
		options: slices.Concat(isDiscover, []byte{61, 255}, bytes.Repeat([]byte{7}, 255), asks, end)},
	"name empty":                 {options: slices.Concat(isDiscover, []byte{12, 0}, asks, end)},
	"name of control characters": {options: slices.Concat(isDiscover, []byte{12, 3, 0, 27, 10}, asks, end)},
	"list twice":                 {options: slices.Concat(isDiscover, asks, []byte{55, 1, 15}, end)},
	"list in parts":              {options: slices.Concat(isDiscover, inParts, end), answerPrefix: whole},
	"list in parts, overload": {
		options: slices.Concat([]byte{52, 1, 3}, isDiscover, []byte{55, 1, 15}, end),
		file:    []byte{55, 1, 3, 255}, sname: []byte{55, 1, 6, 255}, answerPrefix: whole,
	},
	"size empty":       {options: slices.Concat(isDiscover, []byte{57, 0}, asks, end)},
	"size of one byte": {options: slices.Concat(isDiscover, []byte{57, 1, 9}, asks, end)},
	"size zero":        {options: slices.Concat(isDiscover, []byte{57, 2, 0, 0}, asks, end)},
	"size twice":       {options: slices.Concat(isDiscover, []byte{57, 2, 5, 0, 57, 2, 5, 0}, asks, end)},
	"relay empty":      {options: slices.Concat(isDiscover, []byte{82, 0}, asks, end)},
	"relay and much else": {options: slices.Concat(isDiscover, []byte{55, 6, 15, 1, 3, 6, 28, 26}, []byte{82, 200},
		bytes.Repeat([]byte{7}, 200), end), answerPrefix: "OFFER to one"},
	"overload with the type": {
		options: slices.Concat([]byte{52, 1, 1}, asks, end), file: slices.Concat(isDiscover, end)},
	"overload without End": {options: slices.Concat([]byte{52, 1, 1}, asks), file: isDiscover},
	"overload of sname": {
		options: slices.Concat([]byte{52, 1, 2}, asks, end), sname: slices.Concat(isDiscover, end)},
	"overload of both": {
		options: slices.Concat([]byte{52, 1, 3}, isDiscover, end), file: asks, sname: slices.Concat(byRelay, end)},
	"overload full": {options: slices.Concat([]byte{52, 1, 1}, isDiscover, end), file: append([]byte{60, 126},
		bytes.Repeat([]byte{'x'}, 126)...)},
	"overload cut": {
		options: slices.Concat([]byte{52, 1, 1}, isDiscover, asks, end), file: []byte{60, 200, 1}},
	"overload empty": {
		options: slices.Concat([]byte{52, 0}, isDiscover, asks, end), file: slices.Concat(isRequest, end)},
	"overload zero": {
		options: slices.Concat([]byte{52, 1, 0}, isDiscover, asks, end), file: slices.Concat(isRequest, end)},
	"no overload, but a file":   {options: slices.Concat(isDiscover, asks, end), file: []byte{53, 1, 3, 50, 200}},
	"with an address too early": {options: slices.Concat(isDiscover, asks, end), uses: "192.168.1.77"},
	"hardware of 16 bytes": {
		options: slices.Concat(isDiscover, asks, end), edit: at(2, 16), answerPrefix: "OFFER to one, hardware 1 16"},
	"hardware of no bytes":     {options: slices.Concat(isDiscover, asks, end), edit: at(2, 0)},
	"hardware of 20 bytes":     {options: slices.Concat(isDiscover, asks, end), edit: at(2, 20)},
	"hardware of another type": {options: slices.Concat(isDiscover, asks, end), edit: at(1, 6)},
	"all flags":                {options: slices.Concat(isDiscover, asks, end), edit: at(atFlags, 0xff, 0xff)},
	"from another network": {
		options: slices.Concat(isDiscover, asks, end), from: netip.MustParseAddrPort("192.168.7.9:68")},
	"from another port": {
		options: slices.Concat(isDiscover, asks, end), from: netip.MustParseAddrPort("0.0.0.0:1068")},

	"request of zero":           {options: slices.Concat(isRequest, wants("0.0.0.0"), end)},
	"request of nothing":        {options: slices.Concat(isRequest, end)},
	"request of nothing, here":  {options: slices.Concat(isRequest, ofServer, end)},
	"request of an empty wish":  {options: slices.Concat(isRequest, []byte{50, 0}, end)},
	"request without End":       {options: slices.Concat(isRequest, wants("10.1.30.9"))},
	"request, wish and address": {options: slices.Concat(isRequest, wants("10.1.30.10"), end), uses: "10.1.30.10"},
	"rebinding elsewhere": {
		options: slices.Concat(isRequest, end), uses: "192.168.1.77", from: netip.MustParseAddrPort("192.168.1.77:68")},
	"rebinding at the other": {
		options: slices.Concat(isRequest, ofOther, end), uses: "10.1.30.11", from: netip.MustParseAddrPort("10.1.30.11:68")},
	"rebinding, from a port": {
		options: slices.Concat(isRequest, end), uses: "10.1.30.12", from: netip.MustParseAddrPort("10.1.30.12:1068")},
	"rebinding, from nowhere": {options: slices.Concat(isRequest, end), uses: "10.1.30.13"},
	"rebinding, from another's": {
		options: slices.Concat(isRequest, end), uses: "10.1.30.14", from: netip.MustParseAddrPort("10.1.30.99:68")},
	"inform": {
		options: slices.Concat(isInform, asks, end), uses: "10.1.30.15", from: netip.MustParseAddrPort("10.1.30.15:68")},
	"inform without an address": {options: slices.Concat(isInform, asks, end), from: netip.MustParseAddrPort(
		"10.1.30.16:68"), answerPrefix: "ACK to one, hardware 1 6, ciaddr 10.1.30.16 at 10.1.30.16:68"},
	"inform from nowhere": {options: slices.Concat(isInform, asks, end),
		answerPrefix: "ACK to all, hardware 1 6, ciaddr 0.0.0.0 at 255.255.255.255:68"},
	"inform from another port": {
		options: slices.Concat(isInform, asks, end), uses: "10.1.30.17", from: netip.MustParseAddrPort("10.1.30.17:1068")},
	"inform of another network": {options: slices.Concat(isInform, asks, end), uses: "192.168.1.77",
		from:         netip.MustParseAddrPort("192.168.1.77:68"),
		answerPrefix: "ACK to one, hardware 1 6, ciaddr 192.168.1.77 at 192.168.1.77:68"},
	"inform without End": {
		options: slices.Concat(isInform, asks), uses: "10.1.30.18", from: netip.MustParseAddrPort("10.1.30.18:68")},
}

// frame is the message in an Ethernet frame to all.
func (o oddMessage) frame(mac MAC, xid uint32) []byte {
	b := make([]byte, atOptions)
	b[0], b[1], b[2] = 1, 1, 6
	binary.BigEndian.PutUint32(b[atXID:], xid)
	copy(b[atHardware:], mac[:])
	copy(b[atServer:], o.sname)
	copy(b[atFile:], o.file)
	copy(b[atCookie:], cookie)
	if o.uses != "" {
		copy(b[atCiaddr:], netip.MustParseAddr(o.uses).AsSlice())
	}
	if o.edit != nil {
		o.edit(b)
	}
	b = append(b, o.options...)
	b = append(b, make([]byte, max(0, o.size-len(b)))...)
	if !o.from.IsValid() {
		o.from = netip.MustParseAddrPort("0.0.0.0:68")
	}
	return datagram{mac, broadcastMAC, o.from, netip.AddrPortFrom(limitedBroadcast, serverPort), b}.frame()
}

// tellOdd sends the odd messages and returns what is answered to each.
func (w *wire) tellOdd(t *testing.T) map[string]string {
	notes, names := map[string]string{}, map[uint32]string{}
	for i, name := range slices.Sorted(maps.Keys(oddMessages)) {
		o, mac, xid := oddMessages[name], macOf(0x10000+i), uint32(0xadd00000+i)
		names[xid], notes[name] = name, "nothing"
		if a, err := netip.ParseAddr(o.uses); err == nil && subnet.Contains(a) {
			// dnsmasq's answers go through the kernel, which would ask for it
			run(t, "ip", "neigh", "replace", o.uses, "lladdr", net.HardwareAddr(mac[:]).String(), "dev", gateway)
		}
		w.sendFrame(o.frame(mac, xid))
	}
	listen := func(mac MAC, m *dhcpv4.DHCPv4) net.IP {
		w.send(station{mac: mac}, m)
		for {
			r, d := w.nextFor(t)
			if name, ok := names[binary.BigEndian.Uint32(r.TransactionID[:])]; ok {
				notes[name] = describe(r, d)
			}
			if r.TransactionID == m.TransactionID {
				return r.YourIPAddr
			}
		}
	}
	// A lease is written to disk and answered later: two further ones come after it.
	for _, mac := range []MAC{macOf(0xfffff1), macOf(0xfffff2)} {
		offered := listen(mac, message(t, dhcpv4.MessageTypeDiscover, mac))
		listen(mac, message(t, dhcpv4.MessageTypeRequest, mac, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offered))))
	}
	return notes
}

func describe(r *dhcpv4.DHCPv4, d datagram) string {
	to := "one"
	if d.dstMAC == broadcastMAC {
		to = "all"
	}
	line := fmt.Sprintf(
		"%s to %s, hardware %d %d, ciaddr %s", r.MessageType(), to, r.HWType, len(r.ClientHWAddr), r.ClientIPAddr)
	if r.MessageType() == dhcpv4.MessageTypeOffer { // of addresses in turn: it depends on the messages before
		line += fmt.Sprintf(" and an address: %v", !r.YourIPAddr.IsUnspecified())
	} else {
		line += fmt.Sprintf(" at %s and %s", d.dst, r.YourIPAddr)
	}
	for _, code := range []uint8{1, 3, 6, 51, 82} {
		line += fmt.Sprintf(" %d: %v", code, r.Options.Has(dhcpv4.GenericOptionCode(code)))
	}
	return line
}

package session

import (
	"fmt"
	"strconv"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// MaxAttachment is the longest Circuit or Remote, bytes: what fits into a vendor's attribute of RADIUS beside its
// headers (RFC 2865, 5.26).
const MaxAttachment = 247

// Attachment is where a client is attached: what the relay or switch says that its DHCP messages came through (RFC
// 3046), or the access node of its line. The zero value is not known.
type Attachment struct {
	Circuit, Remote string // Agent Circuit ID and Agent Remote ID: any bytes, MaxAttachment at most
	// Via is the router that the client is behind, whose MAC address its packets have; zero: they have its own.
	Via   datapath.MAC
	VLANs VLANs // in which it is, of the gateway's interface
}

// VLANs are the VLAN that a client is in, or its pair of them (QinQ, IEEE 802.1ad). The zero value is none.
type VLANs struct {
	Outer, Inner uint16 // Inner 0: there is one
}

// String is "7" or "100:20", outer and inner; empty for none.
func (v VLANs) String() string {
	switch {
	case v == VLANs{}:
		return ""
	case v.Inner == 0:
		return strconv.Itoa(int(v.Outer))
	}
	return fmt.Sprintf("%d:%d", v.Outer, v.Inner)
}

// Number has the outer VLAN in 12 bits and the inner one in the 12 below; of a single VLAN it is that.
func (v VLANs) Number() uint32 {
	if v.Inner == 0 {
		return uint32(v.Outer)
	}
	return uint32(v.Outer)<<12 | uint32(v.Inner)
}

// attach sets where the client of an entry is attached.
func (e *entry) attach(a Attachment) {
	e.change(func(r *extraFields) {
		if r.attachment = nil; a != (Attachment{}) {
			r.attachment = &a
		}
	})
}

// attachment returns where the client of an entry is attached.
func (e *entry) attachment() Attachment {
	if a := e.extraOrZero().attachment; a != nil {
		return *a
	}
	return Attachment{}
}

// linkMAC is the MAC address that the client's packets have on the LAN.
func (e *entry) linkMAC() datapath.MAC {
	if via := e.attachment().Via; via != (datapath.MAC{}) {
		return via
	}
	return e.key.MAC
}

// appendAttachment appends the texts of a tagAttachment.
func appendAttachment(b []byte, a Attachment) []byte {
	b = appendText(appendText(b, a.Circuit), a.Remote)
	return appendNumbers(append(b, a.Via[:]...), uint64(a.VLANs.Outer), uint64(a.VLANs.Inner))
}

// attachment decodes what appendAttachment appended.
func (d *decoder) attachment() (a Attachment) {
	a.Circuit, a.Remote = string(d.text()), string(d.text())
	copy(a.Via[:], d.bytes(uint64(len(a.Via))))
	a.VLANs = VLANs{uint16(d.number()), uint16(d.number())}
	return a
}

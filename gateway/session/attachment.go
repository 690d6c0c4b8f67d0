package session

import "github.com/gateweigh/gateweigh/gateway/datapath"

// MaxAttachment is the longest Circuit or Remote, bytes: what fits into a vendor's attribute of RADIUS beside its
// headers (RFC 2865, 5.26).
const MaxAttachment = 247

// Attachment is where a client is attached: what the relay or switch says that its DHCP messages came through (RFC
// 3046), or the access node of its line. The zero value is not known.
type Attachment struct {
	Circuit, Remote string // Agent Circuit ID and Agent Remote ID: any bytes, MaxAttachment at most
	// Via is the router that the client is behind, whose MAC address its packets have; zero: they have its own.
	Via datapath.MAC
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
	return append(b, a.Via[:]...)
}

// attachment decodes what appendAttachment appended.
func (d *decoder) attachment() (a Attachment) {
	a.Circuit, a.Remote = string(d.text()), string(d.text())
	copy(a.Via[:], d.bytes(uint64(len(a.Via))))
	return a
}

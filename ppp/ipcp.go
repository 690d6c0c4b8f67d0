package ppp

import (
	"encoding/binary"
	"net/netip"
)

// Options of IPCP (RFC 1332, 3; RFC 1877, 1) and IPV6CP (RFC 5072, 4).
const (
	optAddress     = 3
	optDNS         = 129
	optDNS2        = 131
	optInterfaceID = 1
)

// ipcp agrees on IPv4 addresses.
type ipcp struct {
	*Link
	addr netip.Addr    // ours: the server's own, or what the client wants next
	dns  [2]netip.Addr // client: what it wants next; invalid: it does not ask
	peer netip.Addr    // the peer's, as acknowledged
}

func (i *ipcp) request() (options []Option) {
	options = append(options, Option{optAddress, i.addr.AsSlice()})
	for k, t := range []uint8{optDNS, optDNS2} {
		if i.dns[k].IsValid() && !i.cfg.Server {
			options = append(options, Option{t, i.dns[k].AsSlice()})
		}
	}
	return options
}

func (i *ipcp) judge(options []Option, final bool) (Code, []Option) {
	var naks, rejects []Option
	var peer netip.Addr
	for _, o := range options {
		asked, ok := netip.AddrFromSlice(o.Data)
		ok = ok && asked.Is4()
		switch {
		case o.Type == optAddress && ok && !i.cfg.Server:
			peer = asked // a client takes the server's address as it is
		case o.Type == optAddress && ok:
			peer = asked
			if asked != i.grant.Addr {
				naks = append(naks, Option{optAddress, i.grant.Addr.AsSlice()})
			}
		case (o.Type == optDNS || o.Type == optDNS2) && ok && i.cfg.Server:
			want := i.grant.DNS[(o.Type-optDNS)/2]
			switch {
			case !want.IsValid():
				rejects = append(rejects, o)
			case want != asked:
				naks = append(naks, Option{o.Type, want.AsSlice()})
			}
		default:
			rejects = append(rejects, o)
		}
	}
	if i.cfg.Server && !peer.IsValid() && len(rejects) == 0 { // it must have the address it was given
		naks = append(naks, Option{optAddress, i.grant.Addr.AsSlice()})
		final = false
	}
	return i.verdict(naks, rejects, options, final, func() { i.peer = peer })
}

func (i *ipcp) refused(code Code, options []Option) bool {
	for _, o := range options {
		given, ok := netip.AddrFromSlice(o.Data)
		ok = ok && given.Is4()
		switch {
		case o.Type == optAddress && (code == ConfigureReject || i.cfg.Server || !ok):
			return false // the server's address stays, and a client needs one
		case o.Type == optAddress:
			i.addr = given
		case o.Type == optDNS && ok && code == ConfigureNak:
			i.dns[0] = given
		case o.Type == optDNS:
			i.dns[0] = netip.Addr{}
		case o.Type == optDNS2 && ok && code == ConfigureNak:
			i.dns[1] = given
		case o.Type == optDNS2:
			i.dns[1] = netip.Addr{}
		}
	}
	return true
}

func (i *ipcp) changed(to layerState) {
	switch to {
	case layerUp:
		i.networkUp()
	case layerFinished:
		i.Close(i.now, ErrNoAddress) // a link without IPv4 is of no use
	}
}

func (i *ipcp) extra(Packet) bool { return false }

// ipv6cp agrees on interface identifiers, from which both ends make link-local addresses.
type ipv6cp struct {
	*Link
	id, peer [8]byte
	naks     int // of this end's identifier, which it keeps
}

func (v *ipv6cp) request() []Option { return []Option{{optInterfaceID, v.id[:]}} }

func (v *ipv6cp) judge(options []Option, final bool) (Code, []Option) {
	var naks, rejects []Option
	var peer [8]byte
	for _, o := range options {
		if o.Type != optInterfaceID || len(o.Data) != len(peer) {
			rejects = append(rejects, o)
			continue
		}
		peer = [8]byte(o.Data)
		switch given := v.grant.InterfaceID; {
		case given != [8]byte{} && given != v.id && peer != given:
			naks = append(naks, Option{optInterfaceID, given[:]})
		case peer == [8]byte{} || peer == v.id:
			naks = append(naks, Option{optInterfaceID, differing(v.id)})
		}
	}
	return v.verdict(naks, rejects, options, final, func() { v.peer = peer })
}

func (v *ipv6cp) refused(code Code, options []Option) bool {
	for _, o := range options {
		if o.Type != optInterfaceID || len(o.Data) != len(v.id) || code == ConfigureReject {
			return false
		}
		if v.cfg.InterfaceID != ([8]byte{}) { // the peer that has the same one takes another
			v.naks++
			return v.naks <= maxFailure
		}
		v.id = [8]byte(o.Data)
		if v.id == ([8]byte{}) || v.id == v.peer {
			v.id = [8]byte(differing(v.peer))
		}
	}
	return true
}

func (v *ipv6cp) changed(to layerState) {
	if to == layerUp {
		v.networkUp()
	}
}

func (v *ipv6cp) extra(Packet) bool { return false }

// differing is an interface identifier that differs from id. Its universal bit is clear: it is
// of local significance only (RFC 5072, 4.1).
func differing(id [8]byte) []byte {
	for {
		other := binary.BigEndian.AppendUint64(nil, random64()&^(2<<56))
		if [8]byte(other) != id && [8]byte(other) != ([8]byte{}) {
			return other
		}
	}
}

package client

import "slices"

// Family says by which IP protocols clients send. The zero value is IPv4.
type Family string

// The families, as experiments and records have them.
const (
	IPv4      Family = "4"
	IPv6      Family = "6"
	DualStack Family = "both" // each client has addresses of both; the clients' traffic is divided by Sends6
)

// Families lists all families.
var Families = []Family{IPv4, IPv6, DualStack}

// ExtraHeader is the number of bytes by which an IPv6 header is longer than one of IPv4.
const ExtraHeader = 20

// Has4 reports whether clients have IPv4 addresses.
func (f Family) Has4() bool { return f != IPv6 }

// Has6 reports whether clients have IPv6 addresses.
func (f Family) Has6() bool { return f == IPv6 || f == DualStack }

// Sends6 reports whether the client of a number sends its traffic by IPv6. With DualStack these are the odd numbers, so
// there are as many streams as with one family, and half of them, or one more, are IPv6.
func (f Family) Sends6(num int) bool { return f == IPv6 || f == DualStack && num%2 == 1 }

// Sending6 is how many of count clients, the numbers from first on, send by IPv6.
func (f Family) Sending6(first, count int) int {
	switch f {
	case IPv6:
		return count
	case DualStack:
		return (count + first%2) / 2
	}
	return 0
}

// PacketMTU is the length of an IPv4 packet that carries as much as an IPv6 packet of mtu bytes, where clients have
// IPv6. All streams of a load have segments of one length: with DualStack those that fit into an IPv6 packet.
func (f Family) PacketMTU(mtu int) int {
	if f.Has6() {
		return mtu - ExtraHeader
	}
	return mtu
}

// In reports whether clients of a family can do with something that supports the families of a list. DualStack needs
// both IPv4 and IPv6 there.
func (f Family) In(list []Family) bool {
	return (!f.Has4() || slices.Contains(list, IPv4)) && (!f.Has6() || slices.Contains(list, IPv6))
}

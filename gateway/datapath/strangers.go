package datapath

import "github.com/gateweigh/gateweigh/gateway/budget"

// Work is a kind of work that an unauthenticated client can cause. Data paths bound each kind, for each address and for
// each MAC address, which may have several addresses one after the other. They drop packets beyond that ("throttled").
type Work int

// The kinds of work, each with what it is for a client. docs/reference/gatewayd-budgets.md is made of them.
const (
	Datagram    Work = iota // DNS datagrams and pings to the gateway
	Connection              // first packets of TCP connections to the gateway's own ports
	Segment                 // further segments of TCP connections to the gateway
	Capture                 // TCP connections to port 80 of other addresses, which the portal answers
	GardenFlow              // connections to the walled garden, of any protocol
	LongTracked             // of these, with a protocol other than UDP and ICMP: the kernel may remember them for days
	Refusal                 // refusals (RST, ICMP)
	Question                // ARP requests, logged in or not
	NumWorks                // how many kinds there are
)

// Budgets are what each address, and each MAC address, may have done. They are far above what people's devices do
// before login, and far below what would fill the kernel's table of connections, of 262,144 entries by default: a
// device has there at most what these allow within an entry's life, which is up to 300 seconds, and 5 days for
// LongTracked.
var Budgets = [NumWorks]budget.Rate{
	Datagram:    {AtOnce: 500, EachSecond: 50},
	Connection:  {AtOnce: 200, EachSecond: 20},
	Segment:     {AtOnce: 10_000, EachSecond: 1000},
	Capture:     {AtOnce: 100, EachSecond: 10},
	GardenFlow:  {AtOnce: 240, EachSecond: 4},
	LongTracked: {AtOnce: 2000, EachSecond: 2000. / (24 * 60 * 60)},
	Refusal:     {AtOnce: 200, EachSecond: 50},
	Question:    {AtOnce: 500, EachSecond: 50},
}

// Senders is how often a MAC address may send requests to DHCP servers on this machine, with a session or without, ask
// by ARP whether an address is free, and send from addresses that nobody is known to have, where other programs lease
// them. MAC addresses without a lease share a bound (budget.Senders) until they are remembered.
var Senders = budget.Rate{AtOnce: 16, EachSecond: 2}

// MostSenders and MostStrangers bound the MAC addresses that data paths remember for Senders and for Budgets.
const (
	MostSenders   = 32_768
	MostStrangers = 16_384
)

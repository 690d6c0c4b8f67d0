// Package ppp is one end of PPP links: the negotiation of a link (RFC 1661), authentication by
// PAP (RFC 1334), CHAP (RFC 1994) and MS-CHAPv2 (RFC 2759), and the addresses of IPv4 (RFC 1332,
// DNS servers by RFC 1877) and IPv6 (RFC 5072). Package ppp/pppoe has the frames of PPP over
// Ethernet.
//
//	         LCP open                 accepted                IPCP open
//	Open ──────────────▶ authenticate ──────────▶ network ──────────────▶ Handler.Opened
//	  any time: Close, Terminate-Request, rejected, no answer ──────────▶ Handler.Closed
//
// Both ends are there: the server asks the other end to authenticate and gives it its address;
// the client logs in. A Link does no I/O, has no goroutine and reads no clock: its owner gives it
// frames and times, so that ten thousand links need no more than a loop.
//
// The link compresses no header, which PPPoE forbids or advises against (RFC 2516, 7), and has
// no CCP or ECP.
package ppp

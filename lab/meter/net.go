package meter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Link holds one interface's counters from /proc/net/dev, as study 1's sampler
// reads them (4.2.3). Bytes are frames without preamble and checksum.
type Link struct {
	RxBytes   int64 `json:"rx_bytes"`
	RxPackets int64 `json:"rx_packets"`
	RxDropped int64 `json:"rx_dropped"` // includes errors and overruns
	TxBytes   int64 `json:"tx_bytes"`
	TxPackets int64 `json:"tx_packets"`
	TxDropped int64 `json:"tx_dropped"` // includes errors and overruns
}

// Sub returns what was counted between two readings.
func (l Link) Sub(m Link) Link {
	return Link{l.RxBytes - m.RxBytes, l.RxPackets - m.RxPackets, l.RxDropped - m.RxDropped,
		l.TxBytes - m.TxBytes, l.TxPackets - m.TxPackets, l.TxDropped - m.TxDropped}
}

// ethernetHeader is the number of bytes of a frame that a polled veth does not count. Its receiving end counts for both
// ends, and gets frames whose Ethernet header was taken off (drivers/net/veth.c, veth_forward_skb).
const ethernetHeader = 14

// withHeaders returns the counters of a polled veth with the Ethernet header of each frame added.
func (l Link) withHeaders() Link {
	l.RxBytes += ethernetHeader * l.RxPackets
	l.TxBytes += ethernetHeader * l.TxPackets
	return l
}

// parseNetDev reads the text of /proc/net/dev.
func parseNetDev(text string) (map[string]Link, error) {
	links := map[string]Link{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue // the two heading lines
		}
		name = strings.TrimSpace(name)
		f := strings.Fields(rest)
		if len(f) < 16 {
			return nil, fmt.Errorf("/proc/net/dev: %s: want 16 counters, have %d", name, len(f))
		}
		v, err := numbers("/proc/net/dev: "+name, f[:13])
		if err != nil {
			return nil, err
		}
		links[name] = Link{v[0], v[1], v[2] + v[3] + v[4], v[8], v[9], v[10] + v[11] + v[12]}
	}
	return links, nil
}

// Listening returns the TCP ports on which programs listen, in any order. text is that of /proc/net/tcp
// (Documentation/networking/proc_net_tcp).
func Listening(text string) (ports []uint16, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" { // TCP_LISTEN; the heading says "st"
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("/proc/net/tcp: local address %q: %w", f[1], err)
		}
		ports = append(ports, uint16(n))
	}
	return ports, nil
}

// SNMP holds those counters of /proc/net/snmp and /proc/net/snmp6 that the lab uses. They are of one namespace, or the
// sum of several. All count IPv4 and IPv6 together.
type SNMP struct {
	IPInReceives  int64 `json:"ip_in"`       // buffers the IP layer received, after aggregation
	IPOutRequests int64 `json:"ip_out"`      // buffers the IP layer sent, before segmentation
	TCPOutSegs    int64 `json:"tcp_out"`     // segments sent, without those sent again
	TCPRetrans    int64 `json:"tcp_retrans"` // segments sent again
	UDPOut        int64 `json:"udp_out"`     // datagrams sent

	FragCreates int64 `json:"frag_creates,omitzero"` // fragments made
	ReasmReqds  int64 `json:"reasm_reqds,omitzero"`  // fragments received
	ReasmFails  int64 `json:"reasm_fails,omitzero"`  // packets given up because a fragment was missing
	FragFails   int64 `json:"frag_fails,omitzero"`   // packets given up because they were too long and not to be cut
}

// Add returns the sum of two namespaces' counters.
func (s SNMP) Add(t SNMP) SNMP {
	return SNMP{s.IPInReceives + t.IPInReceives, s.IPOutRequests + t.IPOutRequests,
		s.TCPOutSegs + t.TCPOutSegs, s.TCPRetrans + t.TCPRetrans, s.UDPOut + t.UDPOut,
		s.FragCreates + t.FragCreates, s.ReasmReqds + t.ReasmReqds, s.ReasmFails + t.ReasmFails, s.FragFails + t.FragFails}
}

// Sub returns what was counted between two readings.
func (s SNMP) Sub(t SNMP) SNMP {
	return s.Add(SNMP{-t.IPInReceives, -t.IPOutRequests, -t.TCPOutSegs, -t.TCPRetrans, -t.UDPOut, -t.FragCreates,
		-t.ReasmReqds, -t.ReasmFails, -t.FragFails})
}

// parseSNMP reads the text of /proc/net/snmp: pairs of lines, names above values.
func parseSNMP(text string) (SNMP, error) {
	values := map[string]int64{}
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if names == nil || names[0] != f[0] || len(names) != len(f) {
			names = f
			continue
		}
		v, err := numbers("/proc/net/snmp: "+f[0], f[1:])
		if err != nil {
			return SNMP{}, err
		}
		for i, n := range v {
			values[f[0]+names[i+1]] = n
		}
		names = nil
	}
	return SNMP{values["Ip:InReceives"], values["Ip:OutRequests"], values["Tcp:OutSegs"],
		values["Tcp:RetransSegs"], values["Udp:OutDatagrams"],
		values["Ip:FragCreates"], values["Ip:ReasmReqds"], values["Ip:ReasmFails"], values["Ip:FragFails"]}, nil
}

// parseSNMP6 reads the text of /proc/net/snmp6: lines of a name and a value.
func parseSNMP6(text string) (SNMP, error) {
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 2 {
			return SNMP{}, fmt.Errorf("/proc/net/snmp6: %q: want a name and a value", strings.TrimSpace(line))
		}
		v, err := numbers("/proc/net/snmp6: "+f[0], f[1:])
		if err != nil {
			return SNMP{}, err
		}
		values[f[0]] = v[0]
	}
	return SNMP{IPInReceives: values["Ip6InReceives"], IPOutRequests: values["Ip6OutRequests"],
		UDPOut: values["Udp6OutDatagrams"], FragCreates: values["Ip6FragCreates"], ReasmReqds: values["Ip6ReasmReqds"],
		ReasmFails: values["Ip6ReasmFails"], FragFails: values["Ip6FragFails"]}, nil
}

// SNMPFile holds the open /proc/net/snmp of one network namespace, and /proc/net/snmp6 (f6) if the namespace has IPv6
// addresses. It reads the counters of the namespace in which it was opened, whichever thread calls Read.
type SNMPFile struct{ f, f6 *os.File }

// OpenSNMP opens the counters of the calling thread's network namespace; the
// caller keeps the thread locked.
func OpenSNMP() (*SNMPFile, error) {
	s := &SNMPFile{}
	var err error
	if s.f, err = os.Open("/proc/thread-self/net/snmp"); err != nil {
		return s, err
	}
	if addrs, err := os.ReadFile("/proc/thread-self/net/if_inet6"); err == nil && len(addrs) > 0 {
		s.f6, err = os.Open("/proc/thread-self/net/snmp6")
		return s, err
	}
	return s, nil
}

// Read returns the counters now.
func (s *SNMPFile) Read() (SNMP, error) {
	sum, err := readCounters(s.f, parseSNMP)
	if err != nil || s.f6 == nil {
		return sum, err
	}
	v6, err := readCounters(s.f6, parseSNMP6)
	return sum.Add(v6), err
}

// readCounters reads an open file of counters from its beginning, and parses its text.
func readCounters(f *os.File, parse func(text string) (SNMP, error)) (SNMP, error) {
	var text [16 << 10]byte // far more than the kernel writes
	n, err := f.ReadAt(text[:], 0)
	if err != io.EOF {
		return SNMP{}, fmt.Errorf("%s: %d bytes: %w", f.Name(), n, err)
	}
	return parse(string(text[:n]))
}

// Close closes the files.
func (s *SNMPFile) Close() error {
	err := s.f.Close()
	if s.f6 != nil {
		err = errors.Join(err, s.f6.Close())
	}
	return err
}

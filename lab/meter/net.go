package meter

import (
	"bufio"
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
	RxDropped int64 `json:"rx_dropped"` // with errors and overruns
	TxBytes   int64 `json:"tx_bytes"`
	TxPackets int64 `json:"tx_packets"`
	TxDropped int64 `json:"tx_dropped"` // with errors and overruns
}

// Sub returns what was counted between two readings.
func (l Link) Sub(m Link) Link {
	return Link{l.RxBytes - m.RxBytes, l.RxPackets - m.RxPackets, l.RxDropped - m.RxDropped,
		l.TxBytes - m.TxBytes, l.TxPackets - m.TxPackets, l.TxDropped - m.TxDropped}
}

// ParseNetDev reads /proc/net/dev.
func ParseNetDev(r io.Reader) (map[string]Link, error) {
	links := map[string]Link{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		name, rest, ok := strings.Cut(sc.Text(), ":")
		if !ok {
			continue // the two heading lines
		}
		f := strings.Fields(rest)
		if len(f) < 16 {
			return nil, fmt.Errorf("/proc/net/dev: %s: want 16 counters, have %d", strings.TrimSpace(name), len(f))
		}
		var v [16]int64
		for i := range v {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("/proc/net/dev: %s: %w", strings.TrimSpace(name), err)
			}
			v[i] = n
		}
		links[strings.TrimSpace(name)] = Link{
			RxBytes: v[0], RxPackets: v[1], RxDropped: v[2] + v[3] + v[4],
			TxBytes: v[8], TxPackets: v[9], TxDropped: v[10] + v[11] + v[12]}
	}
	return links, sc.Err()
}

// Listening reads the TCP ports that take connections from /proc/net/tcp
// (Documentation/networking/proc_net_tcp), in any order.
func Listening(r io.Reader) (ports []uint16, err error) {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
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
	return ports, sc.Err()
}

// SNMP holds the counters of /proc/net/snmp the lab uses, one namespace's or
// the sum of several.
type SNMP struct {
	IPInReceives  int64 `json:"ip_in"`       // buffers the IP layer received, after aggregation
	IPOutRequests int64 `json:"ip_out"`      // buffers the IP layer sent, before segmentation
	TCPOutSegs    int64 `json:"tcp_out"`     // segments sent
	TCPRetrans    int64 `json:"tcp_retrans"` // segments sent again
	UDPOut        int64 `json:"udp_out"`     // datagrams sent
}

// Add returns the sum of two namespaces' counters.
func (s SNMP) Add(t SNMP) SNMP {
	return SNMP{s.IPInReceives + t.IPInReceives, s.IPOutRequests + t.IPOutRequests,
		s.TCPOutSegs + t.TCPOutSegs, s.TCPRetrans + t.TCPRetrans, s.UDPOut + t.UDPOut}
}

// Sub returns what was counted between two readings.
func (s SNMP) Sub(t SNMP) SNMP {
	return s.Add(SNMP{-t.IPInReceives, -t.IPOutRequests, -t.TCPOutSegs, -t.TCPRetrans, -t.UDPOut})
}

// ParseSNMP reads /proc/net/snmp: pairs of lines, names above values.
func ParseSNMP(r io.Reader) (SNMP, error) {
	values := map[string]int64{}
	var names []string
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) == 0 {
			continue
		}
		if names == nil || names[0] != f[0] || len(names) != len(f) {
			names = f
			continue
		}
		for i := 1; i < len(f); i++ {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return SNMP{}, fmt.Errorf("/proc/net/snmp: %s%s: %w", f[0], names[i], err)
			}
			values[f[0]+names[i]] = n
		}
		names = nil
	}
	return SNMP{
		IPInReceives:  values["Ip:InReceives"],
		IPOutRequests: values["Ip:OutRequests"],
		TCPOutSegs:    values["Tcp:OutSegs"],
		TCPRetrans:    values["Tcp:RetransSegs"],
		UDPOut:        values["Udp:OutDatagrams"],
	}, sc.Err()
}

// SNMPFile is the open /proc/net/snmp of one network namespace. It stays with
// the namespace in which it was opened, from whichever thread it is read.
type SNMPFile struct{ f *os.File }

// OpenSNMP opens the counters of the calling thread's network namespace; the
// caller keeps the thread locked.
func OpenSNMP() (*SNMPFile, error) {
	f, err := os.Open("/proc/thread-self/net/snmp")
	return &SNMPFile{f}, err
}

// Read returns the counters now.
func (s *SNMPFile) Read() (SNMP, error) {
	if _, err := s.f.Seek(0, io.SeekStart); err != nil {
		return SNMP{}, err
	}
	return ParseSNMP(s.f)
}

// Close closes the file.
func (s *SNMPFile) Close() error { return s.f.Close() }

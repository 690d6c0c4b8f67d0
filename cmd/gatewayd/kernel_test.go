// Helper of tests that look whether the daemon leaves the kernel as it was.

package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// kernel lists everything in the router's kernel that a gateway could have changed: links, queues, filters, programs,
// rules, routes, firewall and settings.
func (w *world) kernel() string {
	w.t.Helper()
	text := w.sh(`r="nsenter --net=/run/netns/$ID-router"
$r ip -br link; $r tc qdisc; for d in lan0 wan0; do $r tc filter show dev $d ingress; $r tc filter show dev $d egress; done
$r ip rule; $r ip -6 rule; $r ip route show table all; $r nft list ruleset; ls /sys/fs/bpf | grep "^$ID" || :
$r sysctl -a 2>/dev/null | grep '^net\.' | grep -v 'conntrack_\(count\|max\|buckets\)\|nf_log\|random\|tcp_mem\|udp_mem'`) // what changes by itself, and what is the machine's, not a namespace's
	w.inHost("router", func() error {
		var attached []string
		for _, name := range []string{"lan0", "wan0"} {
			dev, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			if !netnstest.HasTCX() {
				break // tc has listed the filters
			}
			for _, attachType := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				programs, err := link.QueryPrograms(link.QueryOptions{Target: dev.Index, Attach: attachType})
				if err != nil {
					return err
				}
				attached = append(attached, fmt.Sprintf("%s %v: %d programs", name, attachType, len(programs.Programs)))
			}
		}
		ns, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer ns.Close()
		programs, err := link.QueryPrograms(link.QueryOptions{Target: int(ns.Fd()), Attach: ebpf.AttachSkLookup})
		if err != nil {
			return err
		}
		attached = append(attached, fmt.Sprintf("lookups: %d programs", len(programs.Programs)))
		text += "\n" + strings.Join(attached, "\n")
		return nil
	})
	return text
}

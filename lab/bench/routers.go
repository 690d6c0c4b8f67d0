package bench

import (
	"context"
	"maps"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/meter"
)

// SampleRouters reads the meters of all metered hosts at the same moment, in the order of the topology's nodes.
func (s *Bench) SampleRouters(ctx context.Context) ([]meter.Sample, error) {
	return Each(s.Routers, func(_ int, h *backend.Host) (meter.Sample, error) { return h.Sample(ctx) })
}

// PSSMiB is the memory of the device's processes on all metered hosts, MiB.
func (s *Bench) PSSMiB(ctx context.Context) (sum float64, err error) {
	each, err := Each(s.Routers, func(_ int, h *backend.Host) (float64, error) { return h.PSSMiB(ctx) })
	for _, mib := range each {
		sum += mib
	}
	return sum, err
}

// Sum is several metered hosts of one machine as one: counters are added, and interfaces and processes, whose names and
// numbers are the machine's, stand side by side. Clock, machine and CPUs are the first host's.
func Sum(hosts []meter.Sample) meter.Sample {
	if len(hosts) == 0 {
		return meter.Sample{} // of a router without an agent nothing is known
	}
	out := hosts[0]
	out.NAPI, out.Links, out.InterruptNs = maps.Clone(out.NAPI), maps.Clone(out.Links), maps.Clone(out.InterruptNs)
	for _, h := range hosts[1:] {
		maps.Copy(out.NAPI, h.NAPI)
		maps.Copy(out.Links, h.Links)
		for cpu, ns := range h.InterruptNs {
			if out.InterruptNs == nil {
				out.InterruptNs = map[int]int64{}
			}
			out.InterruptNs[cpu] += ns
		}
		out.Processes = append(out.Processes[:len(out.Processes):len(out.Processes)], h.Processes...)
		out.SNMP = out.SNMP.Add(h.SNMP)
		out.IPIn += h.IPIn
		out.AgentNs += h.AgentNs
		out.MeterNs += h.MeterNs
	}
	return out
}

// UsageOfEach is UsageOf each of several metered hosts of one machine, between samples of the same order. The kernel's
// threads are the machine's and metered at one of the hosts: each has an equal part of their time.
func UsageOfEach(a, b []meter.Sample) []Usage {
	list := make([]Usage, len(b))
	var kernel int64
	for i := range b {
		list[i] = UsageOf(a[i], b[i])
		kernel += list[i].KernelNs
	}
	for i := range list {
		part := kernel / int64(len(list))
		list[i].ProcessNs += part - list[i].KernelNs
		list[i].KernelNs = part
	}
	return list
}

// slowestLine is the rate of the slowest line of the routers, Mbit/s; 0: their links have none.
func (s *Bench) slowestLine(ctx context.Context) (slowest float64, err error) {
	for _, h := range s.Routers {
		for _, name := range h.Ifs {
			mbps, err := h.LineMbps(ctx, name)
			if err != nil {
				return 0, err
			}
			if mbps > 0 && (slowest == 0 || mbps < slowest) {
				slowest = mbps
			}
		}
	}
	return slowest, nil
}

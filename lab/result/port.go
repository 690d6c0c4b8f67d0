package result

import (
	"fmt"
	"slices"
	"strings"
)

// Port is a network interface of a host, with the settings of kernel and driver in the run's first lab. Settings that
// the driver does not report are nil or empty.
type Port struct {
	Name          string    `json:"name"`      // in the topology, such as "lan"; a number where the topology has no name
	Interface     string    `json:"interface"` // in the lab
	Driver        string    `json:"driver,omitempty"`
	DriverVersion string    `json:"driver_version,omitempty"` // of drivers within the kernel: the kernel's
	Firmware      string    `json:"firmware,omitempty"`
	Bus           string    `json:"bus,omitempty"`      // "0000:00:04.0"
	Offloads      []string  `json:"offloads,omitempty"` // that are on, by the kernel's names: "rx-gro"
	Channels      *Channels `json:"channels,omitempty"`
	Rings         *Rings    `json:"rings,omitempty"`
	RPS           []string  `json:"rps,omitempty"`      // CPU mask of each receive queue, hexadecimal
	XPS           []string  `json:"xps,omitempty"`      // CPU mask of each transmit queue
	Threaded      string    `json:"threaded,omitempty"` // "1": threads poll it
	// NoQueue means that the lab's queue could not be set: the kernel has none (CONFIG_NET_SCHED), and sends at once.
	NoQueue    bool        `json:"no_queue,omitempty"`
	Interrupts []Interrupt `json:"interrupts,omitempty"`
}

// Channels are the numbers of queues that a driver has set up.
type Channels struct {
	Rx       int `json:"rx"`
	Tx       int `json:"tx"`
	Other    int `json:"other"`
	Combined int `json:"combined"` // of both directions
}

// Rings are the lengths of a driver's queues, frames.
type Rings struct {
	Rx int `json:"rx"`
	Tx int `json:"tx"`
}

// Interrupt is an interrupt of an interface.
type Interrupt struct {
	Number  int    `json:"number"`
	Name    string `json:"name"`              // as in /proc/interrupts: "eth0-rx-0"
	CPUs    string `json:"cpus"`              // the CPUs that may handle it: "0-3"
	Handled string `json:"handled,omitempty"` // the CPUs that do; empty: the kernel does not say
}

// Settings returns the settings of a port that are compared between runs, by name. Unknown ones are left out.
func (p Port) Settings() map[string]string {
	set := map[string]string{
		"driver":   strings.TrimSpace(p.Driver + " " + p.DriverVersion),
		"firmware": p.Firmware, "offloads": strings.Join(p.Offloads, " "), "channels": p.Channels.String(),
		"rings": p.Rings.String(), "RPS": masks(p.RPS), "XPS": masks(p.XPS),
		"threaded NAPI": map[string]string{"": "", "0": "off"}[p.Threaded], "interrupts": p.interrupts(),
	}
	if p.Threaded != "" && p.Threaded != "0" {
		set["threaded NAPI"] = "on"
	}
	for setting, text := range set {
		if text == "" {
			delete(set, setting)
		}
	}
	return set
}

// settingsInOrder lists the settings that String shows.
var settingsInOrder = []string{"channels", "rings", "threaded NAPI", "interrupts", "RPS", "XPS", "firmware"}

// String describes the port in one line. It leaves out offloads that every driver has.
func (p Port) String() string {
	set := p.Settings()
	parts := []string{strings.TrimSpace(p.Interface + " " + set["driver"])}
	for _, setting := range settingsInOrder {
		if text := set[setting]; text != "" {
			parts = append(parts, setting+" "+text)
		}
	}
	var on []string
	for _, o := range shortOffloads {
		if slices.Contains(p.Offloads, o.name) {
			on = append(on, o.short)
		}
	}
	if len(on) > 0 {
		parts = append(parts, strings.Join(on, "+")+" on")
	}
	if p.NoQueue {
		parts = append(parts, "no queue set")
	}
	return strings.Join(parts, ", ")
}

// shortOffloads lists the offloads with the largest effect on a packet's cost, with their usual short names.
var shortOffloads = []struct{ name, short string }{
	{"tx-tcp-segmentation", "TSO"}, {"tx-generic-segmentation", "GSO"}, {"rx-gro", "GRO"},
	{"rx-gro-hw", "GRO in hardware"},
	{"rx-lro", "LRO"}, {"hw-tc-offload", "tc in hardware"},
}

// String returns "2 rx, 2 tx", or "" for nil.
func (c *Channels) String() string {
	if c == nil {
		return ""
	}
	var parts []string
	for _, n := range []struct {
		count int
		what  string
	}{{c.Combined, "combined"}, {c.Rx, "rx"}, {c.Tx, "tx"}, {c.Other, "other"}} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	return strings.Join(parts, " ")
}

// String returns "256 rx 256 tx", or "" for nil.
func (r *Rings) String() string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%d rx %d tx", r.Rx, r.Tx)
}

// interrupts names a port's interrupts with their CPUs. It leaves out the numbers, which change at each start.
func (p Port) interrupts() string {
	var parts []string
	for _, i := range p.Interrupts {
		cpus := i.Handled
		if cpus == "" {
			cpus = i.CPUs
		}
		parts = append(parts, fmt.Sprintf("%s on CPU %s", i.Name, cpus))
	}
	return strings.Join(parts, "; ")
}

// masks joins the CPU masks of queues. It returns "" if all are empty, because then nothing is steered.
func masks(list []string) string {
	if !slices.ContainsFunc(list, func(m string) bool { return strings.Trim(m, "0,") != "" }) {
		return ""
	}
	return strings.Join(list, " ")
}

// PortSettings returns the settings of all ports of a run, by host, port and setting: "router lan rings".
func PortSettings(ports map[string][]Port) map[string]string {
	all := map[string]string{}
	for host, list := range ports {
		for _, p := range list {
			for setting, text := range p.Settings() {
				all[host+" "+p.Name+" "+setting] = text
			}
		}
	}
	return all
}

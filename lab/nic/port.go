package nic

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/softirq"
)

// Ports reads the settings of interfaces of the caller's network namespace, in the order of names. It leaves out what a
// driver does not report. An interface that does not exist is an error.
func Ports(names []string) ([]result.Port, error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("asking drivers for their settings: %w", err)
	}
	defer e.Close()
	list := make([]result.Port, len(names))
	for i, name := range names {
		folder := filepath.Join("/sys/class/net", name)
		if _, err := os.Stat(folder); err != nil {
			return nil, fmt.Errorf("looking at the settings of %s: %w", name, err)
		}
		p := &list[i]
		p.Interface, p.Threaded = name, text(threadedFile(name))
		p.RPS, p.XPS = queueMasks(folder, "rx", "rps_cpus"), queueMasks(folder, "tx", "xps_cpus")
		numbers, named := softirq.InterruptsOf(name)
		for _, n := range numbers {
			folder := filepath.Join("/proc/irq", strconv.Itoa(n))
			p.Interrupts = append(p.Interrupts, result.Interrupt{Number: n, Name: named[n],
				CPUs:    text(filepath.Join(folder, "smp_affinity_list")),
				Handled: text(filepath.Join(folder, "effective_affinity_list"))})
		}
		ofDriver(e, name, p)
		p.NoQueue = noQueue(name)
	}
	return list, nil
}

// noQueue reports whether the kernel has no queues for interfaces (CONFIG_NET_SCHED).
func noQueue(name string) bool {
	link, err := netlink.LinkByName(name)
	if err == nil {
		_, err = netlink.QdiscList(link)
	}
	return errors.Is(err, unix.EOPNOTSUPP)
}

// ofDriver fills in what an interface's driver reports.
func ofDriver(e *ethtool.Ethtool, name string, p *result.Port) {
	if d, err := e.DriverInfo(name); err == nil {
		p.Driver, p.DriverVersion, p.Firmware, p.Bus = d.Driver, d.Version, d.FwVersion, d.BusInfo
	}
	if c, err := e.GetChannels(name); err == nil {
		p.Channels = &result.Channels{Rx: int(c.RxCount), Tx: int(c.TxCount), Other: int(c.OtherCount),
			Combined: int(c.CombinedCount)}
	}
	if r, err := e.GetRing(name); err == nil && r.RxMaxPending+r.TxMaxPending > 0 {
		p.Rings = &result.Rings{Rx: int(r.RxPending), Tx: int(r.TxPending)}
	}
	features, err := e.Features(name)
	if err != nil {
		return // some virtual ones have none
	}
	for _, feature := range slices.Sorted(maps.Keys(features)) {
		if features[feature] {
			p.Offloads = append(p.Offloads, feature)
		}
	}
}

// queueMasks reads the mask of CPUs of each queue of an interface in a direction, "rx" or "tx".
func queueMasks(folder, direction, file string) (masks []string) {
	for n := 0; ; n++ {
		queue := filepath.Join(folder, "queues", fmt.Sprintf("%s-%d", direction, n))
		if _, err := os.Stat(queue); err != nil {
			return masks
		}
		masks = append(masks, text(filepath.Join(queue, file)))
	}
}

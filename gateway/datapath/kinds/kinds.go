// Package kinds has the table of all kinds of data path. A new one has its folder, and a line here.
package kinds

import (
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/nfqueue"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/tun"
	"github.com/gateweigh/gateweigh/gateway/datapath/ebpf"
	"github.com/gateweigh/gateweigh/gateway/datapath/kernel"
)

// All are the kinds of data path. The first is used unless the configuration names another.
var All = []datapath.Kind{
	ebpf.Kind,
	tun.Kind,
	nfqueue.Kind,
	kernel.Kind,
}

// TraitsOf returns a kind's traits. For a name that no kind has, it returns traits with all abilities false.
func TraitsOf(name string) datapath.Traits {
	for _, k := range All {
		if k.Name == name {
			return k.Traits
		}
	}
	return datapath.Traits{Name: name}
}

// Unheeded returns the keys of [datapath] that kinds heed, but not the one with these traits.
func Unheeded(t datapath.Traits) (keys []string) {
	for _, other := range All {
		for _, key := range other.Keys {
			if !t.UsesKey(key) && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Names returns the names of the kinds for which matches returns true; nil: of all.
func Names(matches func(datapath.Traits) bool) (names []string) {
	for _, k := range All {
		if matches == nil || matches(k.Traits) {
			names = append(names, k.Name)
		}
	}
	return names
}

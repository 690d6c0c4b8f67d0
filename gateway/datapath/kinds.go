package datapath

import "slices"

// Kinds are the kinds of data path, the one that is used unless another is named first. Each has its code in a folder
// below this one, which says the rest of it (Kind).
var Kinds = []Traits{
	{Kind: "ebpf", Keys: []string{"forward", "flow_cache", "shaping"}, PPPoE: true, IPv6: true},
	{Kind: "tun", Keys: []string{"fast", "device"}, PPPoE: true, HidesLAN: true},
	{Kind: "nfqueue", Keys: []string{"fast"}, FastUntracked: true},
	{Kind: "kernel", PPPoE: true, PPPoEOnly: true},
}

// Traits are the properties of a kind of data path that the configuration depends on.
type Traits struct {
	Kind string // its name: datapath.kind
	// Keys are those of [datapath] that it heeds. All heed kind, and pin_dir, because a former data path may have left
	// pins.
	Keys          []string
	PPPoE         bool // it takes PPPoE's header off and puts it on
	IPv6          bool // its clients may have IPv6
	PPPoEOnly     bool // its clients are on PPPoE alone, and reach no portal and no walled garden
	HidesLAN      bool // no other program of this machine hears the LAN's clients
	FastUntracked bool // with datapath.fast, packets pass the kernel's table of connections by
}

// TraitsOf returns a kind's traits; without a kind of that name, those of one that can nothing.
func TraitsOf(kind string) Traits {
	for _, t := range Kinds {
		if t.Kind == kind {
			return t
		}
	}
	return Traits{Kind: kind}
}

// UsesKey reports whether the kind heeds a key of [datapath].
func (t Traits) UsesKey(key string) bool { return slices.Contains(t.Keys, key) }

// Unheeded are the keys of [datapath] that other kinds heed alone.
func (t Traits) Unheeded() (keys []string) {
	for _, other := range Kinds {
		for _, key := range other.Keys {
			if !t.UsesKey(key) && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Names are the names of some kinds; nil: of all.
func Names(matches func(Traits) bool) (names []string) {
	for _, t := range Kinds {
		if matches == nil || matches(t) {
			names = append(names, t.Kind)
		}
	}
	return names
}

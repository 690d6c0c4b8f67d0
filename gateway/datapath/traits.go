package datapath

import "slices"

// Traits are the properties of a kind of data path that the configuration depends on.
type Traits struct {
	Name string // datapath.kind
	// Keys are the keys in the configuration's section [datapath] that it heeds. All kinds heed kind, and pin_dir, because
	// a former data path may have left pins.
	Keys          []string
	PPPoE         bool // it takes PPPoE's header off and puts it on
	IPv6          bool // its clients may have IPv6
	Outside       bool // clients on PPPoE may have addresses outside the LAN
	PPPoEOnly     bool // its clients are on PPPoE alone, and reach no portal and no walled garden
	HidesLAN      bool // no other program of this machine hears the LAN's clients
	FastUntracked bool // with datapath.fast, the kernel does not track the connections of packets
	Networks      bool // a daemon may have several networks
	Visits        bool // it can open hosts for one device alone (Running.OpenFor)
}

// UsesKey reports whether the kind heeds a key of [datapath].
func (t Traits) UsesKey(key string) bool { return slices.Contains(t.Keys, key) }

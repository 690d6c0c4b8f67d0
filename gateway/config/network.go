package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// networkTable is the table of one of several networks, [[network]].
const networkTable = "network"

// MostNetworks bounds the networks of a daemon: the kernel runs 64 programs that choose the socket of a connection, and
// each network has one.
const MostNetworks = 64

// networkTables are the tables of the file that a network may have of its own ([network.dhcp]). Those of the file are
// the defaults.
var networkTables = []string{"dhcp", "dhcp6", "dns", "nat", "garden", "portal", "uam", "auth", "oidc", "click_through",
	"devices", "pppoe",
	"ident", "radius", "users", "limits"}

// networkName is what a network may be called: its folders have the name.
var networkName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,14}$`)

// readNetworkName reads a network's name.
var readNetworkName = strict.AcceptText(`a name of small letters, digits and hyphens, at most 15, such as "guests"`,
	func(s string) (string, bool) { return s, networkName.MatchString(s) })

// readSubnet reads which /64 of a delegated prefix a network has.
var readSubnet = strict.Integer(0, 65535)

// All returns the configuration of each network: those of [[network]], or the only one.
func (c *Config) All() []*Config {
	if len(c.Networks) == 0 {
		return []*Config{c}
	}
	return c.Networks
}

// networkSettings are the keys of [[network]] itself. The values go to a Config of their own, where those of [lan] are
// ("lan.interface").
func (c *Config) networkSettings() []setting {
	own := &Config{}
	all := []setting{
		keyAt("network.name", &own.Name, readNetworkName),
		keyAt("network.reaches", &own.Reaches, list(readNetworkName)),
		keyAt("network.subnet", &own.Subnet, readSubnet),
	}
	for _, s := range own.lanSettings() {
		if s.each != nil { // the example file has no such key, because its table would belong to a network
			continue
		}
		s.key = networkTable + strings.TrimPrefix(s.key, "lan")
		all = append(all, s)
	}
	for i := range all {
		read := all[i].set
		all[i].set, all[i].column = nil, func(_ int, v any) error { return read(v) }
	}
	return all
}

// cutNetworks separates the entries of [[network]] from the others, those of each table for itself. A table [network]
// is a mistake. It is taken for the only network, so that no other message follows from it.
func cutNetworks(file string, entries []strict.Entry) (others []strict.Entry, tables [][]strict.Entry,
	mistakes strict.Problems) {
	single := false
	for _, e := range entries {
		_, isTable := e.Value.(map[string]any)
		_, several := e.Value.([]map[string]any)
		if e.Path[0] == networkTable && len(e.Path) == 1 && isTable && e.Row == 0 {
			single = true
			mistakes = append(mistakes, &strict.Error{File: file, Line: e.Line, Key: networkTable,
				Problem: "must be in double brackets, a table for each network: [[network]]"})
		}
		row := e.Row
		if single {
			row = 1
		}
		switch {
		case e.Path[0] != networkTable || row == 0 && !several:
			others = append(others, e)
		case row > len(tables):
			tables = append(tables, []strict.Entry{e})
		case row > 0:
			tables[row-1] = append(tables[row-1], e)
		}
	}
	return others, tables, mistakes
}

// addNetwork makes the configuration of a network from the entries of the file that are for all, and its own. It
// returns the problems of its own.
func (c *Config) addNetwork(common, own []strict.Entry) strict.Problems {
	n := defaults()
	n.File, n.table = c.File, own[0].Line
	n.apply(common) // its problems are known
	n.common = maps.Clone(n.lines)
	c.Networks = append(c.Networks, n)
	a := networkReader{n, map[string]int{}}
	var entries []strict.Entry
	problems := strict.Assign(c.File, own[1:], func(e strict.Entry) (descend bool, err error) {
		e, err = a.read(e)
		if err == nil && len(e.Path) > 0 {
			entries = append(entries, e)
		}
		return err == nil, err
	})
	for _, p := range n.apply(entries) {
		p.Key = networkKey(p.Key)
		p.Problem = strings.Replace(inNetwork(p.Problem), `did you mean "`, `did you mean "`+networkTable+".", 1)
		problems = append(problems, p)
	}
	n.WAN.Delegation = n.WAN.Delegation && n.IsSet("network.subnet") && n.LAN.Address6.IsValid()
	n.StateDir, n.Datapath.PinDir = filepath.Join(c.StateDir, n.Name), filepath.Join(c.Datapath.PinDir, n.Name)
	if n.FlowLog.Folder != "" {
		n.FlowLog.Folder = filepath.Join(n.FlowLog.Folder, n.Name)
	}
	return problems
}

// networkReader turns the entries of a network into those that a file with this network alone would have.
type networkReader struct {
	*Config
	rows map[string]int // how many entries each array of tables of the network has so far
}

// read turns one entry. If the entry that it returns has no path, nothing is left to do for it.
func (a networkReader) read(e strict.Entry) (strict.Entry, error) {
	out := e
	out.Path, out.Row, out.Table = e.Path[1:], 0, ""
	switch name := out.Path[0]; {
	case len(out.Path) == 1 && slices.Contains([]string{"name", "reaches", "subnet"}, name):
		return strict.Entry{}, a.readOwn(name, e)
	case slices.Contains(lanKeys(), name):
		out.Path = slices.Concat(toml.Key{"lan"}, out.Path)
	case slices.Contains(networkTables, name):
		a.inherit(&out)
	case slices.Contains(tables(), name) || slices.Contains(Keys(), name):
		return e, fmt.Errorf("is the same for all networks: set %s outside of [[network]]", out.Path)
	default:
		return e, fmt.Errorf("unknown key%s", suggestion(e.Key(), knownInNetworks()))
	}
	return out, nil
}

// readOwn reads a key that only networks have.
func (a networkReader) readOwn(name string, e strict.Entry) (err error) {
	a.lines[e.Key()] = e.Line
	switch name {
	case "name":
		a.Name, err = readNetworkName(e.Value)
	case "subnet":
		a.Subnet, err = readSubnet(e.Value)
	default:
		a.Reaches, err = list(readNetworkName)(e.Value)
	}
	return err
}

// inherit numbers the tables of an array within the network, and forgets the file's entries of a table with the user's
// own keys, or of such an array, where the network has its own.
func (a networkReader) inherit(e *strict.Entry) {
	key := e.Key()
	_, several := e.Value.([]map[string]any)
	_, isTable := e.Value.(map[string]any)
	for _, s := range a.settings() {
		table := s.key[:max(0, strings.LastIndexByte(s.key, '.'))]
		if several && s.column != nil && table == key || isTable && s.each != nil && s.key == key {
			reflect.ValueOf(s.target).Elem().SetZero()
			maps.DeleteFunc(a.lines, func(k string, _ int) bool { return strings.HasPrefix(k, key+".") })
			delete(a.Config.rows, key)
		}
	}
	if several {
		a.rows[key] = 0
		return
	}
	for list := range a.rows {
		if key == list {
			a.rows[list]++
		}
		if key == list || strings.HasPrefix(key, list+".") {
			e.Row, e.Table = a.rows[list], list
		}
	}
}

// lanKeys are the keys of [lan], without the table.
func lanKeys() (names []string) {
	for _, s := range (&Config{}).lanSettings() {
		names = append(names, strings.TrimPrefix(s.key, "lan."))
	}
	return names
}

// knownInNetworks are the keys and tables of [[network]].
func knownInNetworks() (known []string) {
	for _, key := range slices.Concat(Keys(), tables()) {
		table, _, _ := strings.Cut(key, ".")
		if table == networkTable {
			known = append(known, key)
		} else if slices.Contains(networkTables, table) {
			known = append(known, networkTable+"."+key)
		}
	}
	return known
}

// networkKey is a key as a network has it.
func networkKey(key string) string {
	if name, lan := strings.CutPrefix(key, "lan."); lan {
		key = name
	}
	return networkTable + "." + key
}

// lanWord is a key of [lan] in a text.
var lanWord = regexp.MustCompile(`\blan\.([a-z])`)

// inNetwork rewrites a problem's text: keys of [lan] get the names that they have in [[network]].
func inNetwork(text string) string { return lanWord.ReplaceAllString(text, networkTable+".$1") }

// checkNetworks checks each network, and all of them beside each other.
func (c *Config) checkNetworks() strict.Problems {
	k := &checker{Config: c}
	for _, name := range lanKeys() {
		k.refuseUnused("the file has [[network]], whose tables have an interface and addresses each", "lan."+name)
	}
	if len(c.Networks) > MostNetworks {
		k.reportAt(c.Networks[MostNetworks].table, networkTable, "%d networks: at most %d", len(c.Networks), MostNetworks)
	}
	if t := kinds.TraitsOf(c.Datapath.Kind); !t.Networks {
		k.report("datapath.kind", "%q serves one network, with [lan]: [[network]] needs %s", t.Name,
			alternatives(kinds.Names(func(t datapath.Traits) bool { return t.Networks })))
	}
	k.checkSubnets()
	for _, n := range c.Networks {
		if !n.IsSet("network.name") {
			k.reportAt(n.table, "network.name", `missing: what the network is called, such as "guests"`)
		}
	}
	k.ofEach((*Config).check)
	for i, n := range c.Networks {
		for _, other := range c.Networks[:i] {
			k.checkTwo(n, other)
		}
		k.checkReaches(n)
	}
	return k.problems
}

// checkSubnets checks which networks have a part of the prefix that the provider delegates.
func (k *checker) checkSubnets() {
	const key = "network.subnet"
	any := false
	for _, n := range k.Networks {
		switch {
		case !n.IsSet(key):
			continue
		case !k.WAN.Delegation:
			k.reportAt(n.lineOf(key), key, noEffect+": the provider is not asked for a prefix: set wan.delegation = true")
		case !n.LAN.Address6.IsValid():
			k.reportAt(n.lineOf(key), key, `needs network.address6, the gateway's own address, such as "fd00:0:0:1::1/64"`)
		}
		any = true
	}
	if k.WAN.Delegation && !any {
		k.report("wan.delegation", noEffect+": no network has a part of the prefix: give those that shall have one a "+
			"number, such as network.subnet = 0")
	}
}

// ofEach collects the problems of each network. A problem of a key that holds for all networks is reported once. If
// such a key has no effect in some networks only, that is no problem.
func (k *checker) ofEach(check func(*Config) strict.Problems) {
	type problem struct{ key, text string }
	found := map[problem][]*Config{}
	var order []problem
	first := map[problem]*strict.Error{}
	for _, n := range k.Networks {
		for _, p := range check(n) {
			if n.isCommon(p.Key) {
				if p.Line == n.table {
					p.Line = 1 // the key is nowhere in the file
				}
				id := problem{p.Key, p.Problem}
				if first[id] == nil {
					order, first[id] = append(order, id), p
				}
				found[id] = append(found[id], n)
				continue
			}
			p.Key, p.Problem = networkKey(p.Key), inNetwork(p.Problem)
			k.problems = append(k.problems, p)
		}
	}
	for _, id := range order {
		p, all := first[id], len(found[id]) == len(k.Networks)
		if !all && strings.HasPrefix(p.Problem, noEffect) {
			continue
		}
		if p.Problem = inNetwork(p.Problem); !all {
			p.Problem = fmt.Sprintf("network %q: %s", found[id][0].Name, p.Problem)
		}
		k.problems = append(k.problems, p)
	}
}

// isCommon reports whether the value of a key is the file's, for all networks.
func (c *Config) isCommon(key string) bool {
	if strings.HasPrefix(key, "lan.") {
		return false
	}
	for at := key; at != ""; at = at[:max(0, strings.LastIndexByte(at, '.'))] {
		if line := c.lines[at]; line > 0 {
			return line == c.common[at]
		}
	}
	return len(c.Networks) == 0 && !c.ownTable(key)
}

// ownTable reports whether a network has a table of its own for a key.
func (c *Config) ownTable(key string) bool {
	table, _, _ := strings.Cut(key, ".")
	return c.lines[table] > 0 && c.lines[table] != c.common[table]
}

// completeNetworks fills in the fields of networks that depend on other networks.
func (c *Config) completeNetworks() {
	if len(c.Networks) > 0 {
		c.Admin = c.Networks[0].Admin // with whole paths
	}
	for _, n := range c.Networks {
		for _, other := range c.Networks {
			if slices.Contains(n.Reaches, other.Name) || slices.Contains(other.Reaches, n.Name) {
				n.Reached = append(n.Reached, other.LAN.Interface)
			}
		}
		// Servers tell networks by it: one that begins anew ends the sessions that they have of it alone.
		if !n.IsSet("radius.nas_identifier") || n.isCommon("radius.nas_identifier") {
			n.RADIUS.NASIdentifier += "-" + n.Name
		}
	}
}

// FixedKeys are the keys that hold for all networks and take effect with a restart only, because networks that go on
// while others change still use the former values.
func FixedKeys() (keys []string) {
	for _, key := range Keys() {
		table, _, _ := strings.Cut(key, ".")
		if table != networkTable && !slices.Contains(networkTables, table) && !slices.Contains(LiveKeys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// NetworksDiffer reports whether two configurations differ in their networks, beside keys that are for all of them.
func NetworksDiffer(a, b *Config) bool {
	fixed := slices.Concat(FixedKeys(), LiveKeys)
	return !slices.EqualFunc(a.Networks, b.Networks, func(m, n *Config) bool {
		own := func(key string) bool { return !slices.Contains(fixed, key) }
		return m.Name == n.Name && m.Subnet == n.Subnet && slices.Equal(m.Reached, n.Reached) &&
			!slices.ContainsFunc(Changed(m, n), own)
	})
}

// Same reports whether two configurations of a network are the same.
func Same(a, b *Config) bool {
	return len(Changed(a, b)) == 0 && slices.Equal(a.Reached, b.Reached) && a.Subnet == b.Subnet &&
		a.WAN.Delegation == b.WAN.Delegation
}

package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Backend tells where the hosts of the labs are.
type Backend struct {
	Kind   string // BackendSSH, or "" (default): namespaces of this machine
	Config string // file for ssh -F; empty: the user's configuration
	Clock  string // ClockChrony, or "": the hosts' clocks are not compared
	Hosts  map[string]BackendHost
}

// ClockChrony says that chronyd keeps the clocks of the hosts equal.
const ClockChrony = "chrony"

// Kinds of backends.
const (
	BackendNamespaces = "namespaces"
	BackendSSH        = "ssh"
)

// BackendHost is a machine that is a host of the labs, [backend.host.NAME].
type BackendHost struct {
	Address   string   `toml:"address,omitempty"`   // as ssh takes it: an alias of its configuration, or user@host
	Interface []string `toml:"interface,omitempty"` // of a client or server, towards the router: one for each lab
	LAN       []string `toml:"lan,omitempty"`       // of the router, towards the clients: one for each lab
	WAN       []string `toml:"wan,omitempty"`       // of the router, towards the server: one for each lab
	Sudo      string   `toml:"sudo,omitempty"`      // "auto" (default ""), "true" or "false"
	// LANAddress and WANAddress are the addresses of a router without an agent (see AgentlessRouter), with their networks.
	LANAddress string `toml:"lan_address,omitempty"`
	WANAddress string `toml:"wan_address,omitempty"`
	CPUs       []int  `toml:"cpus,omitempty"` // the CPUs that the host uses; default: all of its machine
}

// Remote reports whether the hosts are other machines.
func (b Backend) Remote() bool { return b.Kind == BackendSSH }

// Names of the machines of study 1's network; further clients are client2 and client3.
const (
	hostRouter = "router"
	hostServer = "server"
	hostClient = "client"
)

// hostNames are the names that hosts of a backend can have.
var hostNames = []string{hostRouter, hostServer, hostClient, hostClient + "2", hostClient + "3"}

var backendFields = []Field{
	optional("backend.kind", backendKind, func(e *Experiment) *string { return &e.Backend.Kind }).
		means("where the labs' hosts are: `namespaces` of this machine (default), or machines reached by `ssh`, each in a " +
			"table `[backend.host.NAME]`: see [machines](../machines.md)"),
	optional("backend.config", absolute, func(e *Experiment) *string { return &e.Backend.Config }).
		means("configuration of ssh (`ssh -F`); default: the user's"),
	optional("backend.clock", strict.Word(ClockChrony), func(e *Experiment) *string { return &e.Backend.Clock }).
		means("what keeps the clocks of client and server alike, and says how well: with `chrony` one-way delays are " +
			"measured, with their bound; default: they are left out"),
}

// backendKind accepts the kinds of backends. Namespaces of this machine become "", as where the key is not set.
func backendKind(v any) (string, error) {
	kind, err := strict.Word(BackendNamespaces, BackendSSH)(v)
	if kind == BackendNamespaces {
		kind = ""
	}
	return kind, err
}

// absolute accepts the absolute path of a file. A relative one would depend on where a run is started and resumed.
var absolute = strict.AcceptText("the absolute path of a file", func(s string) (string, bool) {
	return s, strings.HasPrefix(s, "/") && !strings.ContainsAny(s, "\x00\n\"")
})

// address accepts what ssh may be called with.
var address = strict.AcceptText(
	"a name or address as ssh takes it, such as \"root@10.0.0.5\" or a Host of ~/.ssh/config",
	func(s string) (string, bool) {
		return s, s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsAny(s, " \t\n\x00'\"\\`$;&|<>()")
	})

// interfaces accepts the name of an interface, or two for two labs.
func interfaces(v any) ([]string, error) {
	if s, isText := strict.Text(v); isText {
		v = []any{s}
	}
	list, err := strict.List(1, 2, interfaceName)(v)
	if err != nil {
		return nil, errors.New("must be the name of an interface, such as \"eth1\", or two of two pairs of ports, not " +
			strict.Show(v))
	}
	return list, nil
}

var interfaceName = strict.AcceptText("the name of an interface", func(s string) (string, bool) {
	const longest = 15
	return s, s != "" && len(s) <= longest && !strings.ContainsAny(s, "/ \t\n\x00'\"\\")
})

// sudo accepts true, false and "auto".
func sudo(v any) (string, error) {
	if on, isBool := v.(bool); isBool {
		return fmt.Sprint(on), nil
	}
	s, isText := strict.Text(v)
	if !isText || !slices.Contains([]string{"auto", "true", "false"}, s) {
		return "", fmt.Errorf("must be true, false or \"auto\", not %s", strict.Show(v))
	}
	return s, nil
}

// maxCPU is the largest number that a CPU can have.
const maxCPU = 4095

// hostFields is every key of [backend.host.NAME].
var hostFields = []fieldOf[BackendHost]{
	field("address", address, func(h *BackendHost) *string { return &h.Address }).
		means("what `ssh` is called with: a Host of its configuration, or `user@host`"),
	field("lan", interfaces, func(h *BackendHost) *[]string { return &h.LAN }).
		means("of the router: interface towards the clients; two where the router has two pairs of ports, for two labs at " +
			"the " +
			"same time"),
	field("wan", interfaces, func(h *BackendHost) *[]string { return &h.WAN }).
		means("of the router: interface towards the server, or two"),
	field("interface", interfaces, func(h *BackendHost) *[]string { return &h.Interface }).
		means("of clients and server: interface towards the router, or two"),
	field("sudo", sudo, func(h *BackendHost) *string { return &h.Sudo }).
		means("agents are started by sudo: default where the connection is not root's"),
	field("lan_address", prefix, func(h *BackendHost) *string { return &h.LANAddress }).
		means("of a router without an agent, which has no `address`: its own address towards the clients, with the network"),
	field("wan_address", prefix, func(h *BackendHost) *string { return &h.WANAddress }).
		means("of a router without an agent: its own address towards the server, with the network"),
	field("cpus", List(strict.Integer(0, maxCPU)), func(h *BackendHost) *[]int { return &h.CPUs }).
		means("CPUs that the host uses, of the router its polling threads and the device; default: all"),
}

// assignHost sets a key below "backend.host": the table NAME itself, or NAME.KEY.
func (e *Experiment) assignHost(key toml.Key, value any) (descend bool, err error) {
	_, isTable := value.(map[string]any)
	if len(key) == 0 {
		if !isTable {
			return false, errors.New("must have a table for each host: [backend.host.router]")
		}
		return true, nil
	}
	host := key[0]
	if !slices.Contains(hostNames, host) {
		return false, fmt.Errorf("no host is called so: known are %s%s", strings.Join(hostNames, ", "),
			near.Suggestion(host, hostNames))
	}
	if len(key) == 1 {
		if !isTable {
			return false, fmt.Errorf("must be a table: [backend.host.%s]", host)
		}
		if e.Backend.Hosts == nil {
			e.Backend.Hosts = map[string]BackendHost{}
		}
		e.Backend.Hosts[host] = BackendHost{}
		return true, nil
	}
	h, exists := e.Backend.Hosts[host]
	if !exists {
		return false, fmt.Errorf("no host %q is described in [backend.host.%s]", host, host)
	}
	rest := key[1:].String()
	for _, f := range hostFields {
		if f.key == rest {
			err := f.set(&h, value)
			e.Backend.Hosts[host] = h
			if err != nil {
				e.badHosts = true
			}
			return false, err
		}
	}
	e.badHosts = true
	keys := keysOf(hostFields)
	return false, fmt.Errorf("unknown key of a host%s",
		cmp.Or(near.Suggestion(rest, keys), ", which has "+words.Listed(keys)))
}

// HostKey returns the dotted name of a host's key, for errors; where key is empty, that of the host's table.
func HostKey(host, key string) string {
	k := toml.Key{"backend", "host"}
	for _, part := range []string{host, key} {
		if part != "" {
			k = append(k, part)
		}
	}
	return k.String()
}

// HostKeySet returns HostKey where the key is set, else the name of the host's table.
func (e *Experiment) HostKeySet(host, key string) string {
	if dotted := HostKey(host, key); e.IsSet(dotted) {
		return dotted
	}
	return HostKey(host, "")
}

// applyHosts sets the number of client hosts to those that are described, unless the experiment names a number.
func (e *Experiment) applyHosts() {
	if e.Backend.Remote() && !e.IsSet("client.hosts") {
		e.Client.Hosts = max(1, len(e.clientHosts()))
	}
}

// clientHosts returns the names of the described hosts that are clients.
func (e *Experiment) clientHosts() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(e.Backend.Hosts)) {
		if strings.HasPrefix(name, hostClient) {
			names = append(names, name)
		}
	}
	return names
}

// checkBackend refuses hosts that do not make a complete lab.
func (e *Experiment) checkBackend(report Report) {
	if !e.Backend.Remote() {
		if len(e.Backend.Hosts) > 0 {
			report("backend.host", "needs kind = %q in [backend]: without, hosts are namespaces of this machine", BackendSSH)
		}
		if e.Backend.Config != "" {
			report("backend.config", "needs kind = %q", BackendSSH)
		}
		if e.Backend.Clock != "" {
			report("backend.clock", "needs kind = %q: on one machine there is one clock", BackendSSH)
		}
		return
	}
	if e.Topology != defaultTopology {
		report("backend.kind", "%q carries topology = %q alone: %q has hosts that are no machines of their own", BackendSSH,
			defaultTopology, e.Topology)
		return
	}
	if e.badHosts {
		return
	}
	needed := []string{hostRouter, hostServer}
	for i := range e.Client.Hosts {
		needed = append(needed, hostNames[slices.Index(hostNames, hostClient)+i])
	}
	for _, name := range needed {
		if _, described := e.Backend.Hosts[name]; !described {
			report("backend.kind", "%q needs a machine for the host %s: [%s] with address and %s", BackendSSH, name,
				HostKey(name, ""), map[bool]string{true: "lan and wan", false: "interface"}[name == hostRouter])
		}
	}
	if n := len(e.clientHosts()); n > e.Client.Hosts {
		report("client.hosts", "%d, and %s described: leave client.hosts out, or a table", e.Client.Hosts,
			words.Agreed(n, "client host is", "client hosts are"))
	}
	if e.Backend.Clock != "" && len(e.clientHosts()) > 1 {
		report("backend.clock", "goes with one client machine: a server that several send to would have several clocks to "+
			"compare with")
	}
	e.checkHosts(report)
}

// checkHosts refuses described hosts that lack a key, or have a key of another kind of host.
func (e *Experiment) checkHosts(report Report) {
	labs := 0
	for _, name := range slices.Sorted(maps.Keys(e.Backend.Hosts)) {
		switch missing := e.Backend.missingAddress(); {
		case name == hostRouter && missing != "":
			report(HostKey(name, ""), "needs %s = \"…\", the router's own address on that side, as it has no address for ssh",
				missing)
			continue
		case name == hostRouter && e.Backend.AgentlessRouter():
			e.checkAgentless(report)
			continue
		}
		e.checkHost(name, &labs, report)
	}
}

// checkHost refuses a host that lacks a key, or has a key of another kind of host. *labs is the number of interfaces
// that each port of the hosts checked before has; 0: this is the first.
func (e *Experiment) checkHost(name string, labs *int, report Report) {
	h := e.Backend.Hosts[name]
	if h.Address == "" {
		report(HostKey(name, ""), "needs address = \"…\", as ssh takes it")
	}
	if h.LANAddress != "" || h.WANAddress != "" {
		report(HostKey(name, ""), "lan_address and wan_address are for a router that has no address for ssh")
	}
	links := map[string][]string{"interface": h.Interface, "lan": h.LAN, "wan": h.WAN}
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(links)) {
		list, wanted := links[key], (key == "interface") != (name == hostRouter)
		switch {
		case wanted && len(list) == 0:
			report(HostKey(name, ""), "needs %s = \"…\": the interface towards %s", key, towards(name, key))
		case !wanted && len(list) > 0 && name == hostRouter:
			report(HostKey(name, key), "is for clients and server: the router has lan and wan")
		case !wanted && len(list) > 0:
			report(HostKey(name, key), "is for the router: a %s has interface", strings.TrimRight(name, "23"))
		case wanted && *labs != 0 && len(list) != *labs:
			report(HostKey(name, key), "has %s, and other ports have %d: either each port has two, for two labs at the same "+
				"time, or each has one", words.Counted(len(list), "interface"), *labs)
		case wanted:
			*labs = len(list)
		}
		for _, link := range list {
			if other, twice := seen[link]; twice {
				report(HostKey(name, key), "%q is also %s: each end of a cable is an interface of its own", link, other)
			}
			seen[link] = key
		}
	}
}

// towards returns what a host's port leads to.
func towards(host, key string) string {
	switch {
	case key == "lan":
		return "the clients"
	case key == "wan":
		return "the server"
	}
	return "the router"
}

// LabsAtOnce returns how many labs can stand at the same time: as many as the described machines have ports for.
func (b Backend) LabsAtOnce() int {
	switch {
	case b.AgentlessRouter():
		return 1
	case b.Remote():
		return len(b.Hosts[hostRouter].LAN)
	}
	return 2
}

// HostReference lists every key of [backend.host.NAME].
func HostReference() []KeyReference { return referenceOf(hostFields, BackendHost{}) }

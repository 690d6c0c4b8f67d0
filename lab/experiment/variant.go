package experiment

import (
	"regexp"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// Parametrised is the value of the key like for gatewayd with parameters (Variant).
const Parametrised = "gateway"

// Data paths of gatewayd. "-fast" is the optimised form of one that is else as the study measured it.
const (
	PathEBPF        = "ebpf"
	PathNFQueue     = "nfqueue"
	PathNFQueueFast = "nfqueue-fast"
	PathTUN         = "tun"
	PathTUNFast     = "tun-fast"
	PathKernel      = "kernel" // the kernel's PPP: PPPoE clients only
)

// Methods of ident (RFC 1413), in which a server asks who has a connection: it asks about the client's address, or
// about the router's, where the router masquerades.
const (
	IdentNAT        = "nat"
	IdentMasquerade = "masquerade"
)

// Variant has the parameters of a gatewayd under test. The zero value is the device gateway-ebpf.
type Variant struct {
	Path  string `toml:"path,omitempty"`  // PathEBPF (default) or its like
	NAT   bool   `toml:"nat,omitempty"`   // clients have the router's address towards the server
	PPPoE bool   `toml:"pppoe,omitempty"` // clients log in over PPPoE, and there is no portal
	Ident string `toml:"ident,omitempty"` // method by which it answers ident queries; empty: it does not
	// Limited is each client's rate both ways, as gatewayd's configuration writes it: "10G". Empty is no limit.
	Limited string `toml:"limited,omitempty"`
}

// Key returns the key of the first parameter that is set; empty: none is.
func (v Variant) Key() string {
	for _, p := range []struct {
		key string
		set bool
	}{{"path", v.Path != ""}, {"nat", v.NAT}, {"pppoe", v.PPPoE}, {"ident", v.Ident != ""}, {"limited", v.Limited != ""}} {
		if p.set {
			return p.key
		}
	}
	return ""
}

// check reports parameters that exclude each other.
func (v Variant) check(report Report) {
	nfqueue := v.Path == PathNFQueue || v.Path == PathNFQueueFast
	for _, c := range []struct {
		bad          bool
		key, problem string
	}{
		{v.Path == PathKernel && !v.PPPoE, "path", `"kernel" carries PPPoE clients alone: set pppoe = true`},
		{nfqueue && v.PPPoE, "pppoe", `does not go with path = "nfqueue", which does not take PPPoE's header off`},
		{v.Ident == IdentNAT && v.NAT, "ident",
			`"nat" is for clients that keep their addresses, and nat = true takes these: use "masquerade"`},
		{v.Ident == IdentMasquerade && !v.NAT, "ident", `"masquerade" needs nat = true`},
	} {
		if c.bad {
			report(c.key, "%s", c.problem)
		}
	}
}

var rateForm = regexp.MustCompile(`^[1-9][0-9]{0,5}[kMG]$`)

// rate accepts a rate as gatewayd's configuration writes it.
var rate = strict.AcceptText(`a rate such as "10G" or "50M", bit/s`, func(s string) (string, bool) {
	return s, rateForm.MatchString(s)
})

// variantFields are the keys of [dut.NAME] that are parameters of the device that like names.
var variantFields = []fieldOf[CustomDUT]{
	field("path", strict.Word(PathEBPF, PathNFQueue, PathNFQueueFast, PathTUN, PathTUNFast, PathKernel),
		func(d *CustomDUT) *string { return &d.Path }).
		means("with `like = \"gateway\"`, as the four keys below: gatewayd's [data path](../data-paths.md); default " +
			"`\"ebpf\"`. `-fast` is the optimised one, without it the one as studied"),
	field("nat", strict.Boolean, func(d *CustomDUT) *bool { return &d.NAT }).
		means("gatewayd masquerades: clients have the router's address towards the server"),
	field("pppoe", strict.Boolean, func(d *CustomDUT) *bool { return &d.PPPoE }).
		means("clients log in over PPPoE, instead of the portal. Needs `client.kind = \"pppoe\"`"),
	field("ident", strict.Word(IdentNAT, IdentMasquerade), func(d *CustomDUT) *string { return &d.Ident }).
		means("gatewayd answers ident queries: for clients' addresses (`nat`), or for the router's (`masquerade`)"),
	field("limited", rate, func(d *CustomDUT) *string { return &d.Limited }).
		means("each client's rate both ways, as gatewayd's configuration writes it"),
}

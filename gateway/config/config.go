// Package config reads gatewayd.toml: strict keys, every problem with its file, line and key, and all of them at once.
//
// The structs are plain data; package gateway converts them for the other packages. example.toml describes each key to
// its reader; meaning.go has the words of docs/reference/gatewayd-keys.md.
package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
)

// Values of keys.
const (
	Server   = "server"   // dhcp.mode, dns.mode: gatewayd serves
	External = "external" // another program on this machine serves

	Off        = "off"       // dhcp6.mode
	Stateless  = "stateless" // options only
	NDProxyDAD = "dad"       // lan.nd_proxy: duplicate address detection alone
	NDProxyAll = "all"       // lan.nd_proxy: NDProxyDAD, and the resolution of addresses
	Stateful   = "stateful"  // addresses too

	LogText = "text"
	LogJSON = "json"

	MethodRADIUS       = "radius"
	MethodUsers        = "users"
	MethodClickThrough = "click-through"
	MethodVoucher      = "voucher"
	MethodOIDC         = "oidc"

	PAP      = "pap"
	CHAP     = "chap"
	MSCHAPv2 = "mschapv2" // over PPPoE only

	PortWireless = "wireless"
	PortEthernet = "ethernet"

	IdentNAT        = "nat"        // ident.method: peers ask for the client's address
	IdentMasquerade = "masquerade" // ident.method: peers ask for the gateway's address, which clients have outside

	AnswerName   = "name" // ident.answer
	AnswerToken  = "token"
	AnswerHidden = "hidden"

	ForwardAuto     = "auto"     // redirect, unless netfilter has rules for forwarded packets
	ForwardRedirect = "redirect" // past netfilter, whatever its rules are
	ForwardStack    = "stack"    // admit only: the kernel's stack forwards

	// Whether the kernel's programs cache flows where netfilter has rules for forwarded packets.
	FlowCacheAuto   = "auto"   // while the rules decide by what is the same for all packets of a flow
	FlowCacheAlways = "always" // whatever the rules look at
	FlowCacheNever  = "never"  // the kernel's stack forwards every packet

	// What they do with packets beyond a client's rate.
	ShapingAuto  = "auto"  // holds them back where an interface has a queue for that, or the kernel's default one
	ShapingNever = "never" // drops them
)

// Config is a checked gatewayd.toml with defaults filled in.
type Config struct {
	File      string // path as given to Load
	StateDir  string // leases, sessions, keys: kept over a reboot
	RunDir    string // control socket
	LogLevel  slog.Level
	LogFormat string // LogText or LogJSON

	// Networks are the networks of the tables [[network]], each with a configuration as if it were the only one. If there
	// are none, the gateway has one network, that of [lan]. In a Config with Networks only fields that are the same for
	// all of them are set.
	Networks []*Config
	// The next fields are set only in the Config of one of several networks.
	Name    string   // "": the network is the only one
	Reaches []string // names of networks whose clients and this one's reach each other
	Reached []string // the interfaces of these networks, and of networks that name this one
	Subnet  int      // with WAN.Delegation: which /64 of the delegated prefix the network has, from 0

	LAN      LAN
	WAN      WAN
	DHCP     DHCP
	DHCP6    DHCP6
	DNS      DNS
	NAT      NAT
	Garden   Garden
	Portal   Portal
	UAM      UAM
	PPPoE    PPPoE
	Ident    Ident
	Auth     Auth
	OIDC     []OIDC // in the file's order
	Click    ClickThrough
	Devices  Devices
	RADIUS   RADIUS
	Users    Users
	Limits   Limits
	Profiles []Profile // in the file's order
	Datapath Datapath
	FlowLog  FlowLog
	Metrics  Metrics
	Admin    Admin
	Store    Store
	Pair     Pair

	lines map[string]int // where each key was set, from 1; see rowKey
	rows  map[string]int // how many tables each array of tables has
	// In the Config of one of several networks: the line of its table, and the lines of the keys that are for all
	// networks.
	table  int
	common map[string]int
}

// LAN is the interface towards the clients.
type LAN struct {
	Interface      string
	Address        netip.Prefix // the gateway's own, with the network's length: 10.1.0.1/16
	Address6       netip.Prefix // the gateway's own IPv6 address: 2001:db8:1::1/64; zero: clients have no IPv6
	ClientPrefixes ClientPrefixes
	PrefixPools    []PrefixPool // in the file's order, for clients whose login names one, or a /64 of one
	// Inbound6 are networks beyond the WAN whose hosts may open connections to clients by IPv6.
	Inbound6 []netip.Prefix
	NAT64    netip.Prefix // by which clients without IPv4 reach IPv4 hosts, to be advertised; zero: none
	NDProxy  string       // Off, NDProxyDAD or NDProxyAll
	// Repeaters are MAC addresses of devices that many clients are behind, each with an address of its own.
	Repeaters []net.HardwareAddr
}

// ClientPrefixes are IPv6 networks of which each client has a part of its own. The zero value is none.
type ClientPrefixes struct {
	Pool      netip.Prefix // zero: none, or Delegated
	Delegated bool         // the networks are those that the provider delegates
}

// PrefixPool is an IPv6 network, with the name by which RADIUS refers to it.
type PrefixPool struct {
	Name    string
	Network netip.Prefix
}

// On reports whether clients have parts of their own.
func (c ClientPrefixes) On() bool { return c.Delegated || c.Pool.IsValid() }

// Network is the LAN's network.
func (l LAN) Network() netip.Prefix { return l.Address.Masked() }

// Unleasable returns why no client can have an address; empty: a client can.
func (l LAN) Unleasable(a netip.Addr) string {
	switch lan := l.Network(); {
	case !lan.Contains(a):
		return fmt.Sprintf("is not in the LAN, %s", lan)
	case a == l.Address.Addr():
		return "is the gateway's own address"
	case a == lan.Addr():
		return fmt.Sprintf("is the network %s itself", lan)
	case a == lastOf(lan):
		return "is the LAN's broadcast address"
	}
	return ""
}

// WAN is the interface that clients are forwarded to.
type WAN struct {
	Interface  string
	Delegation bool // the provider delegates IPv6 prefixes for the LAN there
}

// DHCP is the configuration of leases.
type DHCP struct {
	Mode       string // Server or External
	Pools      []Range
	Lease      time.Duration
	ShortLease time.Duration    // of clients that are not logged in; 0: Lease
	Static     []Reservation    // in the file's order
	DNS        []netip.Addr     // resolvers in replies
	Domain     string           // empty: none
	MTU        int              // option 26; 0: not sent
	IPv6Only   time.Duration    // option 108; 0: clients that can do without an IPv4 address get one
	Options    map[uint8][]byte // further ones, raw
	Boot       []Boot           // in the file's order
	Claims     bool             // devices may use addresses that nobody leased
	Claimable  []Range          // which ones; without Claims: none
	Relays     []Relay          // that may send clients' messages
	// Information means that switches add relay agent information (option 82) to messages of clients on the LAN.
	Information bool
}

// Boot is what clients of a class load that boot from the network. Classes that are empty are any.
type Boot struct {
	VendorClass, UserClass string     // the beginning of option 60, and one of option 77
	Server                 netip.Addr // that has File; the zero Addr: none is named
	File                   string
}

// DHCP6 is the configuration of DHCPv6.
type DHCP6 struct {
	Mode string // Off, Stateless or Stateful
	// PDPool has the prefixes that clients are delegated (IA_PD). Its zero value is none.
	PDPool   ClientPrefixes
	PDLength int // bits of a delegated prefix
	// PrefixPools are those of clients whose login names one, or a prefix of one, in the file's order.
	PrefixPools []PrefixPool
}

// Range is the addresses from First to Last.
type Range struct{ First, Last netip.Addr }

// Reservation is an address reserved for one client.
type Reservation struct {
	MAC  net.HardwareAddr
	Addr netip.Addr
}

// DNS is the configuration of name resolution.
type DNS struct {
	Mode       string // Server or External
	Upstreams  []netip.AddrPort
	AnswerAAAA bool // false: AAAA queries get an empty answer, because clients have no IPv6
}

// Garden is what clients reach before they log in.
type Garden struct {
	Domains  []string // "example.org", or "*.example.org" for all below it
	Prefixes []netip.Prefix
	Ports    []GardenPort // single ports of further names and networks
}

// GardenPort is a port of the walled garden.
type GardenPort struct {
	Domain   string       // as in Garden.Domains; empty: Prefix
	Prefix   netip.Prefix //
	Protocol uint8        // TCP or UDP, as in IP
	Port     uint16
}

// Portal is the configuration of the web side. Paths are absolute, or relative to the working directory like File.
type Portal struct {
	Enabled    bool
	Port       uint16
	Port80     bool   // answer on port 80 of the gateway's address too
	Name       string // host name of the portal; empty: its address is used
	TLSPort    uint16 // used when there is a certificate
	TLSCert    string // PEM file
	TLSKey     string // PEM file
	Templates  string // folder; empty: the built-in pages
	Title      string
	SuccessURL string // page after login; empty: the requested page
	Terms      string // shown to click-through clients
	WISPr      bool   // smart clients may log in
}

// PPPoE is the configuration of the access concentrator.
type PPPoE struct {
	Enabled      bool
	Name         string         // of the concentrator, in offers
	Services     []string       // offered; none: any that a client asks for
	Networks     []netip.Prefix // outside the LAN, of which clients may have addresses
	Pools        []Range        // of addresses for clients whose login has none
	Named        []Pool         // in the file's order, for clients whose login names one
	Resolvers    []netip.Addr
	Methods      []string      // PAP, CHAP, MSCHAPv2, in the order in which clients are asked for them
	MTU          int           // largest that a client can have (RFC 4638)
	IPv6         bool          // also negotiate interface identifiers
	PerMAC       int           // sessions of a MAC address at once
	MaxSessions  int           // sessions at once
	Waiting      int           // sessions at once whose clients have not logged in yet; part of MaxSessions
	Delay        time.Duration // before an offer
	Echo         time.Duration // between requests that find out whether a client is there
	EchoFailures int           // requests without a reply after which a session ends
}

// Pool is addresses with a name, by which logins choose them.
type Pool struct {
	Name   string
	Ranges []Range
}

// Ident is the configuration of answers by RFC 1413 in the clients' place.
type Ident struct {
	Enabled bool
	Method  string // IdentNAT or IdentMasquerade
	Answer  string // AnswerName, AnswerToken or AnswerHidden
	Rate    int    // queries a second of each asking host

	NameOf, TokenOf, HiddenOf []string // users of whom replies say this, whatever Answer is
}

// Users returns NameOf, TokenOf and HiddenOf by answer.
func (i Ident) Users() map[string][]string {
	return map[string][]string{AnswerName: i.NameOf, AnswerToken: i.TokenOf, AnswerHidden: i.HiddenOf}
}

// Auth is how clients log in.
type Auth struct {
	Methods []string // MethodRADIUS, MethodUsers, MethodVoucher, MethodOIDC, MethodClickThrough
}

// Has reports whether clients may log in this way.
func (a Auth) Has(method string) bool { return slices.Contains(a.Methods, method) }

// UsesRADIUS reports whether servers decide about clients.
func (c *Config) UsesRADIUS() bool { return c.Auth.Has(MethodRADIUS) || c.Devices.RADIUS }

// RADIUS is the configuration of the servers and of requests to them.
type RADIUS struct {
	Primary, Secondary RADIUSServer // Secondary without Address: none
	Method             string       // PAP or CHAP
	Accounting         bool
	SwapOctets         bool // Acct-Input is what the client received, instead of sent
	NASIdentifier      string
	NASAddress         netip.Addr // zero: not sent
	CalledStationID    string     // empty: not sent
	PortType           string     // PortWireless or PortEthernet, of clients at the portal
	PortID             string     // PortInterface or PortVLAN
	Timeout            time.Duration
	Retries            int            // after the first attempt, to each server
	Interim            time.Duration  // between updates, unless the server says
	Dynamic            netip.AddrPort // where servers' requests about sessions come to (RFC 5176); zero: nowhere
}

// Servers lists the configured servers, in order of preference.
func (r RADIUS) Servers() []RADIUSServer {
	var servers []RADIUSServer
	for _, s := range []RADIUSServer{r.Primary, r.Secondary} {
		if s.Address.IsValid() {
			servers = append(servers, s)
		}
	}
	return servers
}

// RADIUSServer is one server.
type RADIUSServer struct {
	Address     netip.AddrPort // authentication
	AcctAddress netip.AddrPort
	Secret      string
	SecretFile  string // the file Secret was read from
}

// Users is the configuration of local accounts.
type Users struct{ File string }

// leastFlows is the least value of flowlog.most, bytes: more than the file that is being written, which is never
// deleted.
const leastFlows = 100_000_000

// FlowLog is the configuration of the log of clients' connections.
type FlowLog struct {
	Enabled  bool
	Folder   string         // empty: flows in StateDir
	KeepFor  time.Duration  // of files
	MaxBytes uint64         // bytes of all files
	IPFIX    netip.AddrPort // of a collector; zero: none
}

// Datapath is the configuration of the data path.
type Datapath struct {
	Kind      string // one of kinds.All, which says what of the rest it heeds
	Fast      bool   // the optimised mode, instead of the mechanism as studied
	Device    string // the name of a device of the data path's own
	Forward   string // ForwardAuto, ForwardRedirect or ForwardStack
	FlowCache string // with ForwardAuto: FlowCacheAuto, FlowCacheAlways or FlowCacheNever
	Shaping   string // ShapingAuto or ShapingNever
	PinDir    string // where programs and maps outlive the daemon
}

// Metrics is where Prometheus reads; without Listen there are no metrics.
type Metrics struct{ Listen netip.AddrPort }

// ControlSocket is the path of the control socket.
func (c *Config) ControlSocket() string { return filepath.Join(c.RunDir, "control.sock") }

// DefaultIdle is the idle timeout of logins at the portal, as openNDS has it: without one, a device that copies a
// client's addresses is logged in for as long as it renews the lease.
const DefaultIdle = 2 * time.Hour

// defaults returns the values of keys that are not set.
func defaults() *Config {
	c := &Config{
		StateDir: "/var/lib/gatewayd", RunDir: "/run/gatewayd", LogFormat: LogText,
		LAN:    LAN{NDProxy: Off},
		DHCP:   DHCP{Mode: Server, Lease: time.Hour},
		DHCP6:  DHCP6{Mode: Stateless, PDLength: 64},
		DNS:    DNS{Mode: Server},
		PPPoE:  PPPoE{Name: "gatewayd", MTU: 1492, PerMAC: 1, MaxSessions: 65535, Echo: 20 * time.Second, EchoFailures: 3},
		Ident:  Ident{Method: IdentNAT, Answer: AnswerName, Rate: 20},
		Portal: Portal{Enabled: true, Port80: true, Port: 8080, TLSPort: 8443, Title: "Welcome"},
		Limits: Limits{IdleTimeout: DefaultIdle},
		Datapath: Datapath{Kind: kinds.All[0].Name, Device: "tun0",
			Forward: ForwardAuto, FlowCache: FlowCacheAuto, Shaping: ShapingAuto,
			PinDir: "/sys/fs/bpf/gatewayd"},
		Devices: Devices{UserName: UserMAC, Format: MACFormats[0], AskRandomised: true, AskAgain: time.Hour, Consent: true},
		Click:   ClickThrough{Terms: TermsButton},
		FlowLog: FlowLog{KeepFor: 90 * day, MaxBytes: 10_000_000_000},
		NAT:     NAT{Hairpin: true},
		Admin:   Admin{Idle: 30 * time.Minute, Longest: 12 * time.Hour},
		Store:   Store{Kind: StoreFile, Prefix: "gateweigh:", Roaming: RoamingOff},
		Pair:    Pair{By: ByKeepalived, Accounting: AccountingContinue, Lease: leaseLeast, Counts: 10 * time.Second},
		lines:   map[string]int{},
		rows:    map[string]int{},
	}
	c.RADIUS = RADIUS{
		Method: PAP, Accounting: true, NASIdentifier: "gatewayd", PortType: PortWireless,
		PortID:  PortInterface,
		Timeout: 2 * time.Second, Retries: 3, Interim: 10 * time.Minute,
	}
	return c
}

// LiveKeys are the keys that take effect when the file is reread. All others need a restart, which interrupts no
// admitted client whose data path needs no daemon.
var LiveKeys = []string{"log_level"}

// Addresses is the number of addresses that clients can be given: those of the pools, PPPoE's too, and the
// reserved ones. Another DHCP server may lease any address of the LAN.
func (c *Config) Addresses() int {
	if c.DHCP.Mode == External || len(c.DHCP.Pools) == 0 {
		return 1<<(32-c.LAN.Network().Bits()) - 3 // network, broadcast and gateway
	}
	n := 0
	for _, r := range slices.Concat(c.DHCP.Pools, c.PPPoE.Pools) {
		n += r.Size()
	}
	for _, r := range c.DHCP.Static {
		if !slices.ContainsFunc(c.DHCP.Pools, func(pool Range) bool { return pool.Contains(r.Addr) }) {
			n++
		}
	}
	for _, r := range c.claimedBeside() {
		n += r.Size()
	}
	return n
}

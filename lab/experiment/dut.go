package experiment

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// CustomDUT is a device under test that a file describes in [dut.NAME]: the commands that install it on the router,
// admit clients and remove it again. lab/dut makes a device of it. docs/adding-a-dut.md is the reference.
type CustomDUT struct {
	Description string `toml:"description,omitempty"` // one line for reports

	// Like names a device written in Go, of which this one is a variant: with Sessions clients admitted, with the
	// parameters of Variant, with a router that Start has changed, or, for a tunnel, with another MTU. Of the other fields
	// only Description, Requires, Kernel, Files, Stop and Timeout may then be set.
	Like     string `toml:"like,omitempty"`
	Sessions int    `toml:"sessions,omitzero"`
	Variant

	Requires map[string]string `toml:"requires,omitempty"` // tool on PATH → package to install
	Kernel   []string          `toml:"kernel,omitempty"`   // options of the kernel's configuration: CONFIG_NFT_QUEUE
	Files    map[string]string `toml:"files,omitempty"`    // path on the router → content, see Vars

	Start  Command `toml:"start,omitempty"`  // on the router; the lab waits until it ends
	Daemon Command `toml:"daemon,omitempty"` // on the router; it runs until the lab ends it
	Ready  Command `toml:"ready,omitempty"`  // on the router; repeated until it exits 0
	Stop   Command `toml:"stop,omitempty"`   // on the router; undoes Start
	// Admit and Revoke run once on the router. Their standard input has a line "n ip mac" for each client.
	Admit  Command `toml:"admit,omitempty"`
	Revoke Command `toml:"revoke,omitempty"`
	// Login, Status and Logout run in each client's namespace.
	Login  Command `toml:"login,omitempty"`
	Status Command `toml:"status,omitempty"`
	Logout Command `toml:"logout,omitempty"`

	// Proof runs on the router under load. Where it does not exit 0, the trial is rejected, with what it printed.
	Proof Command `toml:"proof,omitempty"`
	// Open is true for a device that forwards clients' traffic even before they are admitted. Without it each block tests
	// that the device does not.
	Open bool `toml:"open,omitempty"`

	ReadyTimeout time.Duration `toml:"ready_timeout"` // default 20s
	Timeout      time.Duration `toml:"timeout"`       // of start, stop, admit and revoke each; default 30s

	Processes     []string     `toml:"processes,omitempty"`      // command names that count; empty: all it started
	DHCP          bool         `toml:"dhcp,omitempty"`           // it leases addresses itself
	LAN           netip.Prefix `toml:"lan,omitempty"`            // clients' network; zero: the lab's
	Families      []int        `toml:"families,omitempty"`       // 4, 6: that it forwards; nil: IPv4 alone
	NoAggregation bool         `toml:"no_aggregation,omitempty"` // links to the clients without GRO
	NoTxChecksum  bool         `toml:"no_tx_checksum,omitempty"` // links with checksum offload off

	// Tunnel is true for a tunnel between the two gateways of topology = "tunnel". Its commands run on both gateways at
	// the same time, and both have its files. Overhead is what it adds to each packet, in bytes. MTU is the largest packet
	// that it carries; default the one that fills the link with Overhead.
	Tunnel   bool `toml:"tunnel,omitempty"`
	Overhead int  `toml:"overhead,omitzero"`
	MTU      int  `toml:"mtu,omitzero"`
}

// Environment variables of every command.
const (
	VarLANIf   = "GATEWEIGH_LAN_IF"  // router's interface towards the clients
	VarWANIf   = "GATEWEIGH_WAN_IF"  // router's interface towards the server
	VarLAN     = "GATEWEIGH_LAN"     // clients' network, 192.168.137.0/24
	VarGateway = "GATEWEIGH_GATEWAY" // router's address in it
	VarServer  = "GATEWEIGH_SERVER"  // address traffic goes to
	VarService = "GATEWEIGH_SERVICE" // the server's second address, for RADIUS and portal pages
	VarClients = "GATEWEIGH_CLIENTS" // number of clients

	// Empty where clients have no IPv6.
	VarLAN6     = "GATEWEIGH_LAN6"     // clients' IPv6 network, 2001:db8:137::/64
	VarGateway6 = "GATEWEIGH_GATEWAY6" // router's address in it
	VarServer6  = "GATEWEIGH_SERVER6"  // IPv6 address traffic goes to

	VarScratch = "GATEWEIGH_SCRATCH" // private directory on the router

	// Of a tunnel, each as one of the gateways sees it.
	VarSide    = "GATEWEIGH_SIDE"     // 1 at the clients, 2 at the server
	VarOuterIf = "GATEWEIGH_OUTER_IF" // interface towards the other gateway
	VarOuter   = "GATEWEIGH_OUTER"    // its address there
	VarPeer    = "GATEWEIGH_PEER"     // the other gateway's
	VarFar     = "GATEWEIGH_FAR"      // network behind the other gateway
	VarMTU     = "GATEWEIGH_MTU"      // of the tunnel
	VarSecret  = "GATEWEIGH_SECRET"   // 32 random bytes in base64, another in each lab

	varPrefix = "GATEWEIGH_"
)

// Vars are the environment variables of every command; "${NAME}" is replaced by
// their values in the content of files.
var Vars = []string{
	VarLANIf, VarWANIf, VarLAN, VarGateway, VarServer, VarService, VarClients, VarScratch,
	VarLAN6, VarGateway6, VarServer6,
	VarSide, VarOuterIf, VarOuter, VarPeer, VarFar, VarMTU, VarSecret,
}

// Command is an argument vector. In TOML it is a list, or a string for sh -c.
type Command []string

// String returns the command in one line, for messages; of a script it has the first line.
func (c Command) String() string {
	shown := strings.Join(c, " ")
	if len(c) == 3 && c[0] == "sh" && c[1] == "-c" {
		shown = c[2]
	}
	first, _, more := strings.Cut(strings.TrimSpace(shown), "\n")
	if more {
		first += " …"
	}
	return first
}

// MarshalTOML writes a shell command as the string that it was read from.
func (c Command) MarshalTOML() ([]byte, error) {
	var v any = []string(c)
	if len(c) == 3 && c[0] == "sh" && c[1] == "-c" {
		v = c[2]
		if s := c[2]; strings.Contains(s, "\n") && isLiteral(s) {
			return []byte("'''\n" + s + "'''"), nil
		}
	}
	b, err := toml.Marshal(map[string]any{"v": v})
	return []byte(strings.TrimSpace(strings.TrimPrefix(string(b), "v = "))), err
}

// isLiteral reports whether s can stand between ”' as it is.
func isLiteral(s string) bool {
	control := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }
	return !strings.Contains(s, "''") && !strings.HasSuffix(s, "'") && !strings.ContainsFunc(s, control)
}

// command is the parser of a Command.
func command(v any) (Command, error) {
	if s, ok := strict.Text(v); ok {
		if strings.TrimSpace(s) == "" || strings.ContainsRune(s, 0) {
			return nil, errors.New("must not be empty: leave the key out")
		}
		return Command{"sh", "-c", s}, nil
	}
	items, ok := v.([]any)
	if !ok || len(items) == 0 {
		return nil, fmt.Errorf(`must be a shell command or a list ["program", "argument"], not %s`, strict.Show(v))
	}
	var c Command
	for _, it := range items {
		s, ok := it.(string)
		if !ok || strings.ContainsRune(s, 0) || (len(c) == 0 && s == "") {
			return nil, fmt.Errorf("each argument must be a string, not %s", strict.Show(it))
		}
		c = append(c, s)
	}
	return c, nil
}

// dutFields is every key of [dut.NAME].
var dutFields = slices.Concat(likeFields, variantFields, tableFields)

// likeFields are the keys of a device that is a variant of one written in Go.
var likeFields = []fieldOf[CustomDUT]{
	field("description", text, func(d *CustomDUT) *string { return &d.Description }).
		means("one line for reports"),
	field("like", name, func(d *CustomDUT) *string { return &d.Like }).
		means("base device: one of `gateweigh list` written in Go (`opennds`, `coovachilli`, `gateway-…`), or " +
			"`gateway`: gatewayd with the [parameters](../adding-a-dut.md#gatewayd-with-other-parameters) `path`, " +
			"`nat`, `pppoe`, `ident` and `limited`. The new device is the base device with these, with `sessions` " +
			"(possible for `gateway-…` only), on a router that `start` has modified, such as by [rules that " +
			"masquerade](../../examples/masquerade.toml), or a tunnel with another `mtu`. Only `description`, " +
			"`requires`, `kernel`, `files`, `stop` and `timeout` may accompany it"),
	field("sessions", strict.Integer(1, MaxSessions), func(d *CustomDUT) *int { return &d.Sessions }).
		means("how many clients are admitted, up to 200,000: the clients that send, guests included (at most 4000 " +
			"together), and before them others that never send"),
}

// tableFields are the keys of a device that is described by its commands.
var tableFields = []fieldOf[CustomDUT]{
	field("requires", stringTable, func(d *CustomDUT) *map[string]string { return &d.Requires }).
		means("tools that must be on PATH, each with the package that has it: `{ nft = \"nftables\" }`"),
	field("kernel", List(option), func(d *CustomDUT) *[]string { return &d.Kernel }).
		means("options of the kernel's configuration that the device needs: `[\"CONFIG_NFT_QUEUE\"]`. Where this " +
			"machine's kernel lacks one, the device is skipped, and the report says whether it runs with " +
			"[`--kernel debian`](../kernels.md)"),
	field("files", stringTable, func(d *CustomDUT) *map[string]string { return &d.Files }).
		means("files to write on the router first: path → content. A relative path is in the scratch directory, " +
			"which is also where commands start; an absolute one must be below `/etc`, `/run`, `/tmp` or " +
			"`/var/lib`. `${GATEWEIGH_…}` in the content is replaced by the variable's value; other `$` are left " +
			"alone"),
	field("start", command, func(d *CustomDUT) *Command { return &d.Start }).
		means("installs the device and ends"),
	field("daemon", command, func(d *CustomDUT) *Command { return &d.Daemon }).
		means("stays in the foreground until the lab ends it. Needs `ready`"),
	field("ready", command, func(d *CustomDUT) *Command { return &d.Ready }).
		means("exits 0 once admitted clients' packets will be forwarded"),
	field("stop", command, func(d *CustomDUT) *Command { return &d.Stop }).
		means("undoes `start`"),
	field("admit", command, func(d *CustomDUT) *Command { return &d.Admit }).
		means("admits all clients at once, on the router. Standard input has a line `n ip mac` for each"),
	field("revoke", command, func(d *CustomDUT) *Command { return &d.Revoke }).
		means("undoes `admit`, with the same input"),
	field("login", command, func(d *CustomDUT) *Command { return &d.Login }).
		means("logs in one client, run in that client's namespace. Instead of `admit`"),
	field("status", command, func(d *CustomDUT) *Command { return &d.Status }).
		means("exits 0 if the client is logged in"),
	field("logout", command, func(d *CustomDUT) *Command { return &d.Logout }).
		means("logs the client out"),
	field("proof", command, func(d *CustomDUT) *Command { return &d.Proof }).
		means("asked under load on the router, of a tunnel on both gateways: where it does not exit 0, the trial is" +
			" rejected with what it prints"),
	field("open", strict.Boolean, func(d *CustomDUT) *bool { return &d.Open }).
		means("clients' traffic is forwarded before they are admitted too, and after they are revoked: the lab then" +
			" does not prove that they are kept out. Needs `admit` or `login`; a device without them keeps nobody" +
			" out anyway"),
	field("ready_timeout", Duration(time.Second, 10*time.Minute),
		func(d *CustomDUT) *time.Duration { return &d.ReadyTimeout }).
		means("how long `ready` may take"),
	field("timeout", Duration(time.Second, 10*time.Minute), func(d *CustomDUT) *time.Duration { return &d.Timeout }).
		means("how long `start`, `stop`, `admit` and `revoke` may take each"),
	field("processes", List(process), func(d *CustomDUT) *[]string { return &d.Processes }).
		means("command names, as `ps -o comm` shows them, whose CPU and memory count. Default: every process the " +
			"device started on the router"),
	field("dhcp", strict.Boolean, func(d *CustomDUT) *bool { return &d.DHCP }).
		means("the device leases addresses itself. Otherwise the lab runs a DHCP server and does not count it"),
	field("lan", network, func(d *CustomDUT) *netip.Prefix { return &d.LAN }).
		means("the clients' network, `\"10.1.0.0/16\"`; default `192.168.137.0/24`. A device with a network of its " +
			"own gives the router its address in it (`GATEWEIGH_GATEWAY`) and leases addresses itself (`dhcp`)"),
	field("families", List(dutFamily), func(d *CustomDUT) *[]int { return &d.Families }).
		means("IP protocols that it forwards: `[4]`, `[4, 6]` or `[6]`; default `[4]`. Cells of another `family` are " +
			"left out, with the reason"),
	field("no_aggregation", strict.Boolean, func(d *CustomDUT) *bool { return &d.NoAggregation }).
		means("switches receive aggregation (GRO) off towards the clients, whatever the profile: for devices that " +
			"read packets from a raw socket"),
	field("no_tx_checksum", strict.Boolean, func(d *CustomDUT) *bool { return &d.NoTxChecksum }).
		means("switches transmit checksum offload off. The clean router beside the device gets the same"),
	field("tunnel", strict.Boolean, func(d *CustomDUT) *bool { return &d.Tunnel }).
		means("it makes a tunnel between the gateways of `topology = \"tunnel\"`: see [a tunnel](../adding-a-" +
			"dut.md#a-tunnel)"),
	field("overhead", strict.Integer(0, maxOverhead), func(d *CustomDUT) *int { return &d.Overhead }).
		means("of a tunnel: bytes that it puts around each packet, with the outer IP header; default 0. The useful " +
			"rate by theory follows from it"),
	field("mtu", strict.Integer(minMTU, maxMTU), func(d *CustomDUT) *int { return &d.MTU }).
		means("of a tunnel: the largest packet that it takes, 576 to 1500; default 1500 less `overhead`. Datagrams " +
			"of the load are as long as it allows"),
}

// Bounds of a tunnel's MTU, bytes: what every IPv4 host must take (RFC 791), and Ethernet's.
const (
	minMTU, maxMTU = 576, 1500
	maxOverhead    = maxMTU - minMTU
)

// DUTKeys lists the keys of [dut.NAME], in the order of the documentation.
func DUTKeys() []string { return keysOf(dutFields) }

// defaultDUT is a device with no key set.
var defaultDUT = CustomDUT{ReadyTimeout: 20 * time.Second, Timeout: 30 * time.Second}

// assignDUT sets a key below "dut": the table NAME itself, or NAME.KEY.
func (e *Experiment) assignDUT(key toml.Key, value any) (descend bool, err error) {
	dutName, err := name(key[0])
	if err != nil {
		return false, fmt.Errorf("a device %w", err)
	}
	d, exists := e.Custom[dutName]
	if len(key) == 1 {
		if _, isTable := value.(map[string]any); !isTable {
			return false, fmt.Errorf("must be a table: [dut.%s]", dutName)
		}
		e.Custom[dutName] = defaultDUT
		return true, nil
	}
	if !exists {
		return false, fmt.Errorf("no device %q is described in [dut.%s]", dutName, dutName)
	}
	rest := key[1:].String()
	for _, f := range dutFields {
		if f.key == rest {
			err := f.set(&d, value)
			e.Custom[dutName] = d
			if err != nil {
				e.badDUTs[dutName] = true
			}
			return false, err
		}
	}
	e.badDUTs[dutName] = true
	return false, fmt.Errorf("unknown key of a device%s", near.Suggestion(rest, DUTKeys()))
}

// dutKey is the dotted key of a device's key, as errors name it.
func dutKey(dutName, key string) string {
	k := toml.Key{"dut", dutName}
	if key != "" {
		k = append(k, key)
	}
	return k.String()
}

// process accepts a command name as the kernel keeps it.
var process = strict.AcceptText(
	"a command name as ps -o comm shows it, at most 15 bytes", func(s string) (string, bool) {
		return s, s != "" && len(s) <= 15 && !strings.ContainsAny(s, "/\n")
	})

// option accepts the name of an option of the kernel's configuration.
var option = strict.AcceptText(
	"an option of the kernel's configuration, such as CONFIG_NFT_QUEUE", func(s string) (string, bool) {
		name, found := strings.CutPrefix(s, "CONFIG_")
		odd := func(r rune) bool {
			return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
		}
		return s, found && name != "" && !strings.ContainsFunc(name, odd)
	})

// stringTable accepts a table of strings.
func stringTable(v any) (map[string]string, error) {
	items, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("must be a table of strings, not %s", strict.Show(v))
	}
	table := make(map[string]string, len(items))
	for _, k := range slices.Sorted(maps.Keys(items)) {
		s, ok := items[k].(string)
		if !ok || k == "" {
			return nil, fmt.Errorf("%q must be a string, not %s", k, strict.Show(items[k]))
		}
		table[k] = s
	}
	return table, nil
}

// privateDirs are the directories of which each host of a lab has a private copy. A file elsewhere would be written to
// the machine itself.
var privateDirs = []string{"/etc", "/run", "/tmp", "/var/lib"}

// checkFiles refuses files with a bad path or an unknown variable.
func (d CustomDUT) checkFiles(report Report) {
	for _, p := range slices.Sorted(maps.Keys(d.Files)) {
		if problem := checkFile(p, d.Files[p]); problem != "" {
			report("files", "%s", problem)
		}
	}
}

// check refuses combinations of a device's keys.
func (d CustomDUT) check(report Report) {
	if d.Like != "" {
		d.checkLike(report)
		return
	}
	for _, c := range []struct {
		bad          bool
		key, problem string
	}{
		{d.Sessions != 0, "sessions", "needs like: the device that is to have them"},
		{d.Variant != Variant{}, d.Variant.Key(), fmt.Sprintf("needs like = %q, whose parameter it is", Parametrised)},
		{len(d.Start)+len(d.Daemon) == 0, "", "needs start or daemon: a command that installs it on the router"},
		{len(d.Daemon) > 0 && len(d.Ready) == 0, "daemon",
			"needs ready: a command that exits 0 once the daemon serves clients"},
		{len(d.Login) > 0 && len(d.Admit) > 0, "admit",
			"clients are admitted either on the router (admit) or from the client (login), not both"},
		{len(d.Revoke) > 0 && len(d.Admit) == 0, "revoke", "needs admit"},
		{len(d.Status) > 0 && len(d.Login) == 0, "status", "needs login"},
		{len(d.Logout) > 0 && len(d.Login) == 0, "logout", "needs login"},
		{d.Open && len(d.Login)+len(d.Admit) == 0, "open",
			"needs admit or login: a device without them admits nobody, and is open"},
		{d.Tunnel && len(d.Login)+len(d.Admit) > 0, "tunnel", "admits nobody: leave out login and admit"},
		{d.Tunnel && (d.DHCP || d.LAN.IsValid()), "tunnel", "leases no addresses: leave out dhcp and lan"},
		{!d.Tunnel && d.Overhead != 0, "overhead", "needs tunnel = true"},
		{!d.Tunnel && d.MTU != 0, "mtu", "needs tunnel = true, or like: the tunnel that is to have it"},
	} {
		if c.bad {
			report(c.key, "%s", c.problem)
		}
	}
}

// checkLike refuses keys that a variant of a device written in Go (Like) cannot have.
func (d CustomDUT) checkLike(report Report) {
	if d.MTU > 0 && (d.Sessions > 0 || len(d.Start) > 0) {
		report("mtu", "goes neither with sessions nor with start: a tunnel has no clients, and two gateways")
	}
	if d.Variant != (Variant{}) && d.Like != Parametrised {
		report(d.Variant.Key(), "needs like = %q, whose parameter it is: %q has its own", Parametrised, d.Like)
	}
	d.Variant.check(report)
	if d.PPPoE && d.Sessions > 0 {
		report("sessions", "does not go with pppoe: the lab makes no PPPoE clients that never send")
	}
	switch plain := d.Sessions == 0 && d.MTU == 0 && len(d.Start) == 0 && d.Variant == (Variant{}); {
	case plain && d.Like == Parametrised:
		report("like", "needs a parameter, sessions or start: without them the device is \"gateway-ebpf\"")
	case plain:
		report("like", "needs sessions, start or mtu: without them the device is %q itself", d.Like)
	}
	if len(d.Start) == 0 && len(d.Stop)+len(d.Files)+len(d.Requires)+len(d.Kernel) > 0 {
		report("like", "stop, files, requires and kernel go with start: what the router has beside the device")
	}
	d.Description, d.Like, d.Sessions, d.MTU, d.Variant = "", "", 0, 0, Variant{}
	d.Start, d.Stop, d.Files, d.Requires, d.Kernel, d.Timeout = nil, nil, nil, nil, nil, defaultDUT.Timeout
	if !reflect.DeepEqual(d, defaultDUT) {
		report("like", "contradicts keys that describe a device: only description, sessions, mtu, parameters, start, "+
			"stop, files, requires, kernel and timeout go with it")
	}
}

// checkFile returns what is wrong with a file of a device, or "".
func checkFile(p, content string) string {
	inside := func(dir string) bool { return strings.HasPrefix(p, dir+"/") }
	switch {
	case path.Clean(p) != p || p == "." || strings.HasPrefix(p, ".."):
		return fmt.Sprintf("%q is no plain file path", p)
	case path.IsAbs(p) && !slices.ContainsFunc(privateDirs, inside):
		return fmt.Sprintf("%q would change the machine: use a relative path (in $%s) or one below %s", p, VarScratch,
			strings.Join(privateDirs, ", "))
	}
	for _, part := range strings.Split(content, "${"+varPrefix)[1:] {
		v, _, _ := strings.Cut(part, "}")
		if v = varPrefix + v; !slices.Contains(Vars, v) {
			return fmt.Sprintf("%q: unknown variable %s%s", p, strict.Show(v), near.Suggestion(v, Vars))
		}
	}
	return ""
}

package gateweigh_test

const module = "github.com/gateweigh/gateweigh"

// allowedImports is the architecture: which packages of the module each package
// may import. "lab/..." stands for everything below lab. Data flows from
// experiment over runner and result to analysis and report; the gateway is to
// the lab one device among others, so the two share nothing.
var allowedImports = map[string][]string{
	".":          {},
	".ci/tally":  {},
	"mlrsearch":  {}, // RFC 9971 for any program
	"ppp":        {}, // one end of PPP links, and PPPoE's frames, for gatewayd and for clients of the lab
	"ppp/pppoe":  {},
	"manual":     {}, // what a program's commands say of themselves: man pages, completion, documentation
	"meant":      {}, // the command or flag that a misspelt one is near to
	"output":     {}, // a program's standard output
	"packaging":  {}, // what the packages have, and tests that install them
	"quote":      {}, // commands that readers copy
	"monitoring": {}, // dashboards and alert rules
	"textfile":   {}, // files that people write with any editor

	// For both programs, so every package may import them.
	"internal/near":           {},                     // the known word that a mistyped one is near to
	"internal/strict":         {"textfile"},           // TOML in which every key must be known
	"internal/sockbuf":        {},                     // how much a socket holds
	"internal/browsertest":    {},                     // Chromium for tests
	"internal/goldentest":     {},                     // files that tests compare with
	"internal/prometheustest": {"internal/netnstest"}, // a Prometheus for tests
	"internal/logtest":        {},                     // logs for tests
	"internal/netnstest":      {},                     // namespaces for tests
	"internal/sshtest":        {},                     // machines with an sshd for tests
	"internal/slurmtest":      {"internal/netnstest"}, // a Slurm for tests
	"internal/redistest":      {"internal/netnstest"}, // a Redis for tests

	"cmd/gateweigh":       {"lab/...", "manual", "meant", "output", "quote"},
	"cmd/gateweigh-agent": {"lab/agent", "lab/machine"},
	"cmd/gatewayd": {"gateway", "gateway/chilliconf", "gateway/config", "gateway/control", "gateway/flowlog",
		"gateway/units", "gateway/users", "gateway/voucher", "gateway/voucher/sheet", "manual", "meant", "output", "quote",
		"textfile"},

	"gateway":               {"gateway/...", "ppp", "quote"},
	"gateway/access":        {"gateway/session"}, // who may pass
	"gateway/arp":           {},                  // whether hosts of the LAN are there, and answers to new ones
	"gateway/config":        {"gateway/datapath", "gateway/datapath/kinds", "textfile"},
	"gateway/control":       {"gateway/session", "gateway/voucher"},
	"gateway/voucher/sheet": {"gateway/voucher"}, // prints vouchers
	"gateway/voucher": {"gateway/allowance", "gateway/cluster", "gateway/session", "gateway/statefile",
		"gateway/ticker", "gateway/timeline"}, // cluster: gateways may have vouchers together
	"gateway/allowance": {"gateway/session"}, // time and bytes that sessions share
	// so much a day
	"gateway/daily": {"gateway/allowance", "gateway/cluster", "gateway/session", "gateway/statefile",
		"gateway/ticker", "gateway/timeline"}, // cluster: what is used at other gateways
	"gateway/cluster": {"gateway/budget"}, // a store that several gateways share
	// the sessions that other gateways have
	"gateway/elsewhere": {"gateway/cluster", "gateway/datapath", "gateway/session"},
	"gateway/rooms":     {"gateway/listfile"}, // who has which room
	"gateway/due":       {},                   // what is to be done, in the order of its times
	"gateway/ticker":    {},                   // when those that look from time to time do so
	"gateway/budget":    {},                   // how often something may be done for each of many senders
	"gateway/datapath":  {"gateway/budget"},
	// Data paths, one folder each; none imports another.
	"gateway/datapath/*": {"gateway/arp", "gateway/ticker", "gateway/budget", "gateway/datapath",
		"gateway/datapath/machine/...", "gateway/framelink", "gateway/keeper", "gateway/netfilter/guard",
		"gateway/netfilter/nftables", "gateway/shared", "ppp/pppoe"},
	"gateway/datapath/kinds": {"gateway/datapath/..."}, // the table of them
	// clients in the kernel's neighbour table
	"gateway/datapath/machine/neighbour": {"gateway/budget", "gateway/datapath", "gateway/datapath/machine/stack"},
	// networks behind clients in the kernel's routing table
	"gateway/datapath/machine/routes": {"gateway/datapath", "gateway/datapath/machine/stack"},
	"gateway/datapath/machine/stack":  {"gateway/netfilter/nftables"}, // what the kernel's stack would do

	// Data paths in user space: who may pass, and one folder for each way there.
	"gateway/datapath/compared/admission": {"gateway/budget", "gateway/datapath"},
	"gateway/datapath/compared/*": {"gateway/arp", "gateway/budget", "gateway/datapath",
		"gateway/datapath/compared/admission", "gateway/datapath/compared/nfqueue/queue",
		"gateway/datapath/machine/...", "gateway/netfilter/guard", "gateway/netfilter/nftables"},
	"gateway/datapath/compared/nfqueue/queue": {},

	"gateway/keeper": {}, // open files outlive the daemon

	// What clients say about their addresses, and are told: their frames, which address is whose, router advertisements.
	"gateway/framelink":  {"internal/sockbuf", "ppp", "ppp/pppoe"},
	"gateway/prefixpool": {}, // a /64 for each client
	"gateway/bindings":   {"gateway/budget", "gateway/due", "gateway/framelink"},
	"gateway/routeradv":  {"gateway/budget", "gateway/due", "gateway/framelink"},

	// netfilter as the kernel has it: connections, what keeps a LAN without a data path closed, rules
	"gateway/netfilter/conntrack": {},
	"gateway/netfilter/connlimit": {"gateway/budget", "gateway/datapath", "gateway/netfilter/conntrack",
		"gateway/netfilter/guard", "gateway/netfilter/nftables", "gateway/ticker"}, // how many there are of a client
	"gateway/netfilter/guard":    {"gateway/datapath", "gateway/netfilter/nftables"},
	"gateway/netfilter/nftables": {},
	"gateway/nat": {"gateway/ticker", "gateway/datapath", "gateway/netfilter/guard", "gateway/datapath/machine/stack",
		"gateway/netfilter/nftables", "gateway/shared"},

	// what clients' connections were
	"gateway/flowlog": {"gateway/datapath", "gateway/netfilter/conntrack", "gateway/netfilter/guard",
		"gateway/netfilter/nftables", "gateway/shared", "gateway/statefile"},
	// who a client is, for servers that ask
	"gateway/ident":      {"gateway/budget", "gateway/netfilter/conntrack"},
	"gateway/forwarding": {"gateway/shared"}, // the kernel's switch
	"gateway/shared":     {"gateway/netfilter/guard", "gateway/netfilter/nftables"},

	"gateway/dhcp":  {"gateway/framelink", "gateway/ticker", "gateway/budget", "gateway/leasefile"},
	"gateway/dhcp6": {"gateway/budget", "gateway/due", "gateway/framelink", "gateway/leasefile", "gateway/ticker"},
	"gateway/dns":   {"gateway/budget"},
	// who guesses passwords; cluster: at other gateways, too
	"gateway/guesses": {"gateway/budget", "gateway/cluster", "gateway/session", "gateway/ticker"},
	"gateway/portal": {"gateway/budget", "gateway/certificate", "gateway/guesses", "gateway/oidc", "gateway/rooms",
		"gateway/session", "gateway/uam", "gateway/weblink", "gateway/wispr", "textfile"},
	"gateway/uam":         {"gateway/budget", "gateway/guesses", "gateway/session", "gateway/weblink", "gateway/wispr"},
	"gateway/weblink":     {}, // URLs of sites that a client asked for
	"gateway/wispr":       {},
	"gateway/oidc":        {"gateway/session", "textfile"}, // logins at OpenID providers
	"gateway/visit":       {"gateway/budget", "gateway/datapath", "gateway/dns", "gateway/oidc"},
	"gateway/certificate": {"textfile"}, // TLS certificates in files
	"gateway/units":       {},           // quantities in words
	// the page and API of those who look after the gateway
	"gateway/admin": {"gateway/certificate", "gateway/control", "gateway/flowlog", "gateway/guesses", "gateway/session",
		"gateway/statefile", "gateway/units", "gateway/users", "gateway/voucher"},
	"gateway/pppoe":      {"gateway/budget", "gateway/datapath", "gateway/due", "ppp", "ppp/pppoe"},
	"gateway/radius":     {"gateway/budget", "gateway/session", "gateway/statefile"},
	"gateway/session":    {"gateway/datapath", "gateway/due", "gateway/statefile", "gateway/timeline"},
	"gateway/users":      {"gateway/config", "gateway/listfile", "gateway/session", "gateway/statefile", "textfile"},
	"internal/oidctest":  {"internal/netnstest"},              // an OpenID provider in tests
	"gateway/chilliconf": {"gateway/config", "internal/near"}, // CoovaChilli's configuration
	// files in which people write an entry a line
	"gateway/listfile": {"gateway/ticker", "textfile"},
	// devices that come in without a login
	"gateway/device": {"gateway/budget", "gateway/cluster", "gateway/config", "gateway/datapath",
		"gateway/listfile", "gateway/session", "gateway/statefile", "gateway/ticker", "gateway/users"},

	"gateway/timeline": {"gateway/statefile"}, "gateway/statefile": {}, // times in files; files that may be damaged
	"gateway/leasefile":  {"gateway/statefile", "gateway/timeline"},
	"gateway/delegation": {"gateway/statefile", "gateway/timeline"}, // prefixes of the provider

	"gateway/datapath/datapathtest": {"gateway/datapath"},
	// a table of sessions for tests
	"gateway/allowance/allowancetest": {"gateway/allowance", "gateway/session"},

	"lab/result":  {"lab/scratch", "textfile"},
	"lab/scratch": {}, // folders that end with their process
	// opens the counters of each client's namespace
	"lab/client":  {"lab/words", "lab/meter", "lab/client/persona", "lab/traffic", "lab/traffic/socket", "ppp/pppoe"},
	"lab/traffic": {"lab/result", "lab/traffic/socket"}, // result names the directions
	"lab/meter":   {"lab/softirq"}, "lab/softirq": {},   // links that are polled in interrupts
	"lab/burn":     {"lab/realtime"},                            // a share of CPUs' time
	"lab/realtime": {},                                          // priority of threads
	"lab/watch":    {"lab/layout"},                              // whether a CPU is away
	"lab/kernel":   {},                                          // kernels in files, and Debian's
	"lab/vm":       {"lab/kernel", "lab/result", "lab/scratch"}, // runs a program under another kernel
	"lab/hook":     {},                                          // eBPF programs at tc
	"lab/sink":     {"lab/layout", "lab/hook", "quote"},         // ways to capture
	"lab/floor":    {"lab/layout", "lab/hook"},                  // forwarding with nothing decided
	"lab/profile":  {"lab/result"},
	// for the traits of their kinds
	"lab/experiment": {"lab/analysis/inference", "lab/result", "lab/client", "lab/traffic", "lab/traffic/frames",
		"lab/traffic/frames/capture", "lab/traffic/short", "lab/words", "textfile"},
	"lab/machine": {"lab/meter", "lab/realtime"}, // what a machine is, read on it
	"lab/agent": {"lab/nic", "lab/scratch", "output",
		"lab/watch", "lab/realtime", "lab/traffic/frames/capture", "lab/burn",
		"lab/realtime", "lab/floor", "lab/sink", "lab/result", "lab/client", "lab/client/persona", "lab/traffic",
		"lab/traffic/iperf3", "lab/traffic/pulse", "lab/traffic/rtt",
		"lab/traffic/short", "lab/traffic/transition", "lab/traffic/frames",
		"lab/traffic/frames/send", "lab/traffic/frames/receive", "lab/meter", "lab/machine", "lab/profile",
		"lab/traffic/socket"},
	"lab/backend":  {"lab/agent", "lab/client", "lab/nic", "lab/scratch"},
	"lab/nic":      {"lab/result", "lab/softirq"}, // interfaces of a machine, lent to a lab
	"lab/topology": {"lab/agent", "lab/backend", "lab/client", "lab/realtime"},
	"lab/dut": {
		"lab/agent", "lab/client", "lab/experiment", "lab/floor", "lab/kernel", "lab/machine", "lab/sink", "quote"},
	// blocks of experiments on the nodes of a scheduler
	"lab/campaign": {"lab/experiment", "lab/result", "lab/words", "quote"},
	"lab/runner": {"lab/analysis/inference", "lab/scratch", "lab/burn", "lab/experiment", "lab/backend", "lab/topology",
		"lab/agent",
		"lab/client",
		"lab/dut", "lab/machine", "lab/bench", "lab/meter", "lab/result", "lab/traffic", "lab/words"},
	"lab/tunnel":   {}, // what headers leave of a link
	"lab/words":    {}, // counts and lists in sentences
	"lab/analysis": {"lab/result", "lab/analysis/inference", "lab/words"},
	"lab/doctor": {"lab/scratch", "lab/experiment", "lab/backend", "lab/topology", "lab/agent", "lab/client", "lab/dut",
		"lab/machine", "lab/meter", "lab/measure", "lab/bench", "lab/runner", "lab/realtime", "lab/words", "lab/result",
		"lab/analysis"},
	"lab/studies": {"lab/analysis", "lab/measure/capture", "lab/measure/cost", "lab/measure/rate",
		"lab/measure/transfer", "lab/measure/transition", "lab/result", "lab/words"},
	"lab/report": {"lab/analysis", "lab/measure", "lab/measure/capture", "lab/measure/cost", "lab/measure/logins",
		"lab/measure/failover", "lab/measure/roaming",
		"lab/measure/rate", "lab/measure/throughput", "lab/measure/transfer", "lab/measure/transition", "lab/profile",
		"lab/result", "lab/studies", "lab/report/chart", "lab/words"},
	"lab/compare": {
		"textfile", "lab/analysis", "lab/analysis/inference", "lab/measure", "lab/measure/cost", "lab/result", "lab/words"},

	"lab/archive": {"lab/result"}, // folders of runs: what is in them, and how far it is
	// a figure over many runs
	"lab/trend": {"lab/analysis", "lab/compare", "lab/report", "lab/report/chart", "lab/result", "lab/words"},
	// shows all this to browsers, and reads folders only
	"lab/live": {"lab/analysis", "lab/archive", "lab/campaign",
		"lab/compare", "lab/measure", "lab/report", "lab/result", "lab/studies",
		"lab/trend", "lab/words", "quote"},

	// Writes the generated pages of the manual.
	"lab/reference": {
		"lab/analysis", "lab/compare", "lab/dut", "lab/experiment", "lab/measure", "lab/measure/throughput", "lab/result",
		"lab/studies"},

	// What can be measured: the table, one folder each, and the labs that all of them work on.
	"lab/measure": {
		"lab/experiment", "lab/runner", "lab/dut", "lab/topology", "lab/result", "lab/analysis", "lab/measure/..."},
	"lab/measure/*": {"mlrsearch", "lab/measure/failover", "lab/agent", "lab/analysis", "lab/bench", "lab/burn",
		"lab/client", "lab/dut", "lab/backend", "lab/experiment", "lab/meter", "lab/profile", "lab/result", "lab/runner",
		"lab/topology", "lab/traffic/...", "lab/tunnel", "lab/words"},
	"lab/bench": {"lab/words", "lab/experiment", "lab/agent", "lab/burn", "lab/client", "lab/dut",
		"lab/backend", "lab/meter", "lab/result", "lab/topology", "lab/traffic", "lab/traffic/frames",
		"lab/traffic/frames/send", "lab/traffic/rtt"},

	"lab/client/persona": {"lab/layout", "ppp", "ppp/pppoe"}, // many clients behind one interface

	"lab/traffic/iperf3": {"lab/result", "lab/traffic"},

	"lab/traffic/frames":         {"textfile"},           // sizes, times and numbers of frames
	"lab/traffic/frames/capture": {"lab/traffic/frames"}, // decodes captures
	"lab/traffic/frames/receive": {"lab/hook", "lab/layout", "lab/traffic/frames", "lab/traffic/frames/scale"},
	"lab/traffic/frames/scale":   {}, // distributions of times
	"lab/traffic/frames/send": {
		"lab/layout", "lab/realtime", "lab/traffic/frames", "lab/traffic/frames/scale", "lab/traffic/socket", "quote"},

	"lab/traffic/pulse":      {"lab/traffic/socket"}, // for how long packets get lost
	"lab/traffic/rtt":        {"lab/traffic/socket"},
	"lab/traffic/short":      {},
	"lab/traffic/transition": {"lab/hook", "lab/layout", "lab/traffic/frames/scale", "lab/traffic/socket"},
	"lab/traffic/socket":     {}, // threads and sockets of generators and probes

	"lab/analysis/inference": {},
	"lab/analysis/analysistest": {
		"lab/dut", "lab/measure/capture", "lab/measure/cost", "lab/measure/logins", "lab/result", "lab/traffic/frames"},
	"lab/report/chart": {},             // draws; knows nothing of what is drawn
	"lab/layout":       {},             // whether Go and the kernel's programs agree on their types
	"lab/labtest":      {"lab/kernel"}, // what tests of several packages share
	// whole runs for tests of measures
	"lab/runner/runnertest": {"lab/experiment", "lab/result", "lab/runner"},
	"manual/manualtest":     {"manual"}, // what the manuals of both programs must show
}

// testImports is what test files may import beyond their package's own, and beyond internal, which is for all.
var testImports = map[string][]string{
	"cmd/gateweigh": {"manual/manualtest"},
	"manual":        {"manual/manualtest"},
	// the lab's side of the protocol
	"cmd/gateweigh-agent": {"lab/agent", "lab/machine"},
	// serves a table of its own to the verbs
	"cmd/gatewayd": {"gateway/session", "manual/manualtest", "ppp", "ppp/pppoe"},

	"gateway/datapath/*":          {"gateway/datapath/datapathtest", "gateway/flowlog", "gateway/keeper"},
	"gateway/datapath/compared/*": {"gateway/datapath/datapathtest"},
	"gateway/access":              {"gateway/users"},
	"gateway/daily":               {"gateway/allowance/allowancetest"},
	"gateway/voucher":             {"gateway/allowance/allowancetest"},
	"gateway/admin":               {"gateway/datapath"},

	"lab/analysis": {"lab/analysis/analysistest", "lab/measure/cost"}, // whose metrics follow laws
	"lab/agent":    {"lab/labtest"},
	"lab/burn":     {"lab/labtest", "lab/realtime"},
	"lab/watch":    {"lab/labtest"},
	"lab/sink":     {"lab/labtest", "lab/traffic/frames", "lab/traffic/frames/send"},
	"lab/client":   {"lab/labtest"},
	"lab/compare":  {"lab/analysis/analysistest"},
	"lab/archive":  {"lab/analysis/analysistest"},
	"lab/trend":    {"lab/analysis/analysistest", "lab/measure"},
	"lab/live":     {"lab/analysis/analysistest", "lab/labtest"},
	"lab/doctor":   {"lab/labtest", "lab/traffic"},
	// devices are tested in real labs
	"lab/dut": {"lab/backend", "lab/topology", "lab/labtest", "lab/meter", "lab/traffic", "lab/traffic/frames",
		"lab/traffic/frames/send"},
	"lab/machine":  {"lab/labtest"},
	"lab/profile":  {"lab/labtest"},
	"lab/backend":  {"lab/labtest", "lab/topology"},
	"lab/topology": {"lab/meter", "lab/labtest", "lab/result", "lab/traffic", "lab/tunnel"},
	"lab/traffic":  {"lab/labtest"},
	"lab/vm":       {"lab/labtest"},

	"lab/client/persona": {"lab/labtest"},
	// whose keys the shipped experiments have
	"lab/experiment": {"lab/measure", "lab/traffic/frames", "lab/traffic/frames/capture"},
	// another measure, from its plan to its report
	"lab/measure": {"lab/agent", "lab/backend", "lab/compare", "lab/machine", "lab/bench", "lab/report",
		"lab/runner/runnertest"},
	"lab/measure/*":      {"lab/analysis/analysistest", "lab/labtest", "lab/measure/cost", "lab/runner/runnertest"},
	"lab/traffic/iperf3": {"lab/labtest"},

	// from one end to the other
	"lab/traffic/frames":         {"lab/labtest", "lab/traffic/frames/receive", "lab/traffic/frames/send"},
	"lab/traffic/frames/receive": {"lab/labtest"},
	"lab/traffic/frames/send":    {"lab/labtest", "lab/traffic/frames/receive"},

	"lab/traffic/rtt":        {"lab/labtest", "lab/traffic/socket"},
	"lab/traffic/short":      {"lab/labtest"},
	"lab/traffic/transition": {"lab/labtest"},

	"lab/report":  {"lab/analysis/analysistest", "lab/traffic/transition"},
	"lab/studies": {"lab/analysis/analysistest", "lab/experiment", "lab/measure", "lab/traffic/transition"},
}

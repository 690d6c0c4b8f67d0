// Cases of TestProblemsNameFileLineAndKey (errors_test.go) about networks that are delegated to clients. minimal is the
// shortest good file, of five lines, and withRADIUS has eight: the line numbers of the errors go on from there.

package config

// minimal6 is minimal with IPv6, of six lines.
const minimal6 = minimal + "lan.address6 = \"2001:db8::1/64\"\n"

// wrongPDPools are mistakes of the networks of which clients are delegated prefixes.
var wrongPDPools = []problem{
	{"prefixes for clients without IPv6", minimal + "dhcp6.pd_pool = \"2001:db8::/48\"\n",
		[]string{`x.toml:6: dhcp6.pd_pool: … clients have no IPv6 without lan.address6 …`}},
	{"the LAN's network for clients", minimal6 + "dhcp6.pd_pool = \"2001:db8::/48\"\n",
		[]string{`x.toml:7: dhcp6.pd_pool: contains the network of lan.address6, 2001:db8::/64 …`}},
	{"prefixes for clients twice", minimal6 + "lan.client_prefixes = \"2001:db8:1::/48\"\n" +
		"dhcp6.pd_pool = \"2001:db8:1:8000::/49\"\n",
		[]string{`x.toml:8: dhcp6.pd_pool: overlaps lan.client_prefixes, 2001:db8:1::/48 …`}},
	{"delegated prefixes that nobody delegates",
		minimal6 + "dhcp6.pd_pool = \"delegated\"\n",
		[]string{`x.toml:7: dhcp6.pd_pool: … wan.delegation = true`}},
	{"the provider's prefixes twice", minimal6 + "lan.client_prefixes = \"delegated\"\n" +
		"dhcp6.pd_pool = \"delegated\"\nwan.delegation = true\n",
		[]string{`x.toml:8: dhcp6.pd_pool: … "delegated" … lan.client_prefixes …`}},
	{"prefixes larger than the pool", minimal6 + "dhcp6.pd_pool = \"2001:db8:1::/48\"\n" +
		"dhcp6.pd_length = 40\n", []string{`x.toml:8: dhcp6.pd_length: is 40, … 2001:db8:1::/48 …`}},
	{"a length without a pool", minimal6 + "dhcp6.pd_length = 60\n",
		[]string{`x.toml:7: dhcp6.pd_length: … without dhcp6.pd_pool`}},
	{"prefixes without DHCPv6", minimal6 + "dhcp6.pd_pool = \"2001:db8:1::/48\"\n" +
		"dhcp6.mode = \"off\"\n", []string{`x.toml:7: dhcp6.pd_pool: needs DHCPv6 …`}},
	{"the networks of RADIUS for clients", withRADIUS + "lan.address6 = \"2001:db8::1/64\"\n" +
		"lan.client_prefixes = \"2001:db8:1::/48\"\nlan.prefix_pool.lobby = \"2001:db8:2::/48\"\n" +
		"dhcp6.pd_pool = \"2001:db8:2::/48\"\n",
		[]string{`x.toml:11: dhcp6.pd_pool: overlaps a network of lan.prefix_pool …`}},
	{"a pool with a name alone", withRADIUS + "lan.address6 = \"2001:db8::1/64\"\n" +
		"dhcp6.prefix_pool.gold = \"2001:db8:2::/48\"\n",
		[]string{`x.toml:9: dhcp6.prefix_pool: needs dhcp6.pd_pool …`}},
	{"a pool that nobody names", minimal6 + "dhcp6.pd_pool = \"2001:db8:1::/48\"\n" +
		"dhcp6.prefix_pool.gold = \"2001:db8:2::/48\"\n",
		[]string{`x.toml:8: dhcp6.prefix_pool: has no effect: … Delegated-IPv6-Prefix-Pool …`}},
	{"pools with the same prefixes", withRADIUS + "lan.address6 = \"2001:db8::1/64\"\n" +
		"dhcp6.pd_pool = \"2001:db8:200::/40\"\ndhcp6.prefix_pool.gold = \"2001:db8:280::/48\"\n",
		[]string{`x.toml:10: dhcp6.prefix_pool.gold: 2001:db8:280::/48 overlaps dhcp6.pd_pool, 2001:db8:200::/40`}},
	{"a pool without such prefixes", withRADIUS + "lan.address6 = \"2001:db8::1/64\"\n" +
		"dhcp6.pd_pool = \"2001:db8:200::/40\"\ndhcp6.pd_length = 44\n" +
		"dhcp6.prefix_pool.gold = \"2001:db8:400::/48\"\n",
		[]string{`x.toml:11: dhcp6.prefix_pool.gold: is 2001:db8:400::/48, which has no prefix of dhcp6.pd_length, 44`}},
}

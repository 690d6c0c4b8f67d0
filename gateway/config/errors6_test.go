// Cases of TestProblemsNameFileLineAndKey (errors_test.go) about pools of IPv6 prefixes, and about IPv6 of
// PPPoE clients. minimal is the shortest good
// file, of five lines, and withRADIUS has eight: the line numbers of the errors go on from there.

package config

// wrongPools6 are wrong pools of IPv6 prefixes, and IPv6 of PPPoE clients that cannot be.
var wrongPools6 = []problem{
	{"IPv6 of PPPoE clients where the data path has none",
		minimal + "dhcp.pools = [\"10.1.1.0-10.1.2.255\"]\ndatapath.kind = \"tun\"\nportal.enabled = false\n" +
			"[pppoe]\nenabled = true\npools = [\"10.1.3.0-10.1.3.255\"]\nipv6 = true\n",
		[]string{`x.toml:5: auth.methods: PPPoE clients …`,
			`x.toml:12: pppoe.ipv6: is not possible with datapath.kind = "tun", which refuses IPV6CP; … ebpf, kernel`}},
	{"IPv6 for PPPoE clients of the kernel, who have none",
		minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.nd_proxy = \"all\"\ndhcp.pools = [\"10.1.1.0-10.1.2.255\"]\n" +
			"datapath.kind = \"kernel\"\nportal.enabled = false\n[pppoe]\nenabled = true\n" +
			"pools = [\"10.1.3.0-10.1.3.255\"]\n",
		[]string{`x.toml:5: auth.methods: PPPoE clients …`,
			`x.toml:6: lan.address6: has no effect … "kernel" … pppoe.ipv6 = true …`,
			`x.toml:7: lan.nd_proxy: has no effect: datapath.kind is "kernel"`}},
	{"pools of prefixes without RADIUS", minimal + "lan.address6 = \"2001:db8::1/64\"\nlan.client_prefixes = " +
		"\"2001:db8:1::/48\"\nlan.prefix_pool.gold = \"2001:db8:2::/48\"\n",
		[]string{`x.toml:8: lan.prefix_pool: has no effect … Framed-IPv6-Pool … auth.methods`}},
	{"pools of prefixes where clients share one", withRADIUS + "lan.address6 = \"2001:db8::1/64\"\n" +
		"lan.prefix_pool.gold = \"2001:db8:2::/48\"\n",
		[]string{`x.toml:9: lan.prefix_pool: needs lan.client_prefixes …`}},
	{"pools of prefixes that overlap", withRADIUS + "lan.address6 = \"2001:db8::1/64\"\nlan.client_prefixes = " +
		"\"2001:db8:1::/48\"\nlan.prefix_pool.a = \"2001:db8:1:8000::/49\"\nlan.prefix_pool.b = \"2001:db8:2::/48\"\n" +
		"lan.prefix_pool.c = \"2001:db8:2::/56\"\nlan.prefix_pool.d = \"2001:db8::/56\"\nlan.prefix_pool.e = \"x\"\n",
		[]string{
			`x.toml:10: lan.prefix_pool: has 4 networks: 2 at most`,
			`x.toml:10: lan.prefix_pool.a: 2001:db8:1:8000::/49 overlaps lan.client_prefixes, 2001:db8:1::/48`,
			`x.toml:12: lan.prefix_pool.c: 2001:db8:2::/56 overlaps lan.prefix_pool.b, 2001:db8:2::/48`,
			`x.toml:13: lan.prefix_pool.d: 2001:db8::/56 overlaps lan.address6, 2001:db8::/64`,
			`x.toml:14: lan.prefix_pool.e: … IPv6 network of /32 to /63 … "x"`}},
}

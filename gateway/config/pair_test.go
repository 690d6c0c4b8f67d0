package config

// wrongPairs are mistakes of [pair] (TestProblemsNameFileLineAndKey). minimal has five lines.
var wrongPairs = []problem{
	{"a pair without a store", minimal + "pair.site = \"campus\"\n",
		[]string{`x.toml:6: pair.site: needs store.kind = "redis" …`}},
	{"keys of a pair, and no pair", minimal + "[pair]\nby = \"store\"\nwan_address = \"192.0.2.1/24\"\ncounts = \"5s\"\n",
		[]string{`x.toml:7: pair.by: … pair.site is not set …`, `x.toml:8: pair.wan_address: … pair.site is not set …`,
			`x.toml:9: pair.counts: … pair.site is not set …`}},
	{"a pair that cannot be", minimal + "[store]\nkind = \"redis\"\naddresses = [\"192.0.2.20:6379\"]\n" +
		"name = \"campus\"\nroaming = \"mac\"\n[pair]\nsite = \"campus\"\nlease_time = \"4s\"\n" +
		"[datapath]\nkind = \"nfqueue\"\n",
		[]string{`x.toml:10: store.roaming: is not possible with pair.site yet`, `x.toml:12: pair.site: is store.name, too …`,
			`x.toml:12: pair.site: needs datapath.kind = "ebpf"`, `x.toml:13: pair.lease_time: … advert_int …`}},
	{"values of a pair", minimal + "[pair]\nsite = \"a site\"\nby = \"luck\"\naccounting = \"none\"\n" +
		"wan_address = \"192.0.2.1\"\nlease_time = \"2s\"\ncounts = \"2m\"\n",
		[]string{`x.toml:7: pair.site: …`, `x.toml:8: pair.by: …`, `x.toml:9: pair.accounting: …`,
			`x.toml:10: pair.wan_address: … an IPv4 address with its network's length …`, `x.toml:11: pair.lease_time: …`,
			`x.toml:12: pair.counts: …`}},
}

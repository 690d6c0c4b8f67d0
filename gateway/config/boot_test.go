package config

// wrongBoots are wrong tables of what clients load (TestProblemsNameFileLineAndKey). minimal has five lines.
var wrongBoots = []problem{
	{"files to boot", minimal + "[[dhcp.boot]]\nvendor_class = \"HTTPClient\"\nserver = \"x\"\n[[dhcp.boot]]\n" +
		"vendor_class = \"PXEClient\"\nfile = \"a\"\n[[dhcp.boot]]\nvendor_class = \"PXEClient:Arch:00007\"\n" +
		"user_class = \"iPXE\"\nfile = \"b\"\nfil = \"c\"\n",
		[]string{
			`x.toml:6: dhcp.boot.file: missing: …`,
			`x.toml:8: dhcp.boot.server: must be an IPv4 address … "x"`,
			`x.toml:15: dhcp.boot: no client gets it: the table on line 9 …`,
			`x.toml:16: dhcp.boot.fil: unknown key; did you mean "dhcp.boot.file"?`}},
	{"files to boot that another server names", minimal + "dhcp.mode = \"external\"\n[[dhcp.boot]]\nfile = \"a\"\n",
		[]string{`x.toml:7: dhcp.boot: has no effect: …`}},
}

package experiment_test

import (
	"strings"
	"testing"
)

func TestGuestsNeedDevicesWithLogIns(t *testing.T) {
	const guests = "[client]\nkind = \"persona\"\nchurn = 5\n"
	for name, tt := range map[string]struct{ text, want string }{
		"a portal": {minimal + guests, ""},
		"an allow-list": {strings.Replace(minimal, `"opennds"`, `"opennds", "allowlist"`, 1) + guests,
			`x.toml:1: duts: "allowlist" does not go with client.churn: its clients do not log in themselves`},
		"the clean router": {strings.Replace(minimal, `"opennds"`, `"opennds", "clean"`, 1) + guests,
			`x.toml:1: duts: "clean" does not go with client.churn: its clients do not log in themselves`},
		"commands at the client": {strings.Replace(minimal, "opennds", "own", 1) + guests +
			"[dut.own]\nstart = \"true\"\nlogin = \"true\"\n", ""},
		"hardly any in a block": {minimal + strings.Replace(guests, "churn = 5", "churn = 0.25", 1),
			`x.toml:6: client.churn: 0.25: a block's loads last 3.5s, in which not one guest comes: more guests a second, more windows or longer ones`},
		"one in a block":    {minimal + strings.Replace(guests, "churn = 5", "churn = 0.3", 1), ""},
		"no namespace each": {minimal + "client.churn = 5\n", `x.toml:4: client.churn: needs client.kind = "persona"`},
		"too many together": {strings.Replace(minimal, "clients = [1]", "clients = [64995]", 1) + guests,
			"x.toml:6: client.churn: 5 a second are 31 guests, and with 64995 clients more than the 65000 that a lab takes"},
	} {
		_, err := known.Parse("x.toml", []byte(tt.text))
		if got := errorText(err); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}

func TestSessionsHaveRoomForTheClients(t *testing.T) {
	like := func(clients, client, sessions string) string {
		return "duts = [\"sess\"]\noffered_mbps = [9999]\nclients = [" + clients + "]\nclient = { " + client +
			" }\n[dut.sess]\nlike = \"gateway-ebpf\"\nsessions = " + sessions + "\n"
	}
	const personas = `kind = "persona"`
	for name, tt := range map[string]struct{ text, want string }{
		"as many as can be": {like("1, 4000", personas, "4000"), ""},
		"too many": {like("5000", personas, "10000"),
			"x.toml:3: clients: 5000 clients: a device with sessions (dut.sess) takes up to 4000 of them"},
		"too many with guests": {like("3990", personas+", churn = 5", "10000"),
			"x.toml:3: clients: 3990 clients and 31 guests: a device with sessions (dut.sess) takes up to 4000 of them"},
		"more than sessions": {
			like("20, 300", personas, "100"), "x.toml:7: dut.sess.sessions: 100: the 300 clients are among them"},
		"guests among them": {like("20", personas+", churn = 5", "50"),
			"x.toml:7: dut.sess.sessions: 50: the 20 clients and 31 guests are among them"},
	} {
		_, err := known.Parse("x.toml", []byte(tt.text))
		if got := errorText(err); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}

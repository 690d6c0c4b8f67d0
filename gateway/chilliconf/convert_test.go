package chilliconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// convert converts a text, and returns the notes a line each, as "LINE: OPTION: TEXT".
func convert(t *testing.T, text string) (got Result, notes string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chilli.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Convert(path, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, n := range got.Notes {
		b.WriteString(strings.TrimPrefix(n.String(), path+":") + "\n")
	}
	return got, b.String()
}

// TestConversion: what options become, what is left out, and that a note says so. A text that begins with "!" must not
// be there. Long: a table of files.
func TestConversion(t *testing.T) {
	for _, tt := range []struct {
		name, text  string
		toml, notes []string
	}{
		{"macallowed is asked about", "macallowed 02-00-5E-10-00-01\n",
			[]string{"[devices]\nradius = true\n", "!file = \"devices\""},
			[]string{"1: macallowed: servers decide about these devices"}},
		{"macallowed beside macauth", "macauth\nmacallowed 02-00-5E-10-00-01\n",
			[]string{"[devices]\nradius = true\n", "!file = \"devices\""}, []string{"2: macallowed: left out: servers decide"}},
		{"macallowed alone is enough", "macallowed 02-00-5E-10-00-01\nmacallowlocal\n",
			[]string{"[devices]\nfile = \"devices\"", "!mac_format"}, []string{"!macallow"}},
		{"the same in the shell", "HS_MACALLOW=02-00-5E-10-00-01\nHS_MACAUTHMODE=local\n",
			[]string{"[devices]\nfile = \"devices\"", "!mac_format"}, []string{"!MAC"}},
		{"another mode", "HS_MACALLOW=02-00-5E-10-00-01\nHS_MACAUTHMODE=x\n", []string{"!file = \"devices\""},
			[]string{"1: HS_MACALLOW: servers decide"}},
		{"a password that nobody needs", "macpasswd x\n", []string{"![devices]"}, []string{"1: macpasswd: left out"}},

		{"no portal", "uamport 3990\nuamsecret x\nlocationname y\n", []string{"[portal]\nport = 3990\n", "![uam]"},
			[]string{"2: uamsecret: left out, because there is no uamserver", "3: locationname: left out", "!unknown"}},
		{"a portal that is none", "uamserver x\nuamsecret x\nradiuslocationname y\n", []string{"![uam]"}, []string{
			"1: uamserver: is no web address", "2: uamsecret: left out", "3: radiuslocationname: left out", "!unknown"}},
		{"the gateway's own", "uamlisten 192.168.182.1\nuamserver http://192.168.182.1/\nuamsecret x\n", []string{"![uam]"},
			[]string{"2: uamserver: is a portal on the gateway itself", "3: uamsecret: left out", "!unknown"}},
		{"a name without a form", "HS_UAMSERVER=p.example\n", []string{"![uam]"},
			[]string{"1: HS_UAMSERVER: has no HS_UAMFORMAT", "!unknown"}},
		{"a name with its form", "HS_UAMSERVER=p.example\nHS_UAMFORMAT=https://\\$HS_UAMSERVER/\n",
			[]string{`portal_url = "https://p.example/"`}, []string{"!HS_UAMSERVER"}},
		{"a password in the address", "uamserver http://a:b@p.example/\n", []string{"![uam]"},
			[]string{"1: uamserver: is no web address"}},
		{"a port that is none", "uamport 70000\n", []string{"!port = 7"}, []string{`1: uamport: "70000" is no port`}},

		{"no netmask", "network 10.5.0.0\n", []string{`address = "192.168.182.1/24"`},
			[]string{`1: network: "10.5.0.0/" is no IPv4 network with its netmask: lan.address is of CoovaChilli's default`}},
		{"a netmask with a hole", "network 10.5.0.0\nnetmask 255.0.255.0\n", nil, []string{"1: network: "}},
		{"a netmask", "network 10.5.0.0\nnetmask 255.255.0.0\n", []string{`address = "10.5.0.1/16"`}, []string{"!network"}},

		{"nasip", "nasip nas.example\n", []string{"!nas_address"}, []string{`1: nasip: "nas.example" is no IPv4 address`}},
		{"radiusretry", "radiusretry 11\n", []string{"!retries"}, []string{`1: radiusretry: "11" is not 0 to 10`}},
		{"a certificate alone", "sslcertfile /c\n", nil, []string{"1: sslcertfile: has no sslkeyfile"}},
		{"a key alone", "sslkeyfile /k\n", nil, []string{"1: sslkeyfile: has no sslcertfile"}},
		{"dhcplisten", "dhcplisten 10.1.0.2\n", nil, []string{"1: dhcplisten: the gateway has one address"}},
		{"nasmac", "nasmac 02-00-5E-10-00-01\n", []string{`called_station_id = "02-00-5E-10-00-01"`}, []string{"!nasmac"}},

		{"the last word", "HS_MACAUTH=on\nHS_MACAUTH=off\n", []string{"![devices]"}, nil},
		{"the last word in a line of options", "uamport 1\nuamport 2\n", []string{"port = 2\n"}, nil},
		{"as it was", "HS_A=a.example\nHS_UAMFORMAT=http://$HS_A/\nHS_A=b.example\n",
			[]string{`portal_url = "http://a.example/"`}, nil},
		{"as it is at the end", "HS_UAMFORMAT=http://\\$HS_A/\nHS_A=a.example\nHS_A=b.example\n",
			[]string{`portal_url = "http://b.example/"`}, nil},
		{"not set", "HS_UAMFORMAT=http://p.example/$HS_NO\n", []string{`portal_url = "http://p.example/"`},
			[]string{"1: HS_UAMFORMAT: uses HS_NO, which is not set"}},
		{"never set", "HS_UAMFORMAT=http://p.example/\\$HS_NO\n", []string{`portal_url = "http://p.example/"`},
			[]string{"1: HS_UAMFORMAT: uses HS_NO, which is not set"}},
		{"a default", "HS_UAMFORMAT=http://${HS_NO:-p.example}/\n", []string{`portal_url = "http://p.example/"`},
			[]string{"!not set"}},
		{"a program instead", "HS_MACAUTH=on\nHS_MACAUTH=$(x)\n", []string{"![devices]"},
			[]string{"2: HS_MACAUTH: runs a program"}},
		{"doubled", "HS_A=0123456789\n" + strings.Repeat("HS_A=$HS_A$HS_A\n", 60), nil,
			[]string{"HS_A: left out: it is longer than 4096 bytes"}},
		{"many", "HS_A=" + strings.Repeat("x", 4000) + "\n" + strings.Repeat("HS_B=$HS_A\n", 2000), nil,
			[]string{"HS_B: left out: all variables together"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, notes := convert(t, tt.text)
			for text, wants := range map[string][]string{got.TOML: tt.toml, notes: tt.notes} {
				for _, want := range wants {
					if unwanted, no := strings.CutPrefix(want, "!"); strings.Contains(text, unwanted) == no {
						t.Errorf("%q in\n%.2000s", want, text)
					}
				}
			}
		})
	}
}

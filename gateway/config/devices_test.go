// Tests of the [devices] keys. minimal and withRADIUS are good files (errors_test.go).

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDevicesProblems(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"no server", minimal + "devices.radius = true\n",
			[]string{`x.toml:1: radius.primary.address: missing: devices.radius is true`}},
		{"not asked", minimal + "[devices]\nfile = \"f\"\nmac_format = \"AABBCCDDEEFF\"\npassword = \"p\"\n" +
			"ask_randomised = false\n", []string{
			`x.toml:8: devices.mac_format: has no effect: devices.radius is not true`,
			`x.toml:9: devices.password: has no effect: devices.radius is not true`,
			`x.toml:10: devices.ask_randomised: has no effect: devices.radius is not true`}},
		{"unknown format", withRADIUS + "[devices]\nradius = true\nmac_format = \"aa:bb:cc-dd:ee:ff\"\n",
			[]string{`x.toml:10: devices.mac_format: must be "aabbccddeeff" or … "aa:bb:cc-dd:ee:ff"; did you mean ` +
				`"aa:bb:cc:dd:ee:ff"?`}},
		{"two passwords", withRADIUS + "[devices]\nradius = true\npassword = \"p\"\npassword_file = \"f\"\n",
			[]string{`x.toml:10: devices.password: contradicts password_file: give one of them`}},
		{"the password is not shown", withRADIUS + "[devices]\nradius = true\npassword = [\"s3cret\"]\n",
			[]string{`x.toml:10: devices.password: must be one line … 253 bytes`}},
		{"nothing to ask", minimal + "devices.ask_again = \"1h\"\n",
			[]string{`x.toml:6: devices.ask_again: has no effect: …`}},
		{"nobody is asked for consent", minimal + "devices.consent = false\n",
			[]string{`x.toml:6: devices.consent: has no effect: devices.remember is not set`}},
		{"remembered for a moment", minimal + "devices.remember = \"1h\"\n",
			[]string{`x.toml:6: devices.remember: must be … "90d" … from 2d to 365d …`}},
		{"remembered without a portal", strings.Replace(minimal, "auth.methods", "#", 1) +
			"portal.enabled = false\ndevices.remember = \"30d\"\n",
			[]string{`x.toml:7: devices.remember: has no effect: … portal.enabled is false`}},
		{"unknown key", minimal + "devices.files = \"f\"\n",
			[]string{`x.toml:6: devices.files: unknown key; did you mean "devices.file"?`}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

// TestDevices: what the keys say, and what holds without them. Servers may be for devices alone.
func TestDevices(t *testing.T) {
	c, err := Parse("/etc/x.toml", []byte(strings.Replace(withRADIUS, `auth.methods = ["radius"]`,
		`auth.methods = ["click-through"]`, 1)+"[devices]\nradius = true\nfile = \"devices\"\nremember = \"30d\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Devices{File: "/etc/devices", RADIUS: true, UserName: UserMAC, Format: "aabbccddeeff",
		AskRandomised: true,
		AskAgain:      time.Hour, Remember: 30 * day, Consent: true}
	if c.Devices != want || !c.UsesRADIUS() {
		t.Errorf("read %+v", c.Devices)
	}
}

// TestDevicesOfNetworks: a network has the file's keys of [devices], and its own in their place.
func TestDevicesOfNetworks(t *testing.T) {
	c, err := Parse("/etc/x.toml", []byte(`wan.interface = "wan0"
dns.upstreams = ["192.0.2.53"]
auth.methods = ["click-through"]
devices.file = "all"
devices.ask_again = "5m"
[[network]]
name = "guests"
interface = "lan1"
address = "10.1.0.1/24"
[[network]]
name = "staff"
interface = "lan2"
address = "10.2.0.1/24"
[network.devices]
file = "staff"
`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"/etc/all", "/etc/staff"} {
		if d := c.Networks[i].Devices; d.File != want || d.AskAgain != 5*time.Minute {
			t.Errorf("%s has %+v", c.Networks[i].Name, d)
		}
	}
}

// TestDevicesFiles: the files that [devices] names are looked at before anything is started.
func TestDevicesFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.toml")
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("x.toml", withRADIUS+"[devices]\nfile = \"none\"\nradius = true\npassword_file = \"open\"\n", 0o600)
	write("open", "tulip\n", 0o644)
	_, err := Load(path)
	for _, want := range []string{path + ":9: devices.file: " + dir + "/none does not exist: make it with mode 644",
		path + ":11: devices.password_file: everyone can read " + dir + "/open: chmod o-r"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	write("none", "", 0o644)
	if err := os.Chmod(filepath.Join(dir, "open"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || c.Devices.Password != "tulip" {
		t.Errorf("the password is %q, %v", c.Devices.Password, err)
	}
}

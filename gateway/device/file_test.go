// Tests of MAC addresses and of the file of devices.

package device

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/listfile"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var some = datapath.MAC{0x00, 0x1a, 0x2b, 0xc3, 0xd4, 0xef}

// TestFormats: an address in each format is as the format's name shows, and can be read again.
func TestFormats(t *testing.T) {
	want := []string{
		"001a2bc3d4ef", "00:1a:2b:c3:d4:ef", "00-1a-2b-c3-d4-ef", "001a.2bc3.d4ef", "001a2b-c3d4ef",
		"001A2BC3D4EF", "00:1A:2B:C3:D4:EF", "00-1A-2B-C3-D4-EF", "001A.2BC3.D4EF", "001A2B-C3D4EF",
	}
	for i, format := range config.MACFormats {
		text := Format(some, format)
		if text != want[i] {
			t.Errorf("in the format %s it is %s", format, text)
		}
		if mac, err := ParseMAC(text); err != nil || mac != some {
			t.Errorf("%s is read as %x, %v", text, mac, err)
		}
		if own := Format(datapath.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}, format); own != format {
			t.Errorf("the format %s shows %s", format, own)
		}
	}
}

func TestRandomised(t *testing.T) {
	for mac, want := range map[string]bool{
		"00:00:5e:00:53:01": false, "02:00:5e:00:53:01": true, "da:00:5e:00:53:01": true} {
		m, err := ParseMAC(mac)
		if netnstest.Must(t, err); Randomised(m) != want {
			t.Errorf("%s: %v", mac, !want)
		}
	}
}

// TestLines: what a line of the file says of a device.
func TestLines(t *testing.T) {
	text := "# televisions\n\n00:1A:2b:c3:D4:ef\n  00-00-5e-00-53-02\tdown_rate=20M,session_timeout=8h  \r\n" +
		"0000.5e00.5303 sessions_per_user=1 tv in  the lobby\n00005e005304 - printer\n"
	got, err := listfile.Parse("f", kind, strings.NewReader(text), parseLine)
	netnstest.Must(t, err)
	want := map[string]listed{
		"00:1a:2b:c3:d4:ef": {name: "00:1a:2b:c3:d4:ef"},
		"00:00:5e:00:53:02": {name: "00:00:5e:00:53:02",
			limits: session.Limits{DownBps: 20e6, SessionTimeout: 8 * time.Hour}},
		"00:00:5e:00:53:03": {name: "tv in the lobby", sessions: 1},
		"00:00:5e:00:53:04": {name: "printer"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(listed{})); diff != "" {
		t.Error(diff)
	}
}

// TestMistakesNameFileAndLine: each mistake of a file is reported with its line.
func TestMistakesNameFileAndLine(t *testing.T) {
	const address = "must be a MAC address such as 00:00:5e:00:53:01, not "
	for text, want := range map[string]string{
		"# x\n\ntv":                         "f:3: " + address + `"tv"`,
		"00:00:5e:00:53":                    "f:1: " + address + `"00:00:5e:00:53"`,
		"00:00-5e:00:53:01":                 "f:1: " + address + `"00:00-5e:00:53:01"`,
		"00:00:5e:00:53:0g":                 "f:1: " + address + `"00:00:5e:00:53:0g"`,
		"01:00:5e:00:53:01":                 "f:1: 01:00:5e:00:53:01 is a multicast address, which no device has",
		"00:00:00:00:00:00":                 "f:1: 00:00:00:00:00:00 is no device's address",
		"00:00:5e:00:53:01\n0000.5E00.5301": `f:2: device "00:00:5e:00:53:01" is there twice`,
		"00:00:5e:00:53:01 - " + strings.Repeat("x", 254): "f:1: 00:00:5e:00:53:01: " +
			"the name must be at most 253 bytes of UTF-8 without control characters",
		"00:00:5e:00:53:01 printer": `f:1: 00:00:5e:00:53:01: "printer": must be key=value; "-" is no limits, and a name ` +
			"comes behind them",
		"00:00:5e:00:53:01 up_rate=5": `f:1: 00:00:5e:00:53:01: up_rate: must be bits a second such as "512k", "10M" or ` +
			`"1G", from 8k to 1000G, not "5"; "-" is no limits, and a name comes behind them`,
	} {
		_, err := listfile.Parse("f", kind, strings.NewReader(text), parseLine)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestAskFile: devices of the file come in, others are refused, and who may change the file is checked.
func TestAskFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices")
	netnstest.Must(t, os.WriteFile(path, []byte("001a2bc3d4ef up_rate=1M tv\n"), 0o644))
	f, err := OpenFile(path, slog.New(slog.DiscardHandler))
	netnstest.Must(t, err)
	login, err := f.Ask(t.Context(), session.Credentials{Key: session.Key{MAC: some}})
	if err != nil || login.User != "tv" || login.Limits.UpBps != 1e6 || login.Way != session.ByList || !login.Shared {
		t.Errorf("the device gets %+v, %v", login, err)
	}
	if _, err := f.Ask(t.Context(), session.Credentials{}); !errors.Is(err, session.ErrRejected) {
		t.Errorf("another device gets %v", err)
	}
	netnstest.Must(t, os.Chmod(path, 0o646))
	_, err = OpenFile(path, slog.Default())
	if err == nil || !strings.Contains(err.Error(), "others may write it: chmod") {
		t.Errorf("a file that all may write is read: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("00:00:5e:00:53:01 down_rate=20M,session_timeout=8h tv\n# x\n0000.5e00.5302 - printer")
	f.Add("00-00-5E-00-53-01\n00-00-5E-00-53-01")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := listfile.Parse("f", kind, strings.NewReader(text), parseLine)
		if err != nil {
			if all != nil || !strings.Contains(err.Error(), "f:") {
				t.Errorf("%v with error %v", all, err)
			}
			return
		}
		for key, d := range all {
			if mac, err := ParseMAC(key); err != nil || Format(mac, colons) != key {
				t.Errorf("the address %q: %v", key, err)
			}
			if d.name == "" || len(d.name) > maxName || strings.ContainsAny(d.name, "\n\r\x00") {
				t.Errorf("the name %q", d.name)
			}
		}
	})
}
